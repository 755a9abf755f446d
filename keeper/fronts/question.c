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

static bool question_has_text(unsigned op)
{
	return op == WIRE_WHO || op == WIRE_BREAK || op == WIRE_END_REST || op == WIRE_GIVE_UP || op == WIRE_LOG_LEVEL;
}

static bool break_ok(const struct wire_request *r)
{
	return r->op == WIRE_WHO || (r->space < WIRE_SPACES && r->from >= 0 && r->to >= 0);
}

enum question_kind question_check(const struct wire_request *r, ssize_t n, bool has_fd)
{
	if (n < (ssize_t)offsetof(struct wire_request, op) || r->magic != WIRE_MAGIC)
		return QUESTION_MALFORMED;
	if (r->version != WIRE_VERSION)
		return n > (ssize_t)offsetof(struct wire_request, op) && r->op == WIRE_STOP && !has_fd
			       ? QUESTION_CONTROL
			       : QUESTION_OTHER_VERSION;
	if (question_has_text(r->op) && r->size == sizeof(*r) && !has_fd)
		return n > (ssize_t)sizeof(*r) && n < (ssize_t)sizeof(struct question) && break_ok(r)
			       ? QUESTION_CONTROL
			       : QUESTION_MALFORMED;
	if (n != sizeof(*r) || r->size != sizeof(*r) || question_has_text(r->op))
		return QUESTION_MALFORMED;
	if (r->op == WIRE_LOCK || r->op == WIRE_TEST || r->op == WIRE_HELD)
		return has_fd && lock_ok(r) ? QUESTION_LOCK : QUESTION_MALFORMED;
	if (r->op == WIRE_BEFORE)
		return !has_fd && r->from >= 0 ? QUESTION_BEFORE : QUESTION_MALFORMED;
	return r->op > 0 && r->op < WIRE_OPS && !has_fd ? QUESTION_CONTROL : QUESTION_MALFORMED;
}
