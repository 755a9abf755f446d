/* Answers to sessions: see session.h. The keeper never waits for a peer: a message that the peer's socket does not take
 * at once is dropped. */
#include <stdarg.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "keeper/clock.h"
#include "keeper/fronts/frontmsg.h"
#include "keeper/kernel/before.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"
#include "keeper/log.h"
#include "keeper/callers/session.h"
#include "wire/passing.h"

static void reply_fill(struct wire_reply *reply, enum wire_verdict verdict, const char *reason)
{
	*reply = (struct wire_reply){
		.magic = WIRE_MAGIC, .version = WIRE_VERSION, .size = sizeof(*reply), .verdict = verdict};
	if (reason)
		snprintf(reply->reason, sizeof(reply->reason), "%s", reason);
}

/* Errors are ignored: the hang-up tells of a peer that is gone, and a peer that does not read must not disturb other
 * callers. */
static void reply_send(int to, const struct wire_reply *reply, int fd)
{
	const struct iovec iov = {.iov_base = (void *)reply, .iov_len = sizeof(*reply)};
	int ret = passing_send(to, &iov, 1, fd, MSG_DONTWAIT);

	if (ret < 0)
		log_debug("an answer could not be sent: %s", strerror(-ret));
}

bool session_has_unread(const struct session *s)
{
	int bytes = 0;

	return ioctl(s->fd, SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

static void session_finish(struct session *s, const struct wire_reply *reply, int fd)
{
	session_stop_waiting(s);
	session_enter(s, SESSION_READING);
	reply_send(s->fd, reply, fd);
	session_watch(s);
}

void session_turn_away(struct keeper *k, int to, enum refusal refusal, const char *why, bool may_mend)
{
	struct wire_reply reply;

	k->sessions->counts.refused[refusal]++;
	reply_fill(&reply, WIRE_REFUSED, why);
	reply.may_mend = may_mend;
	reply_send(to, &reply, -1);
}

void session_reply(struct session *s, enum wire_verdict verdict, const char *reason, int fd)
{
	struct wire_reply reply;

	s->keeper->sessions->counts.deadlocks += verdict == WIRE_DEADLOCK;
	reply_fill(&reply, verdict, reason);
	if (verdict != WIRE_WAITING)
		return session_finish(s, &reply, fd);
	reply_send(s->fd, &reply, -1);
	session_watch(s);
}

/* No process here has this pid, and none can be signalled by mistake: kill(-1) is what F_GETLK's readers expect least,
 * so the manual says what it means. The kernel itself shows -1 for locks that belong to no process. */
#define PID_ELSEWHERE (-1)

void session_would_block(struct session *s, const struct store_range *in_use)
{
	struct wire_reply reply;

	s->keeper->sessions->counts.busy[s->request.space] += s->request.op == WIRE_LOCK;
	reply_fill(&reply, WIRE_WOULD_BLOCK, NULL);
	reply.mode = in_use ? in_use->mode : WIRE_EXCLUSIVE;
	reply.from = in_use ? in_use->from : s->request.from;
	reply.to = in_use ? in_use->to : s->request.to;
	reply.pid = PID_ELSEWHERE;
	session_finish(s, &reply, -1);
}

/* Without a lock name, the questions of one user are one cause. */
static void session_log_refusal(const struct session *s, const char *reason)
{
	bool is_lock = s->request.op == WIRE_LOCK || s->request.op == WIRE_TEST;
	char user[32];

	snprintf(user, sizeof(user), "uid %u", (unsigned)s->peer.uid);
	log_about(is_lock ? LINE_LOCK_REFUSED : LINE_QUESTION_REFUSED,
		  &(struct log_about){.lock = s->waiter.lock ? s->waiter.lock->file->name : NULL,
				      .subject = user,
				      .pid = s->peer.pid},
		  "pid %d: refused: %s", (int)s->peer.pid, reason);
}

__attribute__((format(printf, 3, 0))) static void refuse(struct session *s, bool may_mend, const char *format,
							 va_list args)
{
	struct wire_reply reply;

	reply_fill(&reply, WIRE_REFUSED, NULL);
	reply.may_mend = may_mend;
	if (s->waiter.lock)
		reply.on_refused = (uint8_t)config_on_refused(s->keeper->config, s->waiter.lock->file->path);
	vsnprintf(reply.reason, sizeof(reply.reason), format, args);
	log_make_one_line(reply.reason);
	session_log_refusal(s, reply.reason);
	session_finish(s, &reply, -1);
}

void session_refuse(struct session *s, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	refuse(s, false, format, args);
	va_end(args);
}

void session_refuse_call(struct session *s, enum refusal refusal, bool may_mend, const char *format, ...)
{
	va_list args;

	if (s->request.op != WIRE_HELD)
		s->keeper->sessions->counts.refused[refusal]++;
	va_start(args, format);
	refuse(s, may_mend, format, args);
	va_end(args);
}

/* Answers the WIRE_BEFORE that the caller would send next. */
static void reply_add_before(struct wire_reply *reply, const struct session *s)
{
	const struct held *held = before_after(&s->before, s->request.from);

	reply->from = reply->to = s->request.to;
	if (!held)
		return;
	reply->mode = held->mode;
	reply->from = held->from;
	reply->to = held->to;
}

/*
 * The caller's clock is not ours (time namespaces): what it may rely on counts from when it sent the question.
 *
 * Why it never ends after until_ns: sent_ns was read before the question was sent, received_ns after it was received,
 * so sent_ns is the earlier moment; adding the time between received_ns and until_ns to it gives a moment before
 * until_ns. A clock that was read before recvmsg() would not do: a question that arrives in between was sent after
 * that.
 */
void session_grant(struct session *s, int64_t until_ns, uint64_t fence)
{
	struct wire_reply reply;

	histogram_observe(&s->keeper->sessions->counts.waited[s->request.space], clock_now_ns() - s->received_ns);
	reply_fill(&reply, WIRE_GRANTED, NULL);
	reply.until_ns = s->request.sent_ns + (until_ns - s->received_ns);
	reply.fence = fence;
	if (s->request.space == WIRE_RECORD)
		reply_add_before(&reply, s);
	reply_send(s->fd, &reply, -1); /* stays in the lock's list: the pin */
	if (before_count(&s->before))  /* it may ask on */
		session_watch(s);
}

void session_tell_before(struct session *s, int64_t from)
{
	const struct held *held = before_after(&s->before, from);
	struct wire_reply reply;

	reply_fill(&reply, WIRE_OK, NULL);
	if (held) {
		reply.mode = held->mode;
		reply.from = held->from;
		reply.to = held->to;
	}
	session_finish(s, &reply, -1);
}
