/* Tests of keeper/leases/ages.c: the running clock, and whose last grant counts. */
#include "keeper/clock.h"
#include "keeper/leases/ages.h"
#include "keeper/leases/keeper.h"
#include "tests/unit/base_folder.h"

#define HOUR_NS (3600 * 1000 * NS_PER_MS)

static struct keeper k;
static struct table table;
static struct file file;
static struct lock *lock;

static void setup(void)
{
	base_make();
	k = (struct keeper){.member_count = 1, .members[0].keeper = &k, .dir_fd = base_open(), .table = &table};
	file = (struct file){.keeper = &k};
	lock = &file.locks[WIRE_FLOCK];
	lock->file = &file;
	ages_tick(&k, false);
}

static void teardown(void)
{
	ages_drop_all(lock);
	ck_assert_ptr_null(lock->ages);
	ck_assert_ptr_null(k.ages.locks);
	ages_close(&k);
	close(k.dir_fd);
	base_remove();
}
FIXTURE(setup, teardown)

static void pause_ms(long ms)
{
	const struct timespec t = {.tv_nsec = ms * NS_PER_MS};

	nanosleep(&t, NULL);
}

static void grant(pid_t pid, uid_t uid) { ages_note_granted(lock, pid, uid, clock_now_ns()); }

TEST(the_clock_runs)
{
	int64_t before = ages_now_ns(&k), began = clock_now_ns(), ran;

	pause_ms(5);
	ages_tick(&k, false);
	pause_ms(5);
	ran = ages_now_ns(&k) - before;
	ck_assert(ran >= 9 * NS_PER_MS && ran <= clock_now_ns() - began + NS_PER_MS);
}

TEST(the_clock_stands_while_holders_are_frozen)
{
	int64_t before;

	ages_tick(&k, true);
	before = ages_now_ns(&k);
	pause_ms(5);
	ck_assert_int_eq(ages_now_ns(&k), before);
	ages_tick(&k, false);
	ck_assert(ages_now_ns(&k) - before < 4 * NS_PER_MS);
}

/* The machine slept, or the keeper was stopped: there was no tick for an hour. */
TEST(time_without_ticks_does_not_count)
{
	int64_t before = ages_now_ns(&k);

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
	ck_assert(age_ms_of(&k, ages_find(lock, 0)) < 1000);
	ck_assert_ptr_eq(ages_find(lock, -1), ages_find(lock, 0));
}

/* Whatever has been done about it. */
TEST(a_grant_begins_anew)
{
	struct age *h;

	grant(1001, 5);
	h = ages_find(lock, 1001);
	h->state = AGE_STUCK;
	h->said = true;
	h->tries = 3;
	h->missed = 2;
	k.ages.ran_ns += HOUR_NS;
	grant(1001, 6);
	ck_assert_ptr_eq(h, ages_find(lock, 1001));
	ck_assert(age_ms_of(&k, h) < 1000 && h->state == AGE_QUIET && !h->said && !h->tries && !h->missed);
	ck_assert_int_eq(h->uid, 6);
}

/* The parent has to finish first, and sees by the time that it is a younger one. */
TEST(a_grant_while_holders_are_ended)
{
	struct age *h;

	grant(1001, 5);
	h = ages_find(lock, 1001);
	h->state = AGE_ENDING;
	k.ages.ran_ns += HOUR_NS;
	grant(1001, 5);
	ck_assert(age_ms_of(&k, h) < 1000 && h->state == AGE_ENDING);
}

/* The caller may take its kernel lock until the end of the pin. */
TEST(the_pin_counts)
{
	ages_note_granted(lock, 1001, 5, clock_now_ns() + HOUR_NS);
	ck_assert(age_ms_of(&k, ages_find(lock, 1001)) < -3500 * 1000);
	ages_note_granted(lock, 1002, 5, clock_now_ns() - HOUR_NS);
	ck_assert(age_ms_of(&k, ages_find(lock, 1002)) < 1000);
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
}

/* A process that is not visible in this pid namespace. */
TEST(a_process_without_a_number)
{
	grant(0, 5);
	ck_assert_ptr_nonnull(ages_find(lock, 0));
	ck_assert_int_eq(HASH_COUNT(lock->ages), 1);
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
	ck_assert(age_ms_of(&k, ages_find(lock, 0)) < 1000); /* but it counts for the others */
	ages_drop(lock, ages_find(lock, 1));
	grant(AGES_MAX + 1, 5);
	ck_assert_ptr_nonnull(ages_find(lock, AGES_MAX + 1));
}
