/*
 * The frame of a unit test: how main() ends, and files that are gone when it has ended. Check runs no teardown after a test that
 * failed; so what is made here is removed by the process that runs the tests, when all have run.
 */
#ifndef DFLOCK_TESTS_UNIT_SUITE_H
#define DFLOCK_TESTS_UNIT_SUITE_H

#include <check.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SUITE_PATH_BYTES 64 /* for the path of what is made here */

/* The process that runs the tests: its number is in all names, which tests in processes of their own choose. */
static pid_t suite_pid;

__attribute__((constructor)) static void suite_begin(void)
{
	suite_pid = getpid();
}

static inline void suite_template(char path[SUITE_PATH_BYTES], const char *where)
{
	snprintf(path, SUITE_PATH_BYTES, "%s/dflock-test-%d-XXXXXX", where, (int)suite_pid);
}

/* A new folder in `where`: "/dev/shm", a tmpfs, or "/tmp", where another file system may be. */
static inline void suite_make_folder(char path[SUITE_PATH_BYTES], const char *where)
{
	suite_template(path, where);
	ck_assert_msg(mkdtemp(path) != NULL, "%s: %m", path);
}

/* A new file in `where`. Returns a descriptor for reading and writing, with close-on-exec. */
static inline int suite_make_file(char path[SUITE_PATH_BYTES], const char *where)
{
	int fd;

	suite_template(path, where);
	fd = mkostemp(path, O_CLOEXEC);
	ck_assert_msg(fd >= 0, "%s: %m", path);
	return fd;
}

/* The same on a tmpfs, without a name. */
static inline int suite_nameless_file(void)
{
	char path[SUITE_PATH_BYTES];
	int fd = suite_make_file(path, "/dev/shm");

	ck_assert_int_eq(unlink(path), 0);
	return fd;
}

/*
 * How many rounds of random input to try. Valgrind (make memcheck) takes thirty times as long: there it is a twentieth of them,
 * since what it adds, values that were never set, shows in each round that comes to the place. The sanitizers look at all rounds.
 */
static inline int suite_rounds(int rounds)
{
	return getenv("SUITE_FEW_ROUNDS") ? rounds / 20 : rounds;
}

/* Removes what tests that failed have left behind. Returns whether that succeeded. */
static inline bool suite_clean(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf /dev/shm/dflock-test-%d-* /tmp/dflock-test-%d-*", (int)suite_pid,
		 (int)suite_pid);
	return system(command) == 0;
}

/* Runs the tests, and frees them. Returns the exit status: for the end of main(). */
static inline int suite_run(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	int failed;

	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return suite_clean() && !failed ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* The same for a suite of one case. */
static inline int suite_run_case(const char *name, TCase *tests)
{
	Suite *suite = suite_create(name);

	suite_add_tcase(suite, tests);
	return suite_run(suite);
}

#endif
