/* keeper/callers/listener.c: connections that are not watched: when one is looked at, and what becomes of a hang-up meanwhile. */
#include "keeper/callers/listener.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include "keeper/callers/dispatch.h"
#include "keeper/callers/session.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/queue.h"
#include "tests/unit/suite.h"

#define MANY (LISTENER_REST_MOST + 3)

static struct keeper k;
static uv_loop_t loop;

struct peer {
	struct session *session;
	int end;
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
	sessions_free(&k);
}
FIXTURE(setup, teardown)

static struct peer peer_new(void)
{
	struct peer p;
	int ends[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	p.session = session_new(&k, ends[0], &(struct ucred){.pid = 4711}, false);
	ck_assert_ptr_nonnull(p.session);
	ck_assert_int_eq(quota_take(&k, 0, QUOTA_CONNECTION), 0);
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

/* The one whose peer is gone is closed, the other is watched. */
TEST(a_look)
{
	struct peer gone = peer_new(), there = peer_new();

	ck_assert(!session_has_hung_up(gone.session) && !session_has_hung_up(there.session));
	close(gone.end);
	gone.end = -1;
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

/* What came while it rested is not lost: a question, and a hang-up. */
TEST_EACH(what_came_before, 2)
{
	struct peer p = peer_new();

	if (_i)
		ck_assert_int_eq(write(p.end, "question", 8), 8);
	else
		ck_assert_int_eq(shutdown(p.end, SHUT_RDWR), 0);
	ck_assert_int_eq(reported(), 0);
	session_watch(p.session);
	ck_assert_int_eq(reported(), 1);
	peer_free(&p);
}

/* By the timer, all of them, however many they are. */
TEST(not_for_long)
{
	struct peer peers[MANY];

	for (int i = 0; i < MANY; i++) {
		peers[i] = peer_new();
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

/* An answered peer may ask on, and one that waits may go away for good. One with a grant mostly hangs up. */
TEST_EACH(an_answer, 3)
{
	struct peer p = peer_new();

	switch (_i) {
	case 0:
		session_reply(p.session, WIRE_WAITING, NULL, -1);
		ck_assert(!p.session->waiter.rests);
		break;
	case 1:
		session_would_block(p.session, NULL);
		ck_assert(!p.session->waiter.rests);
		break;
	case 2:
		session_grant(p.session, 1, 1);
		ck_assert(p.session->waiter.rests);
		break;
	}
	peer_free(&p);
}

/* It ends while it rests. */
TEST(an_end)
{
	struct peer p = peer_new();

	listener_rest_begin(p.session);
	peer_free(&p);
	ck_assert(!k.sessions->resting && !k.sessions->rests);
	listener_rest_look(&k);
}
