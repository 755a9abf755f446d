/*
 * See session.h.
 *
 * Freeing: the session's timer closes in the loop, after the events of this turn; a worker that looks at the session's
 * descriptor keeps the session alive, too. The last user frees it (uses). So an event of this turn may name a session
 * that is closed, but never one that is freed.
 */
#include "keeper/callers/session.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/clock.h"
#include "keeper/fronts/frontmsg.h"
#include "keeper/kernel/ownlocks.h"
#include "keeper/kernel/command.h"
#include "keeper/kernel/hook.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/queue.h"
#include "keeper/log.h"
#include "wire/passing.h"
#include "wire/text.h"

int sessions_init(struct keeper *k)
{
	k->sessions = calloc(1, sizeof(*k->sessions));
	if (!k->sessions)
		return -ENOMEM;
	k->sessions->epoll = epoll_create1(EPOLL_CLOEXEC);
	k->sessions->idle_since_ns = clock_now_ns();
	return k->sessions->epoll < 0 ? -errno : 0;
}

void sessions_free(struct keeper *k)
{
	close(k->sessions->epoll);
	free(k->sessions);
	k->sessions = NULL;
}

struct session *session_new(struct keeper *k, int fd, const struct ucred *peer, bool foreign)
{
	struct session *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->keeper = k;
	s->fd = fd;
	s->peer = *peer;
	s->connected = peer->pid;
	s->foreign = foreign;
	s->reading = (struct front_connection){.fronts = k->fronts, .owner = s, .uid = peer->uid, .fd = fd};
	s->lookup = (struct lookup)LOOKUP_NONE;
	s->uses = 1; /* the timer's */
	uv_timer_init(k->loop, &s->timer);
	s->timer.data = s;
	DL_APPEND(k->sessions->all, s);
	DL_APPEND2(k->sessions->resting, s, rest_prev, rest_next);
	s->waiter.rests = true;
	k->sessions->rests++;
	k->sessions->count++;
	k->sessions->accepted++;
	return s;
}

static void session_rests_no_more(struct session *s)
{
	if (!s->waiter.rests)
		return;
	s->waiter.rests = false;
	DL_DELETE2(s->keeper->sessions->resting, s, rest_prev, rest_next);
	s->keeper->sessions->rests--;
}

void session_watch(struct session *s)
{
	/* A front reads a foreign connection later, so epoll reports each message once (edge-triggered). */
	struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | (s->foreign ? EPOLLET : 0), .data.ptr = s};

	if (s->waiter.rests && epoll_ctl(s->keeper->sessions->epoll, EPOLL_CTL_ADD, s->fd, &event) == 0)
		session_rests_no_more(s);
}

bool session_has_hung_up(const struct session *s)
{
	struct pollfd one = {.fd = s->fd};

	return poll(&one, 1, 0) == 1 && one.revents & POLLHUP;
}

void session_enter(struct session *s, enum session_state state)
{
	struct sessions *sessions = s->keeper->sessions;
	void (*leave)(struct session * s) = s->leave;

	/* The request is another one only after the session has left SESSION_WAITING. That of an operator may have any `space`. */
	if (s->state == SESSION_WAITING)
		sessions->waiting[s->request.space]--;
	if (state == SESSION_WAITING)
		sessions->waiting[s->request.space]++;
	sessions->counts.abandoned += s->state == SESSION_WAITING && state == SESSION_CLOSED;
	if (s->state == state)
		return;
	s->state = state;
	if (uv_is_active((uv_handle_t *)&s->timer))
		uv_timer_stop(&s->timer);
	s->leave = NULL;
	if (leave)
		leave(s);
}

static void on_session_late(uv_timer_t *timer)
{
	struct session *s = timer->data;

	s->late(s);
	queue_settle(s->keeper);
}

void session_expect(struct session *s, int64_t ms, void (*late)(struct session *s))
{
	s->late = late;
	uv_timer_start(&s->timer, on_session_late, ms > 0 ? (uint64_t)ms : 0, 0);
}

void session_ask_for(struct session *s, const struct onbehalf *who)
{
	s->behalf = *who;
	s->again = s->called_back = false;
	s->peer.pid = who->thread ? who->pid : s->connected;
}

void session_command(const struct session *s, char out[JOB_COMMAND_BYTES])
{
	_Static_assert(JOB_COMMAND_BYTES == WIRE_COMMAND_BYTES && JOB_COMMAND_BYTES == COMM_BYTES, "the same names");
	memcpy(out, s->request.command, JOB_COMMAND_BYTES);
	out[JOB_COMMAND_BYTES - 1] = '\0';
	if (*out)
		text_make_printable(out, strlen(out));
	else
		comm_read(s->peer.pid, out);
}

void session_use(struct session *s)
{
	s->uses++;
}

void session_unuse(struct session *s)
{
	if (--s->uses == 0)
		free(s);
}

static void on_session_timer_closed(uv_handle_t *handle)
{
	session_unuse(handle->data);
}

bool session_is_asking(const struct keeper *k, pid_t pid)
{
	const struct session *s;

	DL_FOREACH (k->sessions->all, s)
		if (s->peer.pid == pid)
			return true;
	return false;
}

void session_stop_waiting(struct session *s)
{
	if (!s->waiter.lock)
		return;
	room_leave(&s->waiter);
	waiters_remove(&s->waiter);
}

void session_end(struct session *s)
{
	struct sessions *sessions = s->keeper->sessions;

	session_enter(s, SESSION_CLOSED);
	session_rests_no_more(s);
	DL_DELETE(sessions->all, s);
	quota_give(s->keeper, s->peer.uid, QUOTA_CONNECTION);
	if (!--sessions->count)
		sessions->idle_since_ns = clock_now_ns();
	/* close() does that, but not while there is a copy: a front may have one. */
	if (s->foreign || copies_are_possible())
		epoll_ctl(sessions->epoll, EPOLL_CTL_DEL, s->fd, NULL);
	uv_close((uv_handle_t *)&s->timer, on_session_timer_closed);
}

/* --- answers: the keeper never waits for a peer; a message that the peer's socket does not take at once is dropped --- */

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
	s->gave_file |= fd >= 0;
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
		reply.on_refused = (uint8_t)config_rule_for(s->keeper->config, s->waiter.lock->file->path).on_refused;
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
	const struct own_lock *held = own_after(&s->before, s->request.from);

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
	if (own_count(&s->before))     /* it may ask on */
		session_watch(s);
}

void session_tell_before(struct session *s, int64_t from)
{
	const struct own_lock *held = own_after(&s->before, from);
	struct wire_reply reply;

	reply_fill(&reply, WIRE_OK, NULL);
	if (held) {
		reply.mode = held->mode;
		reply.from = held->from;
		reply.to = held->to;
	}
	session_finish(s, &reply, -1);
}
