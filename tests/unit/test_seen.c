/* shim/seen.c: what may be remembered of a file, and when it is another. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "shim/seen.c"
#include "tests/unit/base_folder.h"
#include "tests/unit/suite.h"

static char path[SUITE_PATH_BYTES + 2], other[SUITE_PATH_BYTES + 2];
static int fd;

static void setup(void)
{
	base_make();
	snprintf(path, sizeof(path), "%s/f", base);
	snprintf(other, sizeof(other), "%s/g", base);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	ck_assert_int_ge(fd, 0);
	memset(seen_table, 0, sizeof(seen_table));
}

static void teardown(void)
{
	close(fd);
	base_remove();
}

/* The key, as soon as the file has not changed for long enough; 10 s are a failure. */
static struct seen_key key_of_an_old_file(void)
{
	struct seen_key key;
	time_t until = time(NULL) + 10;

	while (!seen_key(fd, 1, &key))
		ck_assert_int_lt(time(NULL), until);
	return key;
}

static bool is_seen(const struct seen_key *key)
{
	struct seen seen;

	return seen_find(key, &seen);
}

START_TEST(what_has_just_changed)
{
	struct timespec now;
	struct seen_key key;
	struct stat st;
	bool keyed;

	ck_assert_int_eq(fchmod(fd, 0640), 0);
	keyed = seen_key(fd, 1, &key);
	clock_gettime(CLOCK_REALTIME, &now);
	ck_assert_int_eq(fstat(fd, &st), 0);
	/* On a machine that was slow just then, it was old enough. */
	if ((now.tv_sec - st.st_ctim.tv_sec) * 1000000000 + now.tv_nsec - st.st_ctim.tv_nsec < YOUNG_NS)
		ck_assert(!keyed);
	ck_assert_uint_eq(key.ino, st.st_ino);
	ck_assert_uint_eq(key.dev, st.st_dev);
	ck_assert(key_of_an_old_file().ino == st.st_ino);
}
END_TEST

/* A change time of a whole second means that the file system counts in seconds. */
START_TEST(times_that_tick_slowly)
{
	int64_t now = sys_clock_ns(CLOCK_REALTIME_COARSE);
	struct statx_timestamp t = {.tv_sec = now / 1000000000 - 1, .tv_nsec = 0};

	ck_assert(seen_is_young(&t));
	t.tv_sec -= 3;
	ck_assert(!seen_is_young(&t));
	t.tv_sec += 1000;
	ck_assert(seen_is_young(&t));
	t.tv_nsec = 1;
	ck_assert(seen_is_young(&t));
	t.tv_sec -= 1002;
	ck_assert(!seen_is_young(&t));
}
END_TEST

START_TEST(remembered)
{
	struct seen_key key = key_of_an_old_file(), changed = key;
	struct seen seen = {.page = (const struct page *)&seen_table, .path_hash = 17}, found;

	ck_assert(!is_seen(&key));
	seen_add(&key, &seen);
	ck_assert(seen_find(&key, &found) && found.page == seen.page && found.path_hash == 17);
	changed.stamp_ns++;
	ck_assert(!is_seen(&changed));
	changed = key;
	changed.mount++;
	ck_assert(!is_seen(&changed));
	ck_assert_int_eq(rename(path, other), 0);
	changed = key_of_an_old_file();
	ck_assert(changed.ino == key.ino && !is_seen(&changed));
	ck_assert_int_eq(link(other, path), 0);
	ck_assert(!seen_key(fd, 1, &changed));
}
END_TEST

START_TEST(no_file)
{
	struct seen_key key = {.ino = 1};
	int pipes[2];

	ck_assert_int_eq(pipe(pipes), 0);
	ck_assert(!seen_key(pipes[0], 1, &key) && key.ino == 0 && key.dev == 0);
	close(pipes[0]);
	close(pipes[1]);
	ck_assert(!seen_key(-1, 1, &key) && key.ino == 0);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("seen");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, what_has_just_changed);
	tcase_add_test(tc, times_that_tick_slowly);
	tcase_add_test(tc, remembered);
	tcase_add_test(tc, no_file);
	return suite_run_case("seen", tc);
}
