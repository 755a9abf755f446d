/*
 * The frame of a unit test, and the headers of libc that nearly all of them need. A test registers itself: its file has no list of
 * tests and no main(); suite.c has that. Files that tests make are gone when all have ended: Check runs no teardown after a test that
 * failed, so what is made here is removed by the process that runs the tests.
 */
#ifndef DFLOCK_TESTS_UNIT_SUITE_H
#define DFLOCK_TESTS_UNIT_SUITE_H

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SUITE_PATH_BYTES 64 /* for the path of what is made here */

/* A test, something that is done around tests, or a variant of the suite. */
struct suite_item {
	int order;         /* in its file, and in the headers that this includes */
	const char *name;  /* of a variant */
	const TTest *test; /* or NULL */
	int rounds;
	bool once, variant;
	SFun setup, teardown;
	struct suite_item *next;
};

void suite_add(struct suite_item *item);

#define SUITE_ITEM(name, ...)                                                                                          \
	static struct suite_item suite_item_of_##name = {.order = __COUNTER__, __VA_ARGS__};                           \
	__attribute__((constructor)) static void suite_add_##name(void) { suite_add(&suite_item_of_##name); }

/* TEST_EACH(name, rounds) { ... } is a test that runs for each _i from 0 to rounds - 1, TEST(name) { ... } one that runs once. */
#define TEST_EACH(name, count)                                                                                         \
	static void name##_fn(int _i);                                                                                 \
	static const TTest name = {#name, name##_fn, __FILE__, __LINE__};                                              \
	SUITE_ITEM(name, .test = &name, .rounds = (count))                                                             \
	static void name##_fn(int _i __attribute__((unused)))
#define TEST(name) TEST_EACH(name, 1)
#define ROWS(rows) ((int)(sizeof(rows) / sizeof(*(rows))))

/* Functions (or NULL) that are called before and after each test of the file, or once before and after all of them. */
#define FIXTURE(before, after)      SUITE_ITEM(before##_##after, .setup = before, .teardown = after)
#define FIXTURE_ONCE(before, after) SUITE_ITEM(before##_##after, .once = true, .setup = before, .teardown = after)

/* All tests of the file run once for each of its variants, after choose() was called. */
#define VARIANT(choose) SUITE_ITEM(choose, .name = #choose, .variant = true, .setup = choose)

/*
 * Runs the tests. Returns the exit status. A suite has a main() of its own only if it is also another program; that ends with this.
 * A test may take a minute, or what CK_DEFAULT_TIMEOUT says. With SUITE_FIRST_FAILURE in the environment none begins after one that failed, and with SUITE_ONLY=NAME
 * only this one runs, with SUITE_VARIANT=NAME only in this variant.
 */
int suite_run(void);

/* A new folder in `where`: "/dev/shm", a tmpfs, or "/tmp", where another file system may be. */
void suite_make_folder(char path[SUITE_PATH_BYTES], const char *where);

/* A new file in `where`. Returns a descriptor for reading and writing, with close-on-exec. */
int suite_make_file(char path[SUITE_PATH_BYTES], const char *where);

/* The same on a tmpfs, without a name. */
int suite_nameless_file(void);

/*
 * How many rounds of random input to try. Valgrind (make memcheck) takes thirty times as long: there it is a twentieth of them,
 * since what it adds, values that were never set, shows in each round that comes to the place. The sanitizers look at all rounds.
 */
int suite_rounds(int rounds);

bool suite_under_valgrind(void);

/*
 * fork(): returns in the child at once, with 0, and in the parent when the child has called suite_ready(). The child ends with its
 * parent. One that cannot get ready calls _exit(): then the test fails.
 */
pid_t suite_fork(void);
void suite_ready(void);

/* What most children do then: nothing, until they are killed. */
_Noreturn void suite_rest(void);

#endif
