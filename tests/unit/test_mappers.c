/* keeper/kernel/mappers.c: the processes that have a file mapped, and no others. */
#include "keeper/kernel/census.h"

#include <sys/mman.h>
#include <sys/prctl.h>

#include "tests/unit/suite.h"

#define FILES 3

static struct holders_file files[FILES];
static int fds[FILES];
static unsigned seen[FILES];
static pid_t mapper; /* one of those that were seen */

static void setup(void)
{
	for (int i = 0; i < FILES; i++) {
		struct stat st;

		fds[i] = suite_nameless_file();
		ck_assert_int_eq(ftruncate(fds[i], 8192), 0);
		ck_assert_int_eq(fstat(fds[i], &st), 0);
		files[i] = (struct holders_file){.dev = st.st_dev, .ino = st.st_ino};
		seen[i] = 0;
	}
}

static void teardown(void)
{
	for (int i = 0; i < FILES; i++)
		close(fds[i]);
}
FIXTURE(setup, teardown)

static int on_mapper(void *arg, size_t file, pid_t pid)
{
	ck_assert_uint_lt(file, FILES);
	seen[file]++;
	mapper = pid;
	return *(int *)arg;
}

static int find(int cb_returns)
{
	size_t passed_over;
	int ret;

	/* On a busy machine a process may be passed over for nothing: Check's own time limit ends this. */
	do {
		memset(seen, 0, sizeof(seen));
		ret = mappers_find(files, FILES, on_mapper, &cb_returns, &passed_over);
	} while (passed_over);
	return ret;
}

TEST(in_another_process)
{
	pid_t pid = suite_fork();

	if (pid == 0) {
		for (int i = 0; i < 2; i++) /* two pieces with different rights: two lines */
			if (mmap(NULL, 4096, i ? PROT_READ : PROT_NONE, MAP_SHARED, fds[1], i * 4096) == MAP_FAILED)
				_exit(1);
		suite_rest();
	}
	ck_assert_int_eq(find(0), 0);
	ck_assert_uint_eq(seen[0], 0);
	ck_assert_uint_ge(seen[1], 1);
	ck_assert_uint_eq(seen[2], 0);
	ck_assert_int_eq(mapper, pid);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	ck_assert_int_eq(find(0), 0);
	ck_assert_uint_eq(seen[1], 0);
}

TEST(the_callback_ends_it)
{
	void *at[FILES];

	for (int i = 0; i < FILES; i++)
		at[i] = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fds[i], 0);
	ck_assert_int_eq(find(7), 7);
	ck_assert_uint_eq(seen[0] + seen[1] + seen[2], 1);
	ck_assert_int_eq(find(0), 0);
	for (int i = 0; i < FILES; i++) {
		ck_assert_uint_ge(seen[i], 1);
		munmap(at[i], 4096);
	}
}
