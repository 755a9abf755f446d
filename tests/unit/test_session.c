/*
 * keeper/callers/session.c and listener.c: what becomes of a connection in epoll, when one that is not watched is looked at, and what becomes
 * of a hang-up meanwhile.
 */
#include "keeper/callers/session.h"

#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "keeper/callers/dispatch.h"
#include "keeper/callers/listener.h"
#include "keeper/callers/lookup.h"
#include "keeper/fronts/away.h"
#include "keeper/fronts/crew.h"
#include "keeper/kernel/hook.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/queue.h"
#include "tests/unit/suite.h"
#include "wire/passing.h"

#define MANY (LISTENER_REST_MOST + 3)

static struct keeper k;
static uv_loop_t loop;

struct peer {
	struct session *session;
	int ours, end;
};

static void setup(void)
{
	k = (struct keeper){.member_count = 1, .members[0].keeper = &k, .loop = &loop};
	ck_assert_int_eq(uv_loop_init(&loop), 0);
	ck_assert_int_eq(sessions_init(&k), 0);
	queue_stop(&k); /* there are no leases */
	listener_rest_start(&k);
}

static void teardown(void)
{
	listener_rest_stop(&k);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
	ck_assert(!k.sessions->resting && !k.sessions->rests);
	ck_assert_uint_eq(k.sessions->count, 0);
	sessions_free(&k);
}
FIXTURE(setup, teardown)

static struct peer peer_new(bool foreign)
{
	struct peer p;
	int ends[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	p.session = session_new(&k, ends[0], &(struct ucred){.pid = getpid()}, foreign);
	ck_assert_ptr_nonnull(p.session);
	ck_assert_int_eq(quota_take(&k, 0, QUOTA_CONNECTION), 0);
	p.ours = ends[0];
	p.end = ends[1];
	session_enter(p.session, SESSION_WAITING);
	return p;
}

static void peer_free(struct peer *p)
{
	if (p->end >= 0)
		close(p->end);
	dispatch_close(p->session);
}

static int reported(void)
{
	struct epoll_event event;

	return epoll_wait(k.sessions->epoll, &event, 1, 0);
}

/* ---- in epoll ---- */

/* A process that is being forked off the keeper, or a front, has a copy: close() alone leaves it in epoll. Else there is none:
 * close() does. */
TEST_EACH(one_that_has_ended_is_not_reported, 3)
{
	const bool foreign = _i == 1, forked = _i == 2;
	struct peer p = peer_new(foreign);
	int copy = foreign || forked ? dup(p.ours) : -1;

	session_watch(p.session);
	if (forked)
		copies_begin();
	ck_assert_int_eq(reported(), 0);
	ck_assert_int_eq(write(p.end, "x", 1), 1);
	ck_assert_int_eq(reported(), 1);
	session_end(p.session);
	close(p.ours);
	ck_assert_int_eq(send(p.end, "x", 1, MSG_NOSIGNAL), copy >= 0 ? 1 : -1);
	ck_assert_int_eq(reported(), 0);
	if (copy >= 0)
		close(copy);
	close(p.end);
}

/* What came while it rested is not lost: a question, and a hang-up. */
TEST_EACH(what_came_before_it_is_watched, 2)
{
	struct peer p = peer_new(false);

	if (_i)
		ck_assert_int_eq(write(p.end, "question", 8), 8);
	else
		ck_assert_int_eq(shutdown(p.end, SHUT_RDWR), 0);
	ck_assert_int_eq(reported(), 0);
	session_watch(p.session);
	ck_assert_int_eq(reported(), 1);
	peer_free(&p);
}

/* ---- a session ---- */

/* What a program says of itself is shown to people. */
TEST(command)
{
	static const struct {
		char said[WIRE_COMMAND_BYTES + 1];
		const char *shown;
	} all[] = {
		{"backup", "backup"},       {"0123456789abcdef", "0123456789abcde"},
		{"a\nb\033[2J", "a b?[2J"}, {"x\xe2\x80\xae", "x???"},
		{{'a', '\0', '\n'}, "a"},
	};
	char shown[JOB_COMMAND_BYTES], own[JOB_COMMAND_BYTES] = "";
	struct peer p = peer_new(false);

	for (int i = 0; i < ROWS(all); i++) {
		memcpy(p.session->request.command, all[i].said, WIRE_COMMAND_BYTES);
		session_command(p.session, shown);
		ck_assert_str_eq(shown, all[i].shown);
	}
	/* A program that says nothing. */
	memset(p.session->request.command, 0, sizeof(p.session->request.command));
	session_command(p.session, shown);
	prctl(PR_GET_NAME, own);
	ck_assert_str_eq(shown, own);
	peer_free(&p);
}

TEST(counts_and_what_is_unread)
{
	struct peer p = peer_new(false);
	char answer[2000];

	ck_assert_uint_eq(k.sessions->accepted, 1);
	ck_assert_uint_eq(k.sessions->waiting[WIRE_FLOCK], 1);
	ck_assert_int_eq(write(p.end, "question", 8), 8); /* of the peer: does not count */
	ck_assert(!session_has_unread(p.session));
	session_reply(p.session, WIRE_OK, NULL, -1);
	ck_assert(session_has_unread(p.session));
	ck_assert_int_gt(read(p.end, answer, sizeof(answer)), 0);
	ck_assert(!session_has_unread(p.session));
	session_enter(p.session, SESSION_PINNED);
	ck_assert_uint_eq(k.sessions->waiting[WIRE_FLOCK], 0);
	session_enter(p.session, SESSION_WAITING);
	peer_free(&p);
	ck_assert_uint_eq(k.sessions->waiting[WIRE_FLOCK], 0);
	ck_assert_uint_eq(k.sessions->counts.abandoned, 1);
	ck_assert_uint_eq(k.sessions->accepted, 1);
}

/* ---- those that rest ---- */

/* The one whose peer is gone is closed, the other is watched. */
TEST(a_look)
{
	struct peer gone = peer_new(false), there = peer_new(false);

	ck_assert(!session_has_hung_up(gone.session) && !session_has_hung_up(there.session));
	close(gone.end);
	ck_assert(session_has_hung_up(gone.session) && !session_has_hung_up(there.session));
	ck_assert_int_eq(reported(), 0);
	listener_rest_look(&k);
	ck_assert_int_eq(gone.session->state, SESSION_CLOSED);
	ck_assert_int_eq(there.session->state, SESSION_WAITING);
	ck_assert_uint_eq(k.sessions->count, 1);
	ck_assert_uint_eq(k.sessions->rests, 0);
	ck_assert_int_eq(reported(), 0);
	ck_assert_int_eq(shutdown(there.end, SHUT_RDWR), 0);
	ck_assert_int_eq(reported(), 1);
	peer_free(&there);
}

/* By the timer, all of them, however many they are. */
TEST(not_for_long)
{
	struct peer peers[MANY];

	for (int i = 0; i < MANY; i++) {
		peers[i] = peer_new(false);
		listener_rest_begin(peers[i].session);
		if (i % 2 == 0)
			close(peers[i].end);
	}
	ck_assert_uint_eq(k.sessions->rests, MANY);
	for (int turns = 0; k.sessions->rests; turns++) {
		ck_assert_int_lt(turns, 100);
		uv_run(&loop, UV_RUN_ONCE);
	}
	ck_assert_uint_eq(k.sessions->count, MANY / 2);
	for (int i = 1; i < MANY; i += 2)
		peer_free(&peers[i]);
}

/* An answered peer may ask on, and one that waits may go away for good. One with a grant mostly hangs up, or ends while it rests. */
TEST(an_answer)
{
	struct peer waits = peer_new(false), refused = peer_new(false), granted = peer_new(false);

	session_reply(waits.session, WIRE_WAITING, NULL, -1);
	ck_assert(!waits.session->waiter.rests);
	session_would_block(refused.session, NULL);
	ck_assert(!refused.session->waiter.rests);
	session_grant(granted.session, 1, 1);
	ck_assert(granted.session->waiter.rests);
	peer_free(&waits);
	peer_free(&refused);
	peer_free(&granted);
	ck_assert(!k.sessions->resting && !k.sessions->rests);
	listener_rest_look(&k);
}

/* ---- a front tests whether the lock is shared ---- */

static int door; /* the end of the process that starts fronts: here, of the test */
static struct away *kept;

static void on_kept(struct front_connection *c, struct away *away, const char *why) { kept = away; }

/* The other end of the front's socket that was started last. */
static int front_end(void)
{
	char what;
	int end;

	ck_assert_int_eq(passing_receive_one(door, &what, 1, &end, MSG_DONTWAIT), 1);
	ck_assert_int_ge(end, 0);
	return end;
}

static struct front_ask front_hears(int end, enum front_op op)
{
	struct front_ask ask;
	int fd;

	ck_assert_int_eq(passing_receive_one(end, &ask, sizeof(ask), &fd, MSG_DONTWAIT), sizeof(ask));
	ck_assert_int_eq(ask.op, op);
	if (fd >= 0)
		close(fd);
	return ask;
}

static void on_turn(uv_idle_t *idle) { uv_idle_stop(idle); }

static void front_says(int end, const struct front_answer *answer)
{
	uv_idle_t turn;

	ck_assert_int_eq(write(end, answer, sizeof(*answer)), sizeof(*answer));
	uv_idle_init(&loop, &turn);
	uv_idle_start(&turn, on_turn);
	uv_run(&loop, UV_RUN_NOWAIT);
	uv_close((uv_handle_t *)&turn, NULL);
	uv_run(&loop, UV_RUN_NOWAIT);
}

/* The answer serves the session that waits for it, and none that was answered meanwhile: one of a thread that has made another call. */
TEST_EACH(a_test_of_a_front, 2)
{
	struct file file = {.keeper = &k};
	struct peer p = peer_new(true);
	struct session *s = p.session;
	int ends[2], reads, keeps;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	door = ends[1];
	k.fronts = s->reading.fronts = fronts_new(&loop, ends[0], &dispatch_fronts_news);
	crew_take(crew_start(crew_user(k.fronts, s->peer.uid), false), &s->reading);
	reads = front_end();
	away_keep(&s->reading, 1, on_kept);
	keeps = front_end();
	front_says(reads, &(struct front_answer){.said = FRONT_GIVEN});
	ck_assert_ptr_nonnull(kept);
	file.away = kept;
	file.locks[WIRE_FLOCK].file = &file;
	waiters_add(&s->waiter, &file.locks[WIRE_FLOCK]);
	lookup_test_shared(s);
	ck_assert_int_eq(s->state, SESSION_INSPECTING);
	front_hears(keeps, FRONT_SETTLE);
	if (_i)
		session_reply(s, WIRE_REFUSED, "another call", -1);
	front_says(keeps,
		   &(struct front_answer){.said = FRONT_TESTED, .probe = front_hears(keeps, FRONT_SHARED).probe});
	ck_assert_int_eq(s->state, _i ? SESSION_READING : SESSION_WAITING);
	ck_assert_uint_eq(s->waiter.news, _i ? 0 : WAITER_SERVE);
	peer_free(&p);
	fronts_free(k.fronts);
	close(reads);
	close(keeps);
	close(door);
}
