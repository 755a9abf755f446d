/* wire/leases.c: which slot counts, and that no reader takes a half-written slot, or values from two moments, for a
 * lease. */
#include "wire/leases.h"

#include <pthread.h>
#include <sys/mman.h>

#include "wire/seqcopy.h"
#include "tests/unit/suite.h"

#define LONG_AGO    1
#define FOR_EVER    INT64_MAX
#define SYSTEM_PAGE 4096

static struct leases *leases;
static const struct leases_file file = {.dev = 7, .ino = 1234, .path_hash = 0xabcdef};
static const struct leases_range all = {.from = 0, .to = WIRE_EOF, .space = WIRE_FLOCK, .mode = WIRE_EXCLUSIVE};

/* As keeper/leases/pagefile.c does it. */
static void write_slot(struct leases_slot *slot, const struct leases_entry *entry)
{
	seqcopy_publish(&slot->seq, &slot->entry, entry, sizeof(*entry));
}

static void set_sure_until(int64_t ns)
{
	struct leases_clock clock = leases->clock;
	clock.sure_until_ns = ns;
	seqcopy_publish(&leases->clock_seq, &leases->clock, &clock, sizeof(clock));
}

static struct leases_entry entry_of(const struct leases_file *f, const struct leases_range *r, bool open)
{
	return (struct leases_entry){.file = *f, .range = *r, .open = open};
}

static struct leases_slot *slot_at(int i) { return &leases->slots[leases_bucket(file.dev, file.ino)][i]; }

static void put(int i, const struct leases_file *f, const struct leases_range *range, bool open)
{
	struct leases_entry entry = entry_of(f, range, open);
	write_slot(slot_at(i), &entry);
}

static bool stands(int i, const struct leases_range *range) { return leases_stand(leases, slot_at(i), &file, range); }

static void setup(void)
{
	leases = mmap(NULL, sizeof(*leases), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(leases, MAP_FAILED);
	set_sure_until(FOR_EVER);
}

static void teardown(void) { munmap(leases, sizeof(*leases)); }
FIXTURE(setup, teardown)

static const struct {
	struct leases_range shown, wanted;
	bool found;
} cases[] = {
	{{0, WIRE_EOF, WIRE_FLOCK, WIRE_EXCLUSIVE}, {0, WIRE_EOF, WIRE_FLOCK, WIRE_EXCLUSIVE}, true},
	{{0, WIRE_EOF, WIRE_FLOCK, WIRE_EXCLUSIVE}, {0, WIRE_EOF, WIRE_FLOCK, WIRE_SHARED}, true},
	{{0, WIRE_EOF, WIRE_FLOCK, WIRE_SHARED}, {0, WIRE_EOF, WIRE_FLOCK, WIRE_SHARED}, true},
	{{0, WIRE_EOF, WIRE_FLOCK, WIRE_SHARED}, {0, WIRE_EOF, WIRE_FLOCK, WIRE_EXCLUSIVE}, false},
	{{0, WIRE_EOF, WIRE_FLOCK, WIRE_EXCLUSIVE}, {0, WIRE_EOF, WIRE_RECORD, WIRE_SHARED}, false},
	{{0, WIRE_EOF, WIRE_RECORD, WIRE_EXCLUSIVE}, {0, WIRE_EOF, WIRE_FLOCK, WIRE_SHARED}, false},
	{{10, 20, WIRE_RECORD, WIRE_EXCLUSIVE}, {10, 20, WIRE_RECORD, WIRE_EXCLUSIVE}, true},
	{{10, 20, WIRE_RECORD, WIRE_EXCLUSIVE}, {12, 13, WIRE_RECORD, WIRE_SHARED}, true},
	{{10, 20, WIRE_RECORD, WIRE_EXCLUSIVE}, {9, 20, WIRE_RECORD, WIRE_EXCLUSIVE}, false},
	{{10, 20, WIRE_RECORD, WIRE_EXCLUSIVE}, {10, 21, WIRE_RECORD, WIRE_EXCLUSIVE}, false},
	{{10, 20, WIRE_RECORD, WIRE_EXCLUSIVE}, {30, 40, WIRE_RECORD, WIRE_EXCLUSIVE}, false},
	{{10, WIRE_EOF, WIRE_RECORD, WIRE_EXCLUSIVE}, {WIRE_EOF - 1, WIRE_EOF, WIRE_RECORD, WIRE_EXCLUSIVE}, true},
	{{10, WIRE_EOF - 1, WIRE_RECORD, WIRE_EXCLUSIVE}, {10, WIRE_EOF, WIRE_RECORD, WIRE_EXCLUSIVE}, false},
};

/* In any place of the bucket. */
TEST_EACH(covers, ROWS(cases))
{
	const struct leases_range *wanted = &cases[_i].wanted;

	for (int i = 0; i < LEASES_IN_BUCKET; i++) {
		put(i, &file, &cases[_i].shown, true);
		ck_assert_ptr_eq(leases_find(leases, &file, wanted), cases[_i].found ? slot_at(i) : NULL);
		ck_assert_int_eq(stands(i, wanted), cases[_i].found);
		put(i, &(struct leases_file){0}, &all, false); /* as in an empty page */
		ck_assert_ptr_null(leases_find(leases, &file, wanted));
		ck_assert_ptr_null(leases_find(leases, &(struct leases_file){0}, &all));
	}
}

/* Another device, inode or path, though it stands in the bucket that is looked at. */
TEST(other_files)
{
	const struct leases_file others[] = {{8, 1234, 0xabcdef}, {7, 1235, 0xabcdef}, {7, 1234, 0xabcdee}};
	for (int i = 0; i < 3; i++)
		put(i, &others[i], &all, true);
	ck_assert_ptr_null(leases_find(leases, &file, &all));
	ck_assert(!stands(0, &all) && !stands(1, &all) && !stands(2, &all));
	put(3, &file, &all, true);
	ck_assert_ptr_eq(leases_find(leases, &file, &all), slot_at(3));
}

TEST(closed_reused_or_being_written)
{
	put(0, &file, &all, true);
	ck_assert(stands(0, &all));
	put(0, &file, &all, false);
	ck_assert(!stands(0, &all));
	put(0, &(struct leases_file){9, 9, 9}, &all, true);
	ck_assert(!stands(0, &all));
	put(0, &file, &all, true);
	ck_assert(stands(0, &all));
	slot_at(0)->seq |= 1;
	ck_assert(!stands(0, &all));
	ck_assert_ptr_null(leases_find(leases, &file, &all));
}

TEST(clock_decides)
{
	static const int64_t over[] = {LONG_AGO, 0, INT64_MIN};

	put(0, &file, &all, true);
	for (int i = 0; i < 3; i++) {
		set_sure_until(over[i]);
		ck_assert(!stands(0, &all));
	}
	set_sure_until(FOR_EVER);
	ck_assert(stands(0, &all));
	leases->clock_seq |= 1;
	ck_assert(!stands(0, &all) && !leases_same_namespaces(leases));
}

static bool same_as(struct leases_clock clock)
{
	seqcopy_publish(&leases->clock_seq, &leases->clock, &clock, sizeof(clock));
	return leases_same_namespaces(leases);
}

TEST(whose_namespaces)
{
	struct leases_clock clock = {.sure_until_ns = FOR_EVER}, other;

	ck_assert(!leases_same_namespaces(leases));
	leases_set_namespaces(&clock);
	ck_assert_uint_ne(clock.pid_ino, 0);
	ck_assert(same_as(clock));
	for (int i = 0; i < 4; i++) {
		uint64_t *fields[] = {&other.time_dev, &other.time_ino, &other.pid_dev, &other.pid_ino};

		other = clock;
		++*fields[i];
		ck_assert(!same_as(other));
	}
	ck_assert(same_as(clock));
}

/* With any bytes in the page: nothing outside is read (the memory page after it is forbidden), and only the wanted lease is found. */
TEST(hostile_contents)
{
	size_t size = (sizeof(*leases) + SYSTEM_PAGE - 1) / SYSTEM_PAGE * SYSTEM_PAGE;
	unsigned char *at = mmap(NULL, size + SYSTEM_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct leases *spoilt = (struct leases *)(at + size - sizeof(*leases));

	ck_assert_ptr_ne(at, MAP_FAILED);
	ck_assert_int_eq(mprotect(at + size, SYSTEM_PAGE, PROT_NONE), 0);
	srandom(1);
	for (int round = 0; round < 4; round++) {
		for (unsigned char *byte = at; byte < at + size; byte++)
			*byte = round == 0 ? 0xff : (unsigned char)random();
		for (uint64_t ino = 0; ino < 4 * LEASES_BUCKETS; ino++) {
			struct leases_file f = {.dev = (uint64_t)random(), .ino = ino, .path_hash = (uint64_t)random()};

			ck_assert_uint_lt(leases_bucket(f.dev, f.ino), LEASES_BUCKETS);
			ck_assert_ptr_null(leases_find(spoilt, &f, &all));
		}
		leases_same_namespaces(spoilt);
	}
}

static const char *const differ[][2] = {
	/* Words, and what is left of one. */
	{"/a/b", "/b/a"},
	{"/1234567/abcdefg", "/abcdefg/1234567"},
	{"/1234567", "/1234567/"},
	{"/123456", "/1234567"},
	{"/1234567/a", "/1234567/b"},
};

TEST(buckets_are_used_evenly)
{
	static unsigned count[LEASES_BUCKETS];
	for (uint64_t ino = 0; ino < 8 * LEASES_BUCKETS; ino++)
		count[leases_bucket(0x801, ino * 3)]++;
	for (int i = 0; i < LEASES_BUCKETS; i++)
		ck_assert_uint_lt(count[i], 64);
	for (int i = 0; i < ROWS(differ); i++)
		ck_assert_uint_ne(leases_hash(differ[i][0]), leases_hash(differ[i][1]));
	ck_assert_uint_eq(leases_hash("/srv/data/f"), leases_hash(strdupa("/srv/data/f")));
}

/* --- a writer at work in the middle of a look --- */

static char *trap; /* the page whose first reading lets the keeper run */

/* Does what a keeper does when its leases have run out and the store answers again. */
static void renew_after_an_outage(int sig)
{
	const struct leases_entry closed = {0};
	mprotect(trap, SYSTEM_PAGE, PROT_READ | PROT_WRITE);
	write_slot(slot_at(0), &closed);
	set_sure_until(FOR_EVER);
}

/* The program is stopped before it reads the clock, or before it reads the slot: in neither case may it combine one
 * from before with one from after. */
TEST_EACH(no_slot_from_before_with_a_time_from_after, 2)
{
	struct sigaction action = {.sa_handler = renew_after_an_outage}, old;

	trap = _i ? (char *)leases : (char *)((uintptr_t)slot_at(0) / SYSTEM_PAGE * SYSTEM_PAGE);
	ck_assert_ptr_ne((char *)((uintptr_t)slot_at(0) / SYSTEM_PAGE * SYSTEM_PAGE), leases);
	put(0, &file, &all, true);
	set_sure_until(LONG_AGO);
	sigaction(SIGSEGV, &action, &old);
	ck_assert_int_eq(mprotect(trap, SYSTEM_PAGE, PROT_NONE), 0);
	ck_assert(!stands(0, &all));
	sigaction(SIGSEGV, &old, NULL);
	ck_assert_int_eq(leases->clock.sure_until_ns, FOR_EVER);
}

static bool end;
static uint64_t looks;
static const struct leases_range middle = {.from = 0, .to = 1000, .space = WIRE_RECORD, .mode = WIRE_EXCLUSIVE};

/* Neither leases_find() nor leases_stand() may say yes. */
static void *reader(void *arg)
{
	uint64_t *wrong = arg;
	while (!__atomic_load_n(&end, __ATOMIC_RELAXED)) {
		*wrong += leases_find(leases, &file, &middle) != NULL;
		*wrong += stands(0, &middle);
		__atomic_add_fetch(&looks, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

/* Ours, but a small range; a large one, but another's; ours and large, but closed. A mixture would count. */
TEST(no_torn_read_counts)
{
	const struct leases_file another = {.dev = 7, .ino = 1234, .path_hash = 1};
	const struct leases_range small = {.from = 500, .to = 510, .space = WIRE_RECORD, .mode = WIRE_EXCLUSIVE};
	const struct leases_range large = {.from = 0, .to = 2000, .space = WIRE_RECORD, .mode = WIRE_EXCLUSIVE};
	const struct leases_entry entries[] = {entry_of(&file, &small, true), entry_of(&another, &large, true),
					       entry_of(&file, &large, false)};
	uint64_t wrong[2] = {0};
	pthread_t threads[2];
	time_t until = time(NULL) + 10;

	end = false;
	looks = 0;
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, reader, &wrong[i]), 0);
	for (unsigned i = 0; __atomic_load_n(&looks, __ATOMIC_RELAXED) < 2000000 && (i % 1024 || time(NULL) < until);
	     i++)
		write_slot(slot_at(0), &entries[i % 3]);
	__atomic_store_n(&end, true, __ATOMIC_RELAXED);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(wrong[0] + wrong[1], 0);
	ck_assert_uint_gt(looks, 1000);
}
