/* keeper/leases/ages.c: the running clock, whose last grant counts, and what the next keeper knows of the grants of one that died. */
#include <poll.h>

#include "keeper/clock.h"
#include "keeper/leases/ages.c"
#include "tests/unit/base_folder.h"
#include "tests/unit/own_mounts.h"

#define MINUTE_NS (60000 * NS_PER_MS)
#define HOUR_NS   (60 * MINUTE_NS)

static struct keeper k;
static struct table table;
static struct file *file;
static struct lock *lock;
static struct lease lease;
static int dir_fd;

/* A keeper with one file, of which it has taken a lease up. */
static void start(int64_t limit_ms, bool leased)
{
	const struct stat st = {.st_dev = 7, .st_ino = 8};
	k = (struct keeper){.dir_fd = dir_fd, .member_count = 1, .members[0].keeper = &k, .table = &table};
	ck_assert_int_eq(file_get(&k.members[0], &st, true, "/srv/f", "f", -1, &file), 0);
	file->kill_after_ms = limit_ms;
	lock = &file->locks[WIRE_FLOCK];
	lease = (struct lease){.lock = lock};
	lock->leases = leased ? &lease : NULL;
	ages_takeup(&k);
}

/* As kill -9 does: nothing of it is undone. */
static void die(void)
{
	struct ages_record all[AGES_RECORDS];
	size_t bytes = k.ages.file ? sizeof(all) : 0;

	memcpy(all, bytes ? k.ages.file->records : all, bytes);
	lock->leases = NULL;
	file_free(file);
	ck_assert_ptr_null(k.ages.locks);
	if (bytes)
		memcpy(k.ages.file->records, all, bytes);
	ages_close(&k);
}

static void next(void)
{
	die();
	start(1000, true);
}

static void setup(void)
{
	base_make();
	dir_fd = base_open();
	start(1000, true);
	ages_tick(&k, false);
}

static void teardown(void)
{
	die();
	close(dir_fd);
	base_remove();
}
FIXTURE(setup, teardown)

static void grant(pid_t pid, uid_t uid) { ages_note_granted(lock, pid, uid, clock_now_ns()); }
static int64_t age_ms(pid_t pid) { return age_ms_of(&k, ages_find(lock, pid)); }

/* So much of the running clock goes by. */
static void run(int64_t ns)
{
	k.ages.ran_ns += ns;
	ages_tick(&k, false);
}

TEST(the_clock_runs)
{
	int64_t before = ages_now_ns(&k), began = clock_now_ns(), ran;

	poll(NULL, 0, 5);
	ages_tick(&k, false);
	poll(NULL, 0, 5);
	ran = ages_now_ns(&k) - before;
	ck_assert(ran >= 9 * NS_PER_MS && ran <= clock_now_ns() - began + NS_PER_MS);
	/* It stands while holders are frozen. */
	ages_tick(&k, true);
	before = ages_now_ns(&k);
	poll(NULL, 0, 5);
	ck_assert_int_eq(ages_now_ns(&k), before);
	ages_tick(&k, false);
	ck_assert(ages_now_ns(&k) - before < 4 * NS_PER_MS);
	/* The machine slept, or the keeper was stopped: there was no tick for an hour. */
	before = ages_now_ns(&k);
	k.ages.last_ns -= HOUR_NS;
	ck_assert_int_eq(ages_now_ns(&k) - k.ages.ran_ns, AGES_TICK_MAX_MS * NS_PER_MS);
	ages_tick(&k, false);
	ck_assert(ages_now_ns(&k) - before < (AGES_TICK_MAX_MS + 1000) * NS_PER_MS);
}

TEST(each_process_has_its_own)
{
	struct age *one, *two;

	grant(1001, 5);
	k.ages.ran_ns += HOUR_NS;
	grant(1002, 5);
	one = ages_find(lock, 1001);
	two = ages_find(lock, 1002);
	ck_assert(one && two && age_ms_of(&k, one) >= 3600 * 1000 && age_ms_of(&k, two) < 1000);
	ck_assert_ptr_null(ages_find(lock, 1003));
	ck_assert_ptr_eq(k.ages.locks, lock);
	/* Who took it is not known: the youngest counts. */
	ck_assert(age_ms(0) < 1000);
	ck_assert_ptr_eq(ages_find(lock, -1), ages_find(lock, 0));
}

/* Whatever has been done about it. While holders are ended the parent has to finish first, and sees by the time that it is a younger one. */
TEST_EACH(a_grant_begins_anew, 2)
{
	struct age *h;

	grant(1001, 5);
	h = ages_find(lock, 1001);
	h->state = _i ? AGE_ENDING : AGE_STUCK;
	h->said = true;
	h->tries = 3;
	h->missed = 2;
	k.ages.ran_ns += HOUR_NS;
	grant(1001, 6);
	ck_assert_ptr_eq(h, ages_find(lock, 1001));
	ck_assert(age_ms(1001) < 1000 && h->state == (_i ? AGE_ENDING : AGE_QUIET) && h->uid == 6);
	ck_assert(_i || (!h->said && !h->tries && !h->missed));
}

/* The caller may take its kernel lock until the end of the pin. */
TEST(the_pin_counts)
{
	ages_note_granted(lock, 1001, 5, clock_now_ns() + HOUR_NS);
	ck_assert(age_ms(1001) < -3500 * 1000);
	ages_note_granted(lock, 1002, 5, clock_now_ns() - HOUR_NS);
	ck_assert(age_ms(1002) < 1000);
}

/* A user could send a lock to another user's process: who took it is not known. */
TEST(several_users)
{
	grant(1001, 5);
	ck_assert_int_eq(ages_find(lock, 0)->uid, 5);
	grant(1002, 5);
	ck_assert_int_eq(ages_find(lock, 0)->uid, 5);
	grant(1003, 0);
	grant(1004, 0);
	ck_assert_uint_eq(ages_find(lock, 0)->uid, LEASE_OF_NOBODY);
	ck_assert_int_eq(ages_find(lock, 1003)->uid, 0);
	ck_assert_int_eq(HASH_COUNT(lock->ages), 5);
	grant(0, 5); /* a process that is not visible in this pid namespace */
	ck_assert_int_eq(HASH_COUNT(lock->ages), 5);
}

TEST(there_is_room_for_so_many)
{
	for (pid_t pid = 1; pid <= AGES_MAX + 5; pid++)
		grant(pid, 5);
	ck_assert_int_eq(HASH_COUNT(lock->ages), AGES_MAX);
	ck_assert_ptr_nonnull(ages_find(lock, 1));
	ck_assert_ptr_null(ages_find(lock, AGES_MAX + 1)); /* nothing is known of it, so nothing is done */
	k.ages.ran_ns += HOUR_NS;
	grant(AGES_MAX + 1, 5);
	ck_assert(age_ms(0) < 1000); /* but it counts for the others */
	ages_drop(lock, ages_find(lock, 1));
	grant(AGES_MAX + 1, 5);
	ck_assert_ptr_nonnull(ages_find(lock, AGES_MAX + 1));
}

/* --- the next keeper --- */

TEST(the_next_keeper_goes_on)
{
	struct age *one;
	int64_t granted_ns;

	grant(1001, 5);
	run(MINUTE_NS);
	ages_note_granted(lock, 1002, 5, clock_now_ns() + MINUTE_NS);
	granted_ns = ages_find(lock, 1002)->granted_ns;
	next();
	one = ages_find(lock, 1001);
	ck_assert(one && age_ms_of(&k, one) >= 60000 && age_ms_of(&k, one) < 70000);
	ck_assert(one->uid == 5 && one->state == AGE_QUIET && one->since > 0);
	ck_assert_int_lt(age_ms(1002), -50000);
	ck_assert_int_eq(ages_find(lock, 1002)->granted_ns, granted_ns);
	ck_assert_int_lt(age_ms(0), -50000);
	ck_assert_ptr_eq(k.ages.locks, lock);
	/* And the one after it, for which one has been granted anew, and one has ended. */
	grant(1001, 5);
	ages_drop(lock, ages_find(lock, 1002));
	next();
	ck_assert_int_lt(age_ms(1001), 10000);
	ck_assert_ptr_null(ages_find(lock, 1002));
}

/* The time without a keeper does not count. */
TEST(the_clock_goes_on_where_it_was)
{
	int64_t before;
	grant(1001, 5);
	run(MINUTE_NS);
	before = ages_now_ns(&k);
	die();
	poll(NULL, 0, 50);
	start(1000, true);
	ck_assert_int_lt(ages_now_ns(&k) - before, 40 * NS_PER_MS);
}

static const struct {
	int64_t limit_ms;
	bool leased, long_ago;
} others[] = {{0, true, false}, {1000, false, false}, {1000, true, true}};

/* The rule has no limit any more, or no lease was taken up: later locks may be taken without a grant. Or a keeper of another version may
 * have served since. */
TEST_EACH(what_does_not_count_any_more, ROWS(others))
{
	grant(1001, 5);
	if (others[_i].long_ago)
		k.ages.file->ticked_ns = k.ages.last_ns -= 2 * MINUTE_NS;
	die();
	start(others[_i].limit_ms, others[_i].leased);
	ck_assert_ptr_null(lock->ages);
	next();
	ck_assert_ptr_null(lock->ages);
}

/* The keeper died in the middle of writing it. */
TEST(half_written)
{
	int fd;

	grant(1001, 5);
	die();
	fd = openat(dir_fd, AGES_NAME, O_RDWR | O_CLOEXEC);
	for (off_t at = 0; at < 4096; at++) { /* the times of a grant that came before */
		struct ages_record r;

		if (pread(fd, &r, sizeof(r), at) == sizeof(r) && r.dev == 7 && r.ino == 8 && r.pid == 1001) {
			r.at_ns -= MINUTE_NS;
			ck_assert_int_eq(pwrite(fd, &r, sizeof(r), at), sizeof(r));
		}
	}
	close(fd);
	start(1000, true);
	ck_assert_ptr_null(ages_find(lock, 1001));
	ck_assert_ptr_nonnull(ages_find(lock, 0));
}

static const char *const void_files[] = {"", "x", "of another version, or another boot"};

TEST_EACH(another_file_is_void, 3)
{
	int fd;

	grant(1001, 5);
	die();
	fd = openat(dir_fd, AGES_NAME, O_RDWR | O_CLOEXEC);
	if (strlen(void_files[_i]) < 2)
		ck_assert_int_eq(ftruncate(fd, 0), 0);
	ck_assert_int_eq(write(fd, void_files[_i], strlen(void_files[_i])), (ssize_t)strlen(void_files[_i]));
	close(fd);
	start(1000, true);
	ck_assert_ptr_null(lock->ages);
	grant(1002, 5); /* it is made anew */
	next();
	ck_assert_ptr_nonnull(ages_find(lock, 1002));
}

TEST(there_is_room_for_so_many_to_be_kept)
{
	struct ages_record *all;
	size_t free_at = 0;

	grant(1001, 5); /* and for any process: two records */
	all = k.ages.file->records;
	for (size_t i = 0; i < AGES_RECORDS; i++)
		if (!all[i].sum)
			all[free_at = i] = (struct ages_record){.dev = 1, .ino = 2, .pid = 3, .sum = 1};
	grant(1002, 5); /* not kept, and no other one is overwritten */
	ck_assert_ptr_null(ages_find(lock, 1002)->kept);
	all[free_at].sum = 0;
	grant(1003, 5);
	ck_assert_ptr_eq(ages_find(lock, 1003)->kept, &all[free_at]);
	die();
	start(1000, true); /* drops all that is of no file that it knows */
	ck_assert_ptr_nonnull(ages_find(lock, 1001));
	ck_assert_ptr_null(ages_find(lock, 1002));
	grant(1002, 5);
	ck_assert_ptr_nonnull(ages_find(lock, 1002)->kept);
}

/* Nothing is left that the next keeper would map: to touch it would be SIGBUS. */
TEST(there_is_no_memory)
{
	struct keeper other = {.dir_fd = -1};
	struct stat st;
	int full;

	own_mounts();
	ck_assert_int_eq(mount("none", base, "tmpfs", 0, "size=64k"), 0);
	other.dir_fd = full = base_open();
	ck_assert_int_eq(ages_open(&other, true), -ENOSPC);
	ck_assert_int_eq(fstatat(full, AGES_NAME, &st, 0), 0);
	ck_assert_int_eq(st.st_size, 0);
	ck_assert_int_eq(ages_open(&other, false), -ENOENT);
	/* As an earlier version left it. */
	ck_assert_int_eq(truncate(in_base(AGES_NAME), sizeof(struct ages_file)), 0);
	ck_assert_int_eq(ages_open(&other, false), -ENOSPC);
	close(full);
	ck_assert_int_eq(umount(base), 0);
}
