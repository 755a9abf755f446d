/* keeper/logsink.c: standard error and syslog, also when they are full or away. The journal: test_logsink_journal.c. */
#include "tests/unit/logsink_fixture.h"

/* --- standard error --- */

/* No process reads it: the writer does not wait. */
TEST(a_pipe_that_is_full)
{
	int lines = 0, flags = fcntl(2, F_GETFL);

	logsink_open(&sink, true, "/nowhere", "/nowhere");
	ck_assert_int_eq(fcntl(2, F_GETFL), flags); /* others that share it wait as before */
	while (write_line("some text") == 0)
		ck_assert_int_lt(++lines, 100000);
	ck_assert_int_eq(write_line("more"), -EAGAIN);
	ck_assert_uint_eq(strlen(err_said()), (size_t)lines * strlen("dflockd: some text\n"));
	ck_assert_int_eq(write_line("room"), 0);
}

TEST(a_socket_that_is_full)
{
	int pair[2], lines = 0;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	dup2(pair[1], 2);
	logsink_open(&sink, true, "/nowhere", "/nowhere");
	while (write_line("some text") == 0)
		ck_assert_int_lt(++lines, 100000);
	ck_assert_int_eq(write_line("more"), -EAGAIN);
	close(pair[0]);
	ck_assert_int_eq(write_line("more"), -EPIPE);
	close(pair[1]);
}

/* --- syslog --- */

TEST(syslog_as_datagrams)
{
	inbox = listen_at(socket_path, SOCK_DGRAM);
	logsink_open(&sink, false, "/nowhere", socket_path);
	ck_assert_int_eq(write_line("text"), 0);
	ck_assert(receive());
	ck_assert_str_eq(strstr(message, "]:"), "]: text");
	ck_assert_int_eq(strncmp(message, "<31>", 4), 0);
	ck_assert_ptr_nonnull(strstr(message, " dflockd["));
	while (write_line("full") == 0)
		;
	ck_assert_int_eq(write_line("full"), -EAGAIN);
	ck_assert_str_eq(err_said(), "");
	close(inbox);
	ck_assert_int_eq(write_line("away"), -ECONNREFUSED);
}
