/*
 * keeper/leases/takeup.c: what a dead keeper had becomes a lease of this one, with its file if that can be opened without
 * waiting. Files and leases are real; the table and the room for leases are here.
 */

#include <dirent.h>
#include <utlist.h>

#include "keeper/guard/table.h"
#include "keeper/kernel/mounts.h"
#include "keeper/kernel/workers.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/reopen.h"
#include "keeper/leases/room.h"
#include "tests/unit/base_folder.h"
#include "tests/unit/open_count.h"

#define TOKEN "0123456789abcdef0123456789abcdef"
#define OTHER "fedcba9876543210fedcba9876543210"

static uv_loop_t loop;
static struct rule killed = {.kind = PAGE_RULE_GLOB, .pattern = (char *)"/dev/shm/*/killed", .on_lost = ON_LOST_KILL};
static struct config config = {.rules = &killed, .rule_count = 1, .lease.on_lost = ON_LOST_FREEZE};
static struct keeper k;
static unsigned alive, rooms, background;
static bool local;
static struct table_slot slots[10];
static struct table of_keeper = {.slots = slots};

void table_alive(struct table *table) { alive++; }

void room_add(struct lease *lease)
{
	ck_assert_uint_eq(lease->uid, 500);
	rooms++;
}

bool mounts_local_path(struct mounts *mounts, const char *path) { return local; }

/* The other functions of mounts.h are for what is linked here and does not run. */
struct mounts *mounts_new(void) { ck_abort(); }
void mounts_free(struct mounts *mounts) {}
bool mounts_local(struct mounts *mounts, int fd, uint64_t *device, uint64_t *ino) { ck_abort(); }
bool mounts_local_device(struct mounts *mounts, uint64_t device) { ck_abort(); }

/* What would be done in the background. */
int workers_start(struct workers *workers, uint64_t dev, struct work *work)
{
	background++;
	return -ENOMEM; /* it is not: then nothing is left to clean up */
}

static void prepare(void)
{
	static const struct config_store store = {.name = "", .shards = 1};

	base_make();
	uv_loop_init(&loop);
	k = (struct keeper){.member_count = 1,
			    .members[0].keeper = &k,
			    .members[0].config = &store,
			    .loop = &loop,
			    .config = &config};
	alive = rooms = background = 0;
	local = true;
	slots[9].on_lost = ON_LOST_WARN;
	k.table = &of_keeper;
}

static void clean(void)
{
	struct lease *lease, *next;
	struct file *file, *next_file;

	HASH_ITER (hh, k.leases, lease, next)
		lease_free(lease);
	HASH_ITER (hh, k.files, file, next_file) {
		reopen_forget(file);
		file_free(file);
	}
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
	base_remove();
}
FIXTURE(prepare, clean)

/* An entry for a new file of this name. */
static struct table_entry entry_of(const char *name)
{
	struct stat st;
	int fd = open(in_base(name), O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	ck_assert_int_eq(fstat(fd, &st), 0);
	close(fd);
	return (struct table_entry){.slot = 9,
				    .unsure = true,
				    .token = TOKEN,
				    .name = "jobs/x",
				    .path = in_base(name),
				    .range = {WIRE_RECORD, WIRE_SHARED, 5, 7},
				    .fence = 42,
				    .dev = st.st_dev,
				    .ino = st.st_ino,
				    .uid = 500};
}

static struct lease *taken_up(const struct table_entry *entry)
{
	struct lease *lease;

	ck_assert(takeup_entry(&k, entry));
	lease = lease_find(&k, entry->token);
	ck_assert_ptr_nonnull(lease);
	return lease;
}

TEST(a_lease)
{
	struct table_entry entry = entry_of("f");
	struct lease *lease = taken_up(&entry);
	struct stat st;

	ck_assert(lease_is_ours(lease->state) && lease->state != LEASE_OPEN); /* closed */
	ck_assert_uint_eq(lease->fence, 42);
	ck_assert_uint_eq(lease->slot, 9);
	ck_assert(lease->range.space == WIRE_RECORD && lease->range.mode == WIRE_SHARED && lease->range.from == 5 &&
		  lease->range.to == 7);
	ck_assert_ptr_eq(lease->lock, &lease->lock->file->locks[WIRE_RECORD]);
	ck_assert_str_eq(lease->lock->file->name, "jobs/x");
	ck_assert_int_eq(fstat(lease->lock->file->fd, &st), 0);
	ck_assert(st.st_ino == entry.ino && st.st_dev == entry.dev);
	ck_assert(rooms == 1 && alive == 1 && background == 0);
	ck_assert_int_eq(slots[9].on_lost, ON_LOST_FREEZE);
	ck_assert_uint_eq(k.members[0].states.count[WIRE_RECORD][LEASE_FORGOTTEN], 0);
}

TEST(what_the_store_has_forgotten_and_the_rule_of_now)
{
	struct table_entry entry = entry_of("killed");

	entry.forgotten = true;
	taken_up(&entry);
	ck_assert_uint_eq(k.members[0].states.count[WIRE_RECORD][LEASE_FORGOTTEN], 1);
	ck_assert_int_eq(slots[9].on_lost, ON_LOST_KILL); /* not the dead keeper's */
}

/* No process relies on it, so the file is not looked at, wherever it is. */
TEST(what_goes_back)
{
	struct table_entry entry = entry_of("f");
	struct lease *lease;

	entry.unsure = false;
	lease = taken_up(&entry);
	ck_assert_int_eq(lease->state, LEASE_RELEASING);
	ck_assert_int_eq(lease->lock->file->fd, -1);
	ck_assert_uint_eq(background, 0);
	ck_assert_int_eq(slots[9].on_lost, ON_LOST_WARN);
}

/* What cannot be opened says nothing about its users: the lease is kept. */
TEST_EACH(cannot_be_opened, 4)
{
	struct table_entry entry = entry_of("f");
	struct lease *lease;

	if (_i == 0)
		unlink(entry.path);
	else if (_i == 1)
		ck_assert_int_eq(rename(entry.path, in_base("elsewhere")), 0);
	else if (_i == 2)
		entry.ino++; /* the path leads to another file by now */
	else
		local = false; /* who knows whether the mount answers */
	lease = taken_up(&entry);
	ck_assert(lease_is_ours(lease->state));
	ck_assert_int_eq(lease->lock->file->fd, -1);
	ck_assert_uint_eq(background, 1);
}

TEST(two_leases_of_a_file)
{
	struct table_entry entry = entry_of("f");
	struct lease *one, *two;
	int open_before;

	one = taken_up(&entry);
	open_before = count_open();
	entry.token = OTHER;
	entry.range.space = WIRE_FLOCK;
	two = taken_up(&entry);
	ck_assert_ptr_eq(one->lock->file, two->lock->file);
	ck_assert_ptr_ne(one->lock, two->lock);
	ck_assert_int_eq(count_open(), open_before);
}

/* What goes back came first: its file is opened for the lease. */
TEST(opened_for_the_second)
{
	struct table_entry entry = entry_of("f");

	entry.unsure = false;
	taken_up(&entry);
	entry.unsure = true;
	entry.token = OTHER;
	ck_assert_int_ge(taken_up(&entry)->lock->file->fd, 0);
}

/* The configuration has fewer stores than the one of the earlier keeper, or the slot is damaged. */
TEST(of_a_store_that_is_not_there)
{
	struct table_entry entry = entry_of("f");

	entry.member = 1;
	ck_assert(!takeup_entry(&k, &entry));
	ck_assert_ptr_null(lease_find(&k, TOKEN));
	ck_assert_ptr_null(file_find(&k, entry.dev, entry.ino));
}

/* One inode under two names: that cannot be, and a damaged table may say it. */
TEST(another_name)
{
	struct table_entry entry = entry_of("f");
	int open_before;

	taken_up(&entry);
	open_before = count_open();
	entry.token = OTHER;
	entry.name = "jobs/y";
	ck_assert(!takeup_entry(&k, &entry));
	ck_assert_ptr_null(lease_find(&k, OTHER));
	ck_assert_int_eq(count_open(), open_before);
	ck_assert_uint_eq(rooms, 1);
	ck_assert_uint_eq(alive, 2);
}
