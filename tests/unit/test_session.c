/* Tests of keeper/callers/session.c: what becomes of a connection in epoll. */
#include <check.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "keeper/callers/session.h"
#include "keeper/leases/keeper.h"
#include "tests/unit/suite.h"

static struct keeper k;
static uv_loop_t loop;
static int ends[2];

static void setup(void)
{
	k = (struct keeper){.loop = &loop};
	ck_assert_int_eq(uv_loop_init(&loop), 0);
	ck_assert_int_eq(sessions_init(&k), 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
}

static void teardown(void)
{
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
	sessions_free(&k);
	close(ends[1]);
}

static int reported(void)
{
	struct epoll_event event;

	return epoll_wait(k.sessions->epoll, &event, 1, 0);
}

/* A process that is being forked off the keeper, or a front, has a copy: close() alone leaves it in epoll. */
START_TEST(one_that_has_ended_is_not_reported)
{
	const bool foreign = _i;
	struct session *s = session_new(&k, ends[0], &(struct ucred){.pid = 4711}, foreign);
	int copy = dup(ends[0]);

	ck_assert_ptr_nonnull(s);
	ck_assert_int_eq(reported(), 0);
	ck_assert_int_eq(write(ends[1], "x", 1), 1);
	ck_assert_int_eq(reported(), 1);
	session_end(s);
	close(ends[0]);
	ck_assert_int_eq(write(ends[1], "x", 1), 1);
	ck_assert_int_eq(reported(), 0);
	close(copy);
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("session");

	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_loop_test(tests, one_that_has_ended_is_not_reported, 0, 2);
	return suite_run_case("session", tests);
}
