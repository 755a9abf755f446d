/* See dispatch.h. What a peer sends is checked in question.c. */
#include "keeper/callers/dispatch.h"

#include <errno.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/callers/control.h"
#include "keeper/callers/deadlock.h"
#include "keeper/callers/lookup.h"
#include "keeper/callers/serve.h"
#include "keeper/callers/who.h"
#include "keeper/clock.h"
#include "keeper/fronts/frontmsg.h"
#include "keeper/fronts/fronts.h"
#include "keeper/fronts/question.h"
#include "keeper/kernel/onbehalf.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/queue.h"
#include "keeper/leases/seenout.h"
#include "keeper/log.h"

#define DISPATCH_UNREAD_MS 1000 /* between two looks whether a descriptor was read */

/* A descriptor that a user keeps unread is one of those that the kernel lets the keeper have on their way, also after the keeper has closed
 * the connection. So the connection counts for as long as that. */
static bool dispatch_is_kept(const struct session *s)
{
	return s->foreign && s->gave_file && !s->keeper->leaving && session_has_unread(s);
}

void dispatch_close(struct session *s)
{
	if (s->state == SESSION_CLOSED)
		return;
	session_stop_waiting(s);
	own_free(&s->before);
	if (s->foreign)
		fronts_leave(&s->reading);
	lookup_leave(s);
	if (dispatch_is_kept(s)) {
		session_enter(s, SESSION_UNREAD);
		return session_expect(s, DISPATCH_UNREAD_MS, dispatch_close);
	}
	session_end(s);
	if (s->foreign)
		fronts_bury(s->keeper->fronts, s->peer.uid, s->fd);
	else
		close(s->fd);
}

static void dispatch_log_nonsense(const struct session *s, const char *what)
{
	char user[32];

	snprintf(user, sizeof(user), "uid %u", (unsigned)s->peer.uid);
	log_about(LINE_MALFORMED_QUESTION, &(struct log_about){.subject = user, .pid = s->peer.pid},
		  "pid %d %s: disconnected", (int)s->peer.pid, what);
}

/* Not about a lock. */
static void dispatch_other(struct session *s, const struct wire_request *r, const char *text, enum question_kind kind)
{
	switch (kind) {
	case QUESTION_BEFORE:
		return session_tell_before(s, r->from);
	case QUESTION_CONTROL:
		s->request = *r;
		return control_question(s, text);
	case QUESTION_OTHER_VERSION:
		session_refuse_call(s, REFUSAL_VERSION, true,
				    "the keeper (dflockd " DFLOCK_VERSION
				    ", protocol %d) and libdflock.so (protocol %d) are of different versions: end the "
				    "keeper with `dflock stop`",
				    WIRE_VERSION, r->version);
		return;
	default:
		dispatch_log_nonsense(s, "sent a malformed question");
		return dispatch_close(s);
	}
}

#define DISPATCH_STALE "the thread has made another call since"

/* Questions of the thread's earlier calls that wait still: their supervisor has died. A grant would be an entry that nobody ends, while the
 * thread waits for the answer to this one. */
static void dispatch_drop_stale(const struct session *s, const struct onbehalf *who, uint64_t number)
{
	struct session *other, *next;

	DL_FOREACH_SAFE (s->keeper->sessions->all, other, next)
		if (other != s && (other->state == SESSION_WAITING || other->state == SESSION_INSPECTING) &&
		    other->behalf.thread == who->thread && other->behalf.started == who->started &&
		    other->request.call != number)
			session_refuse_call(other, REFUSAL_PROGRAM, false, DISPATCH_STALE);
}

/* A question about a lock, on behalf of the thread that it names: is it believed? If not, this has answered the peer. */
static bool dispatch_believes(struct session *s, const struct wire_request *r)
{
	struct ucred peer = s->peer;
	struct onbehalf who = {0};
	int ret = 0;

	peer.pid = s->connected;
	if (r->thread)
		ret = onbehalf_look(&peer, r->thread, &who);
	session_ask_for(s, &who);
	if (ret < 0) {
		session_refuse_call(s, ret == -EMFILE ? REFUSAL_ROOM : REFUSAL_PROGRAM, ret == -EMFILE, "%s",
				    onbehalf_why(ret));
		return false;
	}
	/* A question from the past: its peer has died, or does not wait for the answer. */
	if (r->thread && !seenout_begin(s->keeper, &who, r->call, &s->again)) {
		session_refuse_call(s, REFUSAL_PROGRAM, false, DISPATCH_STALE);
		return false;
	}
	if (r->thread)
		dispatch_drop_stale(s, &who, r->call);
	return true;
}

static void close_passed(struct keeper *k, const struct passing *came)
{
	for (unsigned i = 0; i < came->count; i++)
		lookup_close(k, came->fds[i]);
}

/* n as of question_receive(). May the question be looked at? If not, this has told or disconnected the peer. */
static bool dispatch_is_in_turn(struct session *s, ssize_t n)
{
	if (n == -EMFILE) {
		session_refuse_call(s, REFUSAL_ROOM, true,
				    "the keeper has no descriptor left: raise its RLIMIT_NOFILE");
		return false;
	}
	if (n == -EBADMSG)
		dispatch_log_nonsense(s, "sent more than one descriptor");
	if (n > 0 && s->state == SESSION_PINNED) { /* ends the pin; an early answer is re-asked for */
		session_stop_waiting(s);
		session_enter(s, SESSION_READING);
	}
	if (n > 0 && s->state != SESSION_READING)
		dispatch_log_nonsense(s, "asked again before it had its answer");
	if (n <= 0 || s->state != SESSION_READING) {
		dispatch_close(s);
		return false;
	}
	s->started = time(NULL);
	return true;
}

void dispatch_readable(struct session *s)
{
	struct question question = {.text = ""};
	struct passing came;
	enum question_kind kind;
	ssize_t n;

	n = question_receive(s->fd, &question, &came);
	if (n == -EAGAIN || n == -EINTR)
		return;
	s->received_ns = clock_now_ns(); /* after the question was received: see session_grant() */
	if (!dispatch_is_in_turn(s, n)) {
		close_passed(s->keeper, &came);
		return;
	}
	kind = question_check(&question.request, n, came.count > 0);
	if (kind == QUESTION_LOCK && dispatch_believes(s, &question.request)) {
		s->request = question.request;
		return lookup_start(s, came.fds[0]);
	}
	close_passed(s->keeper, &came);
	if (kind == QUESTION_LOCK)
		return;
	session_ask_for(s, &(struct onbehalf){.thread = 0});
	dispatch_other(s, &question.request, question.text, kind);
}

static void dispatch_answer(struct session *s, const struct front_answer *a, const struct own_lock *before, int fd)
{
	s->received_ns = a->received_ns;
	if (dispatch_is_in_turn(s, a->n)) {
		if (!a->looked) {
			session_ask_for(s, &(struct onbehalf){.thread = 0});
			return dispatch_other(s, &a->request, a->file.path,
					      question_check(&a->request, a->n, a->has_fd));
		}
		if (dispatch_believes(s, &a->request)) {
			s->request = a->request;
			return lookup_received(s, a, before, fd);
		}
	}
	file_close(s->keeper, a->dev, fd, true);
	/* A session that was closed has left the front (fronts.c tells the front so); one that was refused has not. */
}

static void dispatch_received(struct front_connection *reading, const struct front_answer *a,
			      const struct own_lock *before, int fd)
{
	struct session *s = reading->owner;

	if (a->n == -EAGAIN || a->n == -EINTR)
		return;
	dispatch_answer(s, a, before, fd);
	queue_settle(s->keeper);
}

static void dispatch_slow(struct front_connection *reading, int ms)
{
	struct session *s = reading->owner;

	lookup_slow(s, ms);
	queue_settle(s->keeper);
}

static void dispatch_refused(struct front_connection *reading, const char *why)
{
	struct session *s = reading->owner;

	session_refuse_call(s, REFUSAL_FILE, false, "%s", why);
	queue_settle(s->keeper);
}

const struct fronts_news dispatch_fronts_news = {
	.received = dispatch_received, .slow = dispatch_slow, .refused = dispatch_refused};

/* --- news from leases/ --- */

static void dispatch_on_store(struct member *m, enum queue_store what)
{
	if (what == QUEUE_STORE_TRIED) {
		control_store_tried(m);
		if (m->tried)
			who_store_tried(m);
	} else {
		control_stop_store_down(m->keeper);
	}
}

void dispatch_take_news(struct keeper *k)
{
	static const struct queue_news news = {.told = serve_told,
					       .in_use = control_stop_in_use,
					       .store = dispatch_on_store,
					       .leases_freed = control_stop_leases_ended,
					       .chase = deadlock_message,
					       .broken = control_break_told,
					       .who = who_message};

	k->queue.news = &news;
}
