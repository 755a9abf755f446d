/* shim/recent.c: what may be remembered of a file, and when it is another. */
#include "shim/recent.c"
#include "tests/unit/base_folder.h"

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
FIXTURE(setup, teardown)

/* As protect.c does: the key of a look that found nothing. */
static struct recent_key key_now(void)
{
	struct recent_key key;

	ck_assert(recent_key(fd, 1, &key));
	recent_look(&key);
	return key;
}

/* The key, as soon as the file has not changed for long enough; 10 s are a failure. */
static struct recent_key key_of_an_old_file(void)
{
	struct recent_key key = key_now();
	time_t until = time(NULL) + 10;

	for (; key.young; key = key_now())
		ck_assert_int_lt(time(NULL), until);
	return key;
}

static const struct recent answer = {.page = (const struct page *)&seen_table, .path_hash = 17};

static bool finds(bool (*find)(const struct recent_key *, struct recent *), const struct recent_key *key)
{
	struct recent seen = {0};
	bool found = find(key, &seen);

	ck_assert(!found || (seen.page == answer.page && seen.path_hash == answer.path_hash));
	return found;
}

static bool is_seen(const struct recent_key *key) { return finds(recent_find, key); }
/* Is the answer at hand if the path is read and is the same? */
static bool is_seen_by_path(const struct recent_key *key) { return finds(recent_find_path, key); }
static bool is_seen_at_all(const struct recent_key *key) { return is_seen(key) || is_seen_by_path(key); }

TEST(what_has_just_changed)
{
	struct timespec now;
	struct recent_key key;
	struct stat st;

	ck_assert_int_eq(fchmod(fd, 0640), 0);
	key = key_now();
	clock_gettime(CLOCK_REALTIME, &now);
	ck_assert_int_eq(fstat(fd, &st), 0);
	/* On a machine that was slow just then, it was old enough. */
	if ((now.tv_sec - st.st_ctim.tv_sec) * 1000000000 + now.tv_nsec - st.st_ctim.tv_nsec < YOUNG_NS)
		ck_assert(key.young);
	ck_assert_uint_eq(key.ino, st.st_ino);
	ck_assert_uint_eq(key.dev, st.st_dev);
	ck_assert(key_of_an_old_file().ino == st.st_ino);
}

/* A change time of a whole second means that the file system counts in seconds. */
TEST(times_that_tick_slowly)
{
	const int64_t second = 1000000000;
	int64_t t = (sys_clock_ns(CLOCK_REALTIME_COARSE) / second - 1) * second;

	ck_assert(recent_is_young(t));
	t -= 3 * second;
	ck_assert(!recent_is_young(t));
	t += 1000 * second;
	ck_assert(recent_is_young(t));
	t += 1;
	ck_assert(recent_is_young(t));
	t -= 1002 * second;
	ck_assert(!recent_is_young(t));
}

TEST(remembered)
{
	struct recent_key key = key_of_an_old_file(), changed = key;

	ck_assert(!is_seen_at_all(&key));
	recent_add(&key, &answer);
	ck_assert(is_seen(&key) && is_seen_by_path(&key));
	changed.stamp_ns++;
	ck_assert(!is_seen_at_all(&changed));
	changed = key;
	changed.mount++;
	ck_assert(!is_seen_at_all(&changed));
	ck_assert_int_eq(rename(path, other), 0);
	changed = key_now();
	ck_assert(changed.ino == key.ino && !is_seen(&changed) && is_seen_by_path(&changed));
	ck_assert_int_eq(link(other, path), 0);
	ck_assert(!recent_key(fd, 1, &changed));
}

/* An answer for a file without a path, or one whose path is too long, is found by its change time only. */
TEST(without_a_path)
{
	struct recent_key key = key_of_an_old_file();
	const struct recent pathless = {.path_hash = 0};
	struct recent seen;

	recent_add(&key, &pathless);
	ck_assert(recent_find(&key, &seen) && !seen.page);
	ck_assert(!recent_find_path(&key, &seen));
}

TEST(forgotten)
{
	struct recent_key key = key_of_an_old_file(), later = key;

	recent_forget(); /* while this thread reads the path */
	recent_add(&key, &answer);
	later = key_now();
	ck_assert(!is_seen_at_all(&later));
	recent_add(&later, &answer);
	ck_assert(is_seen(&later));
	recent_forget();
	later = key_now();
	ck_assert(!is_seen_at_all(&later));
}

/* However soon a rename follows on a look that followed on a write: the look does not count any more. */
TEST(renamed_just_after_a_look)
{
	struct recent_key key, changed;

	for (int i = 0; i < 2000; i++) {
		ck_assert_int_eq(write(fd, "x", 1), 1);
		key = key_now();
		recent_add(&key, &answer);
		ck_assert_int_eq(rename(i % 2 ? other : path, i % 2 ? path : other), 0);
		ck_assert(recent_key(fd, 1, &changed));
		ck_assert(!is_seen(&changed));
	}
}

/* The look at a young file tells nothing but its path. */
TEST(a_young_look)
{
	struct recent_key key;

	ck_assert_int_eq(write(fd, "x", 1), 1);
	key = key_now();
	key.young = true;
	recent_add(&key, &answer);
	ck_assert(!is_seen(&key) && is_seen_by_path(&key));
}

TEST(no_file)
{
	struct recent_key key = {.ino = 1};
	int pipes[2];

	ck_assert_int_eq(pipe(pipes), 0);
	ck_assert(!recent_key(pipes[0], 1, &key) && key.ino == 0 && key.dev == 0);
	close(pipes[0]);
	close(pipes[1]);
	ck_assert(!recent_key(-1, 1, &key) && key.ino == 0);
}
