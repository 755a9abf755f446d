/* Tests of keeper/callers/unwatched.c: what is found out of a connection that epoll does not watch, and when. */
#include <check.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "keeper/callers/dispatch.h"
#include "keeper/callers/session.h"
#include "keeper/callers/unwatched.c"
#include "keeper/clock.h"
#include "keeper/leases/keeper.h"
#include "tests/unit/suite.h"

static struct keeper k;
static uv_loop_t loop;
static struct {
	struct session *s; /* not freed while the test holds it */
	int end;
} callers[SESSIONS_UNWATCHED + 1];
static unsigned count;

static void sends_nothing(struct keeper *keeper)
{
	(void)keeper;
}

static unsigned reaps_nothing(struct keeper *keeper)
{
	(void)keeper;
	return 0;
}

static void setup(void)
{
	static const struct queue_work work = {.send = sends_nothing, .reap = reaps_nothing};

	k = (struct keeper){.loop = &loop, .queue.work = &work};
	count = 0;
	ck_assert_int_eq(uv_loop_init(&loop), 0);
	ck_assert_int_eq(sessions_init(&k), 0);
	ck_assert_int_eq(unwatched_start(&k), 0);
}

static void close_handle(uv_handle_t *handle, void *arg)
{
	(void)arg;
	if (!uv_is_closing(handle))
		uv_close(handle, NULL);
}

static void teardown(void)
{
	for (unsigned i = 0; i < count; i++) {
		dispatch_close(callers[i].s);
		session_unuse(callers[i].s);
		close(callers[i].end);
	}
	uv_walk(&loop, close_handle, NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
	sessions_free(&k);
	unwatched_free(&k);
}

/* One that has asked, and is so far. */
static struct session *comes(enum session_state state)
{
	struct session *s;
	int ends[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	s = session_new(&k, ends[0], &(struct ucred){.pid = getpid()}, false);
	ck_assert_ptr_nonnull(s);
	session_use(s);
	session_enter(s, state);
	s->received_ns = clock_now_ns();
	unwatched_came(&k);
	callers[count].s = s;
	callers[count++].end = ends[1];
	return s;
}

static void hangs_up(unsigned number)
{
	ck_assert_int_eq(shutdown(callers[number].end, SHUT_RDWR), 0);
}

/* The loop turns once, and does not sleep; however slow the machine is, the time is not over. */
static void turns(void)
{
	uv_timer_stop(&k.unwatched->timer);
	uv_run(&loop, UV_RUN_NOWAIT);
}

static int reported(void)
{
	struct epoll_event event;

	return epoll_wait(k.sessions->epoll, &event, 1, 0);
}

START_TEST(a_look)
{
	struct session *gone = comes(SESSION_PINNED), *here = comes(SESSION_PINNED);

	hangs_up(0);
	ck_assert(session_is_left(gone) && !session_is_left(here));
	ck_assert_int_eq(reported(), 0);
	ck_assert_uint_eq(unwatched_look(&k), 1);
	ck_assert(gone->state == SESSION_CLOSED && here->state == SESSION_PINNED && here->watched);
	ck_assert_ptr_null(k.sessions->unwatched);
	ck_assert_uint_eq(k.sessions->unwatched_count, 0);
	ck_assert_uint_eq(unwatched_look(&k), 0);
	ck_assert_int_eq(reported(), 0);
	hangs_up(1);
	ck_assert_int_eq(reported(), 1);
}
END_TEST

/* What came before the look is reported after it. */
START_TEST(a_question_meanwhile)
{
	struct session *s = comes(SESSION_PINNED);

	ck_assert_int_eq(write(callers[0].end, "x", 1), 1);
	ck_assert_int_eq(reported(), 0);
	unwatched_look(&k);
	ck_assert(s->watched);
	ck_assert_int_eq(reported(), 1);
}
END_TEST

/* Nothing waits for it: it stays for a while, but not for ever. */
START_TEST(later)
{
	struct session *gone = comes(SESSION_PINNED), *waits = comes(SESSION_WAITING);
	int64_t until = clock_now_ns() + 10000 * NS_PER_MS;

	hangs_up(0);
	turns();
	ck_assert(gone->state == SESSION_PINNED && waits->state == SESSION_WAITING && !waits->watched);
	unwatched_came(&k);
	while (gone->state != SESSION_CLOSED && clock_now_ns() < until)
		uv_run(&loop, UV_RUN_ONCE);
	ck_assert(gone->state == SESSION_CLOSED && waits->watched);
	uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert(!uv_is_active((uv_handle_t *)&k.unwatched->turn) &&
		  !uv_is_active((uv_handle_t *)&k.unwatched->timer));
}
END_TEST

/* A lease waits for the end of the pin, or a caller for room: before the loop sleeps. */
START_TEST(at_once)
{
	struct session *gone = comes(SESSION_PINNED);
	struct waiter roomless = {.roomless = true};

	hangs_up(0);
	turns();
	ck_assert_int_eq(gone->state, SESSION_PINNED);
	switch (_i) {
	case 0:
		k.lease_states.count[WIRE_RECORD][LEASE_DRAINING] = 1;
		break;
	case 1:
		k.lease_states.count[WIRE_FLOCK][LEASE_BREAKING] = 1;
		break;
	default:
		k.room.roomless = &roomless;
	}
	turns();
	ck_assert_int_eq(gone->state, SESSION_CLOSED);
	k.room.roomless = NULL;
}
END_TEST

/* Only its next words say what it wants. */
START_TEST(silent_so_far)
{
	struct session *s = comes(SESSION_READING), *asked = comes(SESSION_READING);

	s->received_ns = 0;
	turns();
	ck_assert(s->watched && !asked->watched);
	ck_assert_int_eq(write(callers[0].end, "x", 1), 1);
	ck_assert_int_eq(reported(), 1);
}
END_TEST

/* One report: its end wakes nobody again. */
START_TEST(asked_later)
{
	struct session *s = comes(SESSION_READING);

	unwatched_look(&k);
	ck_assert_int_eq(write(callers[0].end, "x", 1), 1);
	ck_assert_int_eq(reported(), 1);
	session_reported(s);
	ck_assert(!s->watched && s->in_epoll);
	session_enter(s, SESSION_PINNED);
	hangs_up(0);
	ck_assert_int_eq(reported(), 0);
	if (_i) {
		ck_assert_uint_eq(unwatched_look(&k), 1);
		return;
	}
	ck_assert_int_eq(session_watch(s), 0);
	ck_assert_int_eq(reported(), 1);
}
END_TEST

START_TEST(many)
{
	for (int i = 0; i < SESSIONS_UNWATCHED; i++)
		ck_assert(!comes(SESSION_PINNED)->watched);
	ck_assert(comes(SESSION_PINNED)->watched);
	hangs_up(3);
	ck_assert_uint_eq(unwatched_look(&k), 1);
	ck_assert_uint_eq(k.sessions->unwatched_count, 0);
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("unwatched");

	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_test(tests, a_look);
	tcase_add_test(tests, a_question_meanwhile);
	tcase_add_test(tests, later);
	tcase_add_loop_test(tests, at_once, 0, 3);
	tcase_add_test(tests, silent_so_far);
	tcase_add_loop_test(tests, asked_later, 0, 2);
	tcase_add_test(tests, many);
	return suite_run_case("unwatched", tests);
}
