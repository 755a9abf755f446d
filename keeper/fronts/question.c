/* See question.h. */
#include "keeper/fronts/question.h"

#include <errno.h>
#include <stddef.h>
#include <sys/socket.h>

ssize_t question_receive(int socket, struct question *question, struct passing *came)
{
	/* MSG_TRUNC: the real length, so that a longer message can be told from another version. */
	ssize_t n = passing_receive(socket, question, sizeof(*question) - 1, came, MSG_DONTWAIT | MSG_TRUNC);

	if (n < 0)
		return n;
	((char *)question)[n < (ssize_t)sizeof(*question) ? (size_t)n : sizeof(*question) - 1] = '\0';
	/* Without room in our own table the kernel drops the descriptor. Everything else the peer has done. */
	if (came->cut)
		return came->count == 0 ? -EMFILE : -EBADMSG;
	return came->count > 1 ? -EBADMSG : n; /* an empty message may carry a descriptor, too */
}

static bool lock_ok(const struct wire_request *r)
{
	if (r->reserved[0] || r->reserved[1] || r->reserved[2] || r->reserved_too)
		return false;
	if (r->thread < 0 || (r->call && !r->thread) || (r->thread && (r->flags & WIRE_F_HAVE)))
		return false;
	if (r->space >= WIRE_SPACES || r->mode >= WIRE_MODES || r->owner >= WIRE_OWNERS || (r->flags & ~WIRE_F_ALL))
		return false;
	/* No clock of a time namespace is beyond half the range. The answer adds a lease's time to it, so more would
	 * overflow. */
	if (r->from < 0 || r->to <= r->from || r->sent_ns < 0 || r->sent_ns > INT64_MAX / 2)
		return false;
	return r->space == WIRE_RECORD || (r->from == 0 && r->to == WIRE_EOF);
}

static bool break_ok(const struct wire_request *r)
{
	return r->space < WIRE_SPACES && r->from >= 0 && r->to >= 0;
}

static bool before_ok(const struct wire_request *r)
{
	return r->from >= 0;
}

#define WITH_NOTHING    .kind = QUESTION_CONTROL
#define WITH_TEXT       .kind = QUESTION_CONTROL, .text = true
#define WITH_DESCRIPTOR .kind = QUESTION_LOCK, .ok = lock_ok

static const struct question_row question_rows[WIRE_OPS] = {
	[WIRE_LOCK] = {WITH_DESCRIPTOR},
	[WIRE_TEST] = {WITH_DESCRIPTOR},
	[WIRE_HELD] = {WITH_DESCRIPTOR},
	[WIRE_BEFORE] = {.kind = QUESTION_BEFORE, .ok = before_ok},
	[WIRE_STATUS] = {WITH_NOTHING, .everyone = true, .gives_file = true},
	[WIRE_METRICS] = {WITH_NOTHING, .everyone = true, .gives_file = true},
	[WIRE_WHO] = {WITH_TEXT, .everyone = true, .gives_file = true},
	[WIRE_PING] = {WITH_NOTHING, .everyone = true},
	[WIRE_FIT] = {WITH_NOTHING, .everyone = true},
	[WIRE_RELOAD] = {WITH_NOTHING},
	[WIRE_STOP] = {WITH_NOTHING},
	[WIRE_INIT] = {WITH_NOTHING},
	[WIRE_BREAK] = {WITH_TEXT, .ok = break_ok, .everyone = true},
	[WIRE_END_REST] = {WITH_TEXT, .ok = break_ok},
	[WIRE_GIVE_UP] = {WITH_TEXT, .ok = break_ok},
	[WIRE_LOG_LEVEL] = {WITH_TEXT, .ok = break_ok},
};

const struct question_row *question_row(unsigned op)
{
	return op < WIRE_OPS ? &question_rows[op] : &question_rows[0];
}

enum question_kind question_check(const struct wire_request *r, ssize_t n, bool has_fd)
{
	const struct question_row *row;

	if (n < (ssize_t)offsetof(struct wire_request, op) || r->magic != WIRE_MAGIC)
		return QUESTION_MALFORMED;
	if (r->version != WIRE_VERSION)
		return n > (ssize_t)offsetof(struct wire_request, op) && r->op == WIRE_STOP && !has_fd
			       ? QUESTION_CONTROL
			       : QUESTION_OTHER_VERSION;
	row = question_row(r->op);
	if (r->size != sizeof(*r) || has_fd != (row->kind == QUESTION_LOCK))
		return QUESTION_MALFORMED;
	if (row->text ? n <= (ssize_t)sizeof(*r) || n >= (ssize_t)sizeof(struct question) : n != sizeof(*r))
		return QUESTION_MALFORMED;
	return !row->ok || row->ok(r) ? row->kind : QUESTION_MALFORMED;
}
