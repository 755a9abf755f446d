/* Tests of keeper/callers/session.c: what becomes of a connection in epoll. */
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "keeper/callers/session.h"
#include "keeper/kernel/hook.h"
#include "keeper/leases/keeper.h"
#include "tests/unit/suite.h"

static struct keeper k;
static uv_loop_t loop;
static int ends[2];

static void setup(void)
{
	k = (struct keeper){.member_count = 1, .members[0].keeper = &k, .loop = &loop};
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
FIXTURE(setup, teardown)

static int reported(void)
{
	struct epoll_event event;

	return epoll_wait(k.sessions->epoll, &event, 1, 0);
}

/* A process that is being forked off the keeper, or a front, has a copy: close() alone leaves it in epoll. Else there is none:
 * close() does. */
TEST_EACH(one_that_has_ended_is_not_reported, 3)
{
	const bool foreign = _i == 1, forked = _i == 2;
	struct session *s = session_new(&k, ends[0], &(struct ucred){.pid = 4711}, foreign);
	int copy = foreign || forked ? dup(ends[0]) : -1;

	ck_assert_ptr_nonnull(s);
	session_watch(s);
	if (forked)
		copies_begin();
	ck_assert_int_eq(reported(), 0);
	ck_assert_int_eq(write(ends[1], "x", 1), 1);
	ck_assert_int_eq(reported(), 1);
	session_end(s);
	close(ends[0]);
	ck_assert_int_eq(send(ends[1], "x", 1, MSG_NOSIGNAL), copy >= 0 ? 1 : -1);
	ck_assert_int_eq(reported(), 0);
	if (copy >= 0)
		close(copy);
}

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
	struct session *s = session_new(&k, ends[0], &(struct ucred){.pid = getpid()}, false);

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		memcpy(s->request.command, all[i].said, WIRE_COMMAND_BYTES);
		session_command(s, shown);
		ck_assert_str_eq(shown, all[i].shown);
	}
	/* A program that says nothing. */
	memset(s->request.command, 0, sizeof(s->request.command));
	session_command(s, shown);
	prctl(PR_GET_NAME, own);
	ck_assert_str_eq(shown, own);
	session_end(s);
	close(ends[0]);
}

TEST(counts)
{
	struct session *s = session_new(&k, ends[0], &(struct ucred){.pid = 4711}, false);

	ck_assert_uint_eq(k.sessions->accepted, 1);
	s->request.space = WIRE_RECORD;
	session_enter(s, SESSION_WAITING);
	ck_assert_uint_eq(k.sessions->waiting[WIRE_RECORD], 1);
	session_enter(s, SESSION_PINNED);
	ck_assert_uint_eq(k.sessions->waiting[WIRE_RECORD], 0);
	session_enter(s, SESSION_WAITING);
	session_end(s);
	close(ends[0]);
	ck_assert_uint_eq(k.sessions->waiting[WIRE_RECORD], 0);
	ck_assert_uint_eq(k.sessions->counts.abandoned, 1);
	ck_assert_uint_eq(k.sessions->accepted, 1);
	ck_assert_uint_eq(k.sessions->count, 0);
}

TEST(unread)
{
	struct session *s = session_new(&k, ends[0], &(struct ucred){.pid = 4711}, false);
	char answer[2000];

	ck_assert(!session_has_unread(s));
	ck_assert_int_eq(write(ends[1], "question", 8), 8); /* of the peer: does not count */
	ck_assert(!session_has_unread(s));
	session_reply(s, WIRE_OK, NULL, -1);
	ck_assert(session_has_unread(s));
	ck_assert_int_gt(read(ends[1], answer, sizeof(answer)), 0);
	ck_assert(!session_has_unread(s));
	session_end(s);
	close(ends[0]);
}
