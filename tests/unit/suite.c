/* The frame of each unit test: its main(), and what suite.h declares. */
#include "tests/unit/suite.h"

#include <sys/prctl.h>
#include <sys/stat.h>

/* The process that runs the tests: its number is in all names, which tests in processes of their own choose. */
static pid_t suite_pid;
static struct suite_item *items; /* in their order */

__attribute__((constructor)) static void suite_begin(void) { suite_pid = getpid(); }

void suite_add(struct suite_item *item)
{
	struct suite_item **at = &items;
	while (*at && (*at)->order < item->order)
		at = &(*at)->next;
	item->next = *at;
	*at = item;
}

/* A test that hangs must not outlive the suite, which may be killed before Check ends the test. */
static void end_with_suite(void) { prctl(PR_SET_PDEATHSIG, SIGKILL); }

/* All tests, or one round of one, in this variant, or without one. */
static void add_case(Suite *suite, const struct suite_item *only, int round, const struct suite_item *variant)
{
	TCase *tests = tcase_create("tests");

	tcase_add_checked_fixture(tests, end_with_suite, NULL);
	for (struct suite_item *item = items; item; item = item->next) {
		if (item->test) {
			if (!only)
				_tcase_add_test(tests, item->test, 0, 0, 0, item->rounds);
			else if (item == only)
				_tcase_add_test(tests, item->test, 0, 0, round, round + 1);
		} else if (!item->variant && !item->once)
			tcase_add_checked_fixture(tests, item->setup, item->teardown);
		else if (item->once || item == variant)
			tcase_add_unchecked_fixture(tests, item->setup, item->teardown);
	}
	suite_add_tcase(suite, tests);
}

/* Returns how many have failed. */
static int run(const struct suite_item *only, int round)
{
	const char *only_variant = getenv("SUITE_VARIANT");
	Suite *suite = suite_create(program_invocation_short_name);
	SRunner *runner = srunner_create(suite);
	bool varies = false;
	int failed;

	for (const struct suite_item *item = items; item; item = item->next)
		if (item->variant && (!only_variant || strcmp(item->name, only_variant) == 0)) {
			add_case(suite, only, round, item);
			varies = true;
		}
	if (!varies && !only_variant)
		add_case(suite, only, round, NULL);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	if (srunner_ntests_run(runner) == 0)
		failed = fprintf(stderr, "there is no variant %s\n", only_variant ? only_variant : "");
	srunner_free(runner);
	return failed;
}

/* Removes what tests that failed have left behind. Returns whether that succeeded. */
static bool clean(void)
{
	char command[128];
	snprintf(command, sizeof(command), "rm -rf /dev/shm/dflock-test-%d-* /tmp/dflock-test-%d-*", (int)suite_pid,
		 (int)suite_pid);
	return system(command) == 0;
}

static int clean_after(int failed) { return clean() && !failed ? EXIT_SUCCESS : EXIT_FAILURE; }

int suite_run(void)
{
	const char *only = getenv("SUITE_ONLY");
	int failed = 0, ran = 0;

	setenv("CK_DEFAULT_TIMEOUT", "60", false);
	umask(022); /* what a group may write to is refused, and a user may have 002 */
	if (!only && !getenv("SUITE_FIRST_FAILURE"))
		return clean_after(run(NULL, 0));
	for (const struct suite_item *item = items; item && !failed; item = item->next)
		for (int i = 0;
		     item->test && (!only || strcmp(item->test->name, only) == 0) && i < item->rounds && !failed;
		     i++, ran++)
			failed = run(item, i);
	if (!ran)
		fprintf(stderr, "there is no test %s\n", only ? only : "");
	return clean_after(failed || !ran);
}

__attribute__((weak)) int main(void) { return suite_run(); }

static void suite_template(char path[SUITE_PATH_BYTES], const char *where)
{
	snprintf(path, SUITE_PATH_BYTES, "%s/dflock-test-%d-XXXXXX", where, (int)suite_pid);
}

void suite_make_folder(char path[SUITE_PATH_BYTES], const char *where)
{
	suite_template(path, where);
	ck_assert_msg(mkdtemp(path) != NULL, "%s: %m", path);
}

int suite_make_file(char path[SUITE_PATH_BYTES], const char *where)
{
	int fd;
	suite_template(path, where);
	fd = mkostemp(path, O_CLOEXEC);
	ck_assert_msg(fd >= 0, "%s: %m", path);
	return fd;
}

int suite_nameless_file(void)
{
	char path[SUITE_PATH_BYTES];
	int fd = suite_make_file(path, "/dev/shm");
	ck_assert_int_eq(unlink(path), 0);
	return fd;
}

static int ready_fd = -1; /* of a child */

pid_t suite_fork(void)
{
	int ready[2];
	char byte;
	pid_t pid;

	ck_assert_int_eq(pipe2(ready, O_CLOEXEC), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(ready[0]);
		ready_fd = ready[1];
		return 0;
	}
	close(ready[1]);
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return pid;
}

void suite_ready(void)
{
	if (write(ready_fd, "r", 1) != 1)
		_exit(1);
	close(ready_fd);
}

_Noreturn void suite_rest(void)
{
	suite_ready();
	for (;;)
		pause();
}

bool suite_under_valgrind(void)
{
	const char *preload = getenv("LD_PRELOAD");
	return preload && strstr(preload, "vgpreload");
}

int suite_rounds(int rounds) { return getenv("SUITE_FEW_ROUNDS") ? rounds / 20 : rounds; }
