/*
 * Unit tests of keeper/guard/lastwords.c: processes that are stopped, and what is written to their standard error.
 *
 * The race: the process is killed before its line is written. Here the writers are held at the two moments that count: before
 * they have a descriptor of their own, and before they write.
 */
#include <sys/mman.h>

#include "keeper/clock.h"
#include "tests/unit/suite.h"
#include "tests/unit/wait_until.h"

/* Shared with the processes that write. */
static struct {
	volatile bool before_copy, before_write;
} * held;
static pid_t tester;

static void hold(volatile bool *at)
{
	while (getpid() != tester && *at)
		usleep(1000);
}

static int held_statx(int dir, const char *path, int flags, unsigned mask, struct statx *stx)
{
	hold(&held->before_copy);
	return statx(dir, path, flags, mask, stx);
}

static ssize_t held_write(int fd, const void *data, size_t count)
{
	hold(&held->before_write);
	return write(fd, data, count);
}

#define statx(...) held_statx(__VA_ARGS__)
#define write(...) held_write(__VA_ARGS__)
#include "keeper/guard/lastwords.c"
#undef statx
#undef write

static void setup(void)
{
	tester = getpid();
	held = mmap(NULL, sizeof(*held), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(held, MAP_FAILED);
}
FIXTURE(setup, NULL)

#define PATIENT_MS 20000 /* on a machine with too much to do */

/* The same line for all. */
static void say(const pid_t *pids, size_t count, const char *line)
{
	struct lastword words[2] = {{0}};

	for (size_t i = 0; i < count; i++)
		words[i] = (struct lastword){.pid = pids[i], .line = line};
	lastwords(words, count, PATIENT_MS, true);
}

/* A process that has this standard error. */
static pid_t process_with(int fd)
{
	pid_t pid = suite_fork();

	if (pid)
		return pid;
	dup2(fd, 2);
	suite_rest();
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

/* Two processes have a pipe as standard error; where two programs log to one file, each may have a lock of its own. */
TEST_EACH(once_where_it_is_shared, 2)
{
	struct lastword words[2] = {{.line = "the lock was lost"}, {.line = _i ? "another" : "the lock was lost"}};
	char text[256] = "";
	int ends[2];

	new_pipe(ends);
	for (int i = 0; i < 2; i++)
		words[i].pid = process_with(ends[1]);
	lastwords(words, 2, PATIENT_MS, true);
	ck_assert_int_eq(read(ends[0], text, sizeof(text) - 1), _i ? 26 + 16 : 26);
	ck_assert_ptr_nonnull(strstr(text, "dflock: the lock was lost\n"));
	ck_assert(!_i || strstr(text, "dflock: another\n"));
	for (int i = 0; i < 2; i++)
		end(words[i].pid);
}

TEST(a_long_line)
{
	char text[4096] = "", line[3000];
	ssize_t bytes;
	int ends[2];
	pid_t pid;

	memset(line, 'x', sizeof(line));
	line[sizeof(line) - 1] = '\0';
	new_pipe(ends);
	pid = process_with(ends[1]);
	say(&pid, 1, line);
	bytes = read(ends[0], text, sizeof(text));
	ck_assert_int_eq(bytes, 1023);
	ck_assert_int_eq(text[bytes - 1], '\n');
	end(pid);
}

TEST(one_that_is_full_holds_up_nobody)
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
	begun = clock_now_ns();
	say(pids, 2, "x");
	ck_assert_int_lt(clock_now_ns() - begun, 5000 * NS_PER_MS);
	ck_assert_int_eq(read(ends[0], text, sizeof(text)), 10);
	end(pids[0]);
	end(pids[1]);
}

/* The keeper's parent, which may be root, must not write where the process may only read. */
TEST(with_the_rights_of_the_process)
{
	char name[SUITE_PATH_BYTES];
	int fd = suite_make_file(name, "/dev/shm"), read_only = open(name, O_RDONLY | O_CLOEXEC);
	struct stat st;
	pid_t pid = process_with(read_only);

	say(&pid, 1, "x");
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_int_eq(st.st_size, 0);
	end(pid);
	close(fd);
	close(read_only);
	unlink(name);
}

TEST(one_that_has_gone)
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

TEST(one_that_is_killed_before_its_line_is_written)
{
	struct lastword word = {.line = "the lock was lost"};
	int ends[2];
	char text[64] = "";

	new_pipe(ends);
	word.pid = process_with(ends[1]);
	held->before_write = true;
	wait_until(lastwords(&word, 1, 200, false));
	end(word.pid);
	ck_assert_int_eq(read(ends[0], text, sizeof(text)), -1);
	held->before_write = false;
	wait_until(read(ends[0], text, sizeof(text) - 1) == 26);
	ck_assert_str_eq(text, "dflock: the lock was lost\n");
}

/* There is no time: the writer is held until the words are over. The processes that write have ended when the pipe ends. */
static void too_late(const struct lastword *word, bool last)
{
	int writers[2];
	char byte;

	ck_assert_int_eq(pipe2(writers, O_CLOEXEC), 0);
	held->before_copy = true;
	ck_assert(!lastwords(word, 1, 1, last));
	held->before_copy = false; /* the process happens to live on */
	close(writers[1]);
	ck_assert_int_eq(read(writers[0], &byte, 1), 0);
	close(writers[0]);
}

TEST(there_is_no_time)
{
	struct lastword word = {.line = "x"};
	char text[64];
	int ends[2];

	new_pipe(ends);
	word.pid = process_with(ends[1]);
	too_late(&word, false);
	ck_assert_int_eq(read(ends[0], text, sizeof(text)), -1); /* so the next attempt is not the second line */
	ck_assert(lastwords(&word, 1, PATIENT_MS, false));
	ck_assert_int_eq(read(ends[0], text, sizeof(text)), 10);
	too_late(&word, true);
	ck_assert_int_eq(read(ends[0], text, sizeof(text)), 10);
	end(word.pid);
}
