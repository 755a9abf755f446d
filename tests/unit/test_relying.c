/* keeper/guard/relying.c: which holders count when leases run out. Made-up holders. */
#include "keeper/guard/relying.h"
#include "keeper/guard/slots.h"

#include "keeper/guard/table.h"
#include "procfs/procfs.h"
#include "tests/unit/suite.h"

#define FREEZE_AT 1000

static const struct holders_file file = {.dev = 1, .ino = 2};
static struct table_head head;
static struct table_slot slot;
static struct table table = {.head = &head, .slots = &slot};
static struct family family, first;
static struct look look;
static int told;

static void on_found(void *arg, pid_t pid, uint64_t stores) { told++; }

static const struct look_found found = {.cb = on_found};

static void setup(void)
{
	head.freeze_at_ns = FREEZE_AT;
	head.caller_count = 0;
	slot = (struct table_slot){.why = TABLE_WHY_UNKNOWN};
	look = (struct look){.table = &table, .family = &family, .found = &found};
	ck_assert_int_eq(claims_add(&look.claims, &file, WIRE_RECORD, 10, 20, 0), 0);
	ck_assert_int_eq(claims_build(&look.claims), 0);
	told = 0;
}

static void teardown(void)
{
	family_free(&family);
	family_free(&first);
	look_end(&look);
}
FIXTURE(setup, teardown)

static int holds(pid_t pid, int64_t from, int64_t to)
{
	return look_holder(&look,
			   &(struct holder){.file = 0, .pid = pid, .space = WIRE_RECORD, .from = from, .to = to});
}

TEST(a_lock_under_a_lease_counts)
{
	ck_assert_int_eq(holds(5, 0, 10), 0); /* beside the lease */
	ck_assert_uint_eq(family_count(&family), 0);
	ck_assert_int_eq(holds(5, 19, 30), HOLDERS_LATER);
	ck_assert(family_has(&family, 5));
	ck_assert_int_eq(holds(5, 10, 11), HOLDERS_LATER);
	ck_assert_uint_eq(family_count(&family), 1);
	ck_assert_int_eq(told, 1); /* at once, and once */
}

/* A user may send it a lock through one of its sockets; all processes of the machine are its descendants. */
TEST(init_holds_nothing)
{
	ck_assert_int_eq(holds(1, 10, 20), procfs_is_in_first_namespace() ? 0 : HOLDERS_LATER);
	ck_assert_uint_eq(family_count(&family), !procfs_is_in_first_namespace());
}

/*
 * Process 5 has a lock, and is in a call or not. Before the first are known all holders count, whether they are in a call or not. Later a
 * caller without an answer relies on nothing, unless it is one of the first: then it does in the stores in which it is.
 */
static const struct {
	uint64_t first_of, first;        /* the stores whose first are known, and those in which this process is one */
	unsigned calls_space, calls_ino; /* 0: no call */
	uint64_t marks;                  /* 0: it does not count */
} cases[] = {
	{0, 0, WIRE_RECORD, 2, SLOTS_OF(0)},
	{SLOTS_OF(0), 0, WIRE_RECORD, 2, 0},
	{SLOTS_OF(0), 0, 0, 0,
	 SLOTS_OF(0)}, /* it has inherited the lock from one of the first, and asked no question */
	{SLOTS_OF(0), 0, WIRE_RECORD, 3, SLOTS_OF(0)}, /* a call on another file is no excuse */
	{SLOTS_OF(0), 0, WIRE_FLOCK, 2, SLOTS_OF(0)},
	{SLOTS_OF(0), SLOTS_OF(0), WIRE_RECORD, 2, SLOTS_OF(0)},
	{SLOTS_OF(0) | SLOTS_OF(2), SLOTS_OF(2), WIRE_RECORD, 2, 0},
	{SLOTS_OF(0) | SLOTS_OF(2), SLOTS_OF(0) | SLOTS_OF(2), WIRE_RECORD, 2, SLOTS_OF(0)},
};

TEST_EACH(callers, ROWS(cases))
{
	look.first_of = cases[_i].first_of;
	if (look.first_of)
		look.first = &first;
	if (cases[_i].first) {
		family_add(&first, 5);
		family_mark(&first, 5, cases[_i].first);
	}
	if (cases[_i].calls_ino)
		table_add_caller(&table, &(struct table_caller){.pid = 5,
								.space = cases[_i].calls_space,
								.dev = 1,
								.ino = cases[_i].calls_ino});
	ck_assert_int_eq(holds(5, 10, 20), cases[_i].marks ? HOLDERS_LATER : 0);
	ck_assert_int_eq(family_has(&family, 5), cases[_i].marks != 0);
	ck_assert_uint_eq(family_marks(&family, 5), cases[_i].marks);
}

/* `dflock break` of a user: this process, which that user has passed the lock to, is another user's. */
TEST(a_lease_that_was_broken_for_a_user)
{
	const uid_t own = geteuid(), another = own + 1;

	table_break_for(&table, 0, another);
	holds(getpid(), 10, 20);
	ck_assert(family_has(&family, getpid())); /* it was not broken */
	family_free(&family);
	look.last = 0;
	slot.why = TABLE_WHY_BROKEN;
	ck_assert_int_eq(holds(getpid(), 10, 20), 0);
	ck_assert_uint_eq(family_count(&family), 0);
	table_break_for(&table, 0, own);
	holds(getpid(), 10, 20);
	ck_assert(family_has(&family, getpid()));
}
