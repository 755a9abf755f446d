/* Unit tests of keeper/guard/lastwords.c: processes that are stopped, and what is written to their standard error. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "keeper/clock.h"
#include "keeper/guard/lastwords.h"
#include "tests/unit/suite.h"
#include "tests/unit/wait_until.h"

/* The same line for all. */
static void say(const pid_t *pids, size_t count, const char *line)
{
	struct lastword words[2];

	for (size_t i = 0; i < count; i++)
		words[i] = (struct lastword){.pid = pids[i], .line = line};
	lastwords(words, count, LASTWORDS_MS);
}

/* A process that only has this standard error. */
static pid_t process_with(int fd)
{
	pid_t pid = fork();

	if (pid == 0) {
		dup2(fd, 2);
		for (;;)
			pause();
	}
	ck_assert_int_gt(pid, 0);
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void new_pipe(int ends[2])
{
	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	ck_assert_int_eq(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
}

/* The child may not have replaced its descriptor 2 so far: waits until it has. */
static void wait_until_it_has(pid_t pid, int fd)
{
	char path[64];
	struct stat mine, its;

	snprintf(path, sizeof(path), "/proc/%d/fd/2", (int)pid);
	ck_assert_int_eq(fstat(fd, &mine), 0);
	wait_until(stat(path, &its) == 0 && its.st_dev == mine.st_dev && its.st_ino == mine.st_ino);
}

START_TEST(once_where_it_is_shared)
{
	int ends[2];
	char text[256] = "";
	pid_t pids[2];

	new_pipe(ends);
	for (int i = 0; i < 2; i++) {
		pids[i] = process_with(ends[1]);
		wait_until_it_has(pids[i], ends[1]);
	}
	say(pids, 2, "the lock was lost");
	ck_assert_int_eq(read(ends[0], text, sizeof(text) - 1), 26);
	ck_assert_str_eq(text, "dflock: the lock was lost\n");
	ck_assert_int_eq(read(ends[0], text, sizeof(text)), -1);
	ck_assert_int_eq(errno, EAGAIN);
	end(pids[0]);
	end(pids[1]);
}
END_TEST

/* Two programs that log to the same file, each with a lock of its own. */
START_TEST(each_its_own_line)
{
	int ends[2];
	char text[256] = "";
	struct lastword words[2];

	new_pipe(ends);
	for (int i = 0; i < 2; i++) {
		words[i] = (struct lastword){.pid = process_with(ends[1]), .line = i ? "two" : "one"};
		wait_until_it_has(words[i].pid, ends[1]);
	}
	lastwords(words, 2, LASTWORDS_MS);
	ck_assert_int_eq(read(ends[0], text, sizeof(text) - 1), 24);
	ck_assert_ptr_nonnull(strstr(text, "dflock: one\n"));
	ck_assert_ptr_nonnull(strstr(text, "dflock: two\n"));
	end(words[0].pid);
	end(words[1].pid);
}
END_TEST

START_TEST(a_long_line)
{
	int ends[2];
	char text[4096] = "", line[3000];
	ssize_t bytes;
	pid_t pid;

	memset(line, 'x', sizeof(line));
	line[sizeof(line) - 1] = '\0';
	new_pipe(ends);
	pid = process_with(ends[1]);
	wait_until_it_has(pid, ends[1]);
	say(&pid, 1, line);
	bytes = read(ends[0], text, sizeof(text));
	ck_assert_int_eq(bytes, 1023);
	ck_assert_int_eq(text[bytes - 1], '\n');
	end(pid);
}
END_TEST

START_TEST(one_that_is_full_holds_up_nobody)
{
	int full[2], ends[2];
	char text[256] = "";
	pid_t pids[2];
	int64_t begun;

	new_pipe(full);
	new_pipe(ends);
	ck_assert_int_eq(fcntl(full[1], F_SETFL, O_NONBLOCK), 0);
	while (write(full[1], "x", 1) == 1)
		;
	ck_assert_int_eq(fcntl(full[1], F_SETFL, 0), 0);
	pids[0] = process_with(full[1]);
	pids[1] = process_with(ends[1]);
	wait_until_it_has(pids[0], full[1]);
	wait_until_it_has(pids[1], ends[1]);
	begun = clock_now_ns();
	say(pids, 2, "x");
	ck_assert_int_lt(clock_now_ns() - begun, 5000 * NS_PER_MS);
	ck_assert_int_eq(read(ends[0], text, sizeof(text)), 10);
	end(pids[0]);
	end(pids[1]);
}
END_TEST

/* The keeper's parent, which may be root, must not write where the process may only read. */
START_TEST(with_the_rights_of_the_process)
{
	char name[SUITE_PATH_BYTES];
	int fd = suite_make_file(name, "/dev/shm"), read_only = open(name, O_RDONLY | O_CLOEXEC);
	struct stat st;
	pid_t pid = process_with(read_only);

	wait_until_it_has(pid, read_only);
	say(&pid, 1, "x");
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_int_eq(st.st_size, 0);
	end(pid);
	close(fd);
	close(read_only);
	unlink(name);
}
END_TEST

START_TEST(one_that_has_gone)
{
	pid_t pid = process_with(1);

	pid_t reader[1] = {getpid()};
	int ends[2], saved = dup(2);
	char text[16];

	end(pid);
	say(&pid, 1, "x");
	say(NULL, 0, "x");
	/* No other process got a line. */
	new_pipe(ends);
	dup2(ends[1], 2);
	say(&pid, 1, "x");
	ck_assert_int_eq(read(ends[0], text, sizeof(text)), -1);
	say(reader, 1, "");
	ck_assert_int_eq(read(ends[0], text, sizeof(text)), 9);
	dup2(saved, 2);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("lastwords");

	tcase_add_test(tcase, once_where_it_is_shared);
	tcase_add_test(tcase, each_its_own_line);
	tcase_add_test(tcase, a_long_line);
	tcase_add_test(tcase, one_that_is_full_holds_up_nobody);
	tcase_add_test(tcase, with_the_rights_of_the_process);
	tcase_add_test(tcase, one_that_has_gone);
	return suite_run_case("lastwords", tcase);
}
