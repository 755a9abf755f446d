/* keeper/leases/pagefile.c: what is shown of a lease, when it is closed, and what a dead keeper's page becomes. */
#include "keeper/leases/pagefile.h"

#include <sys/mman.h>
#include <utlist.h>

#include "keeper/clock.h"
#include "keeper/leases/keeper.h"
#include "tests/unit/config_file.h"
#include "wire/page.h"

static struct keeper k;
static struct file the_file;
static struct lock *lock;
static struct lease leases[LEASES_IN_BUCKET + 2];

static void make_page(void)
{
	setup();
	read_ok("host = \"h\"; store = { server = \"127.0.0.1:1\"; };\n"
		"protect = ( { path = \"/data/a\"; name = \"n\"; }, { path = \"/data/b\"; name = \"n\"; }, "
		"{ path = \"/data/c\"; name = \"m\"; } );\n");
	k = (struct keeper){.member_count = 1, .members[0].keeper = &k, .config = config};
	k.page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(k.page, MAP_FAILED);
	leasepage_reset(k.page);
	k.members[0].deadline.at_ns = k.members[0].deadline.freeze_at_ns = clock_now_ns() + 3600 * 1000 * NS_PER_MS;
	the_file = (struct file){.keeper = &k,
				 .member = &k.members[0],
				 .key = {.dev = 5, .ino = 77},
				 .path = strdup("/data/a"),
				 .name = strdup("n")};
	lock = &the_file.locks[WIRE_RECORD];
	*lock = (struct lock){.file = &the_file, .space = WIRE_RECORD};
	for (int i = 0; i < LEASES_IN_BUCKET + 2; i++) {
		leases[i] = (struct lease){
			.lock = lock,
			.state = LEASE_OPEN,
			.range = {.space = WIRE_RECORD, .mode = WIRE_EXCLUSIVE, .from = 10 * i, .to = 10 * i + 10}};
		snprintf(leases[i].token, sizeof(leases[i].token), "%d", i);
		DL_APPEND(lock->leases, &leases[i]);
		HASH_ADD_STR(k.leases, token, &leases[i]);
	}
	leasepage_refresh(&k);
}

static void free_page(void)
{
	HASH_CLEAR(hh, k.leases);
	munmap(k.page, PAGE_BYTES);
	free(the_file.path);
	free(the_file.name);
	teardown();
}
FIXTURE(make_page, free_page)

/* What a program whose file has this path would conclude of lease i, without asking. */
static bool is_shown(const char *path, int i)
{
	const struct leases_file f = {.dev = 5, .ino = 77, .path_hash = leases_hash(path)};
	const struct leases_range r = {
		.from = leases[i].range.from, .to = leases[i].range.to, .space = WIRE_RECORD, .mode = WIRE_EXCLUSIVE};
	const struct leases_slot *slot = leases_find(&k.page->leases, &f, &r);

	return slot && leases_stand(&k.page->leases, slot, &f, &r);
}

static void rename_to(const char *path)
{
	free(the_file.path);
	the_file.path = strdup(path);
}

TEST(shown_and_closed)
{
	ck_assert(!is_shown("/data/a", 1));
	leasepage_show(&leases[1]);
	leasepage_show(&leases[1]);
	ck_assert(is_shown("/data/a", 1));
	ck_assert(!is_shown("/data/a", 0));
	ck_assert(leases_same_namespaces(&k.page->leases));
	leasepage_close(&leases[1]);
	ck_assert(!is_shown("/data/a", 1));
	leasepage_close(&leases[1]);
	leasepage_show(&leases[1]);
	ck_assert(is_shown("/data/a", 1));
}

/* The lease is shown as it is now, for example shrunk, not as it was. */
TEST(mode_is_the_leases)
{
	leasepage_show(&leases[0]);
	leasepage_close(&leases[0]);
	leases[0].range.mode = WIRE_SHARED;
	leasepage_show(&leases[0]);
	ck_assert_ptr_nonnull(leases[0].shown);
	ck_assert(!is_shown("/data/a", 0));
}

TEST(path_leads_to_the_lock_name)
{
	leasepage_show(&leases[0]);
	rename_to("/data/b"); /* another path of the same name: the slot goes over to it */
	leasepage_show(&leases[0]);
	ck_assert(!is_shown("/data/a", 0) && is_shown("/data/b", 0));
	leasepage_close(&leases[0]);
	rename_to("/data/c"); /* another name */
	leasepage_show(&leases[0]);
	ck_assert(!is_shown("/data/c", 0));
	rename_to("/elsewhere"); /* none */
	leasepage_show(&leases[0]);
	ck_assert(!is_shown("/elsewhere", 0));
}

/* Each lock of such a file is a question. */
TEST(one_that_rests_is_not_shown)
{
	the_file.at_least_ms = 1;
	leasepage_show(&leases[0]);
	ck_assert(!is_shown("/data/a", 0));
	the_file.at_least_ms = 0;
	leasepage_show(&leases[0]);
	ck_assert(is_shown("/data/a", 0));
}

/* Its keeper must know of each lock. */
TEST(one_with_a_limit_is_not_shown)
{
	the_file.warn_after_ms = 1;
	leasepage_show(&leases[0]);
	ck_assert(!is_shown("/data/a", 0));
	the_file.warn_after_ms = 0;
	the_file.kill_after_ms = 1000;
	leasepage_show(&leases[0]);
	ck_assert(!is_shown("/data/a", 0));
	the_file.kill_after_ms = 0;
	leasepage_show(&leases[0]);
	ck_assert(is_shown("/data/a", 0));
}

TEST(full_bucket)
{
	for (int i = 0; i < LEASES_IN_BUCKET + 2; i++)
		leasepage_show(&leases[i]);
	for (int i = 0; i < LEASES_IN_BUCKET + 2; i++)
		ck_assert_int_eq(is_shown("/data/a", i), i < LEASES_IN_BUCKET);
	leasepage_close(&leases[3]);
	leasepage_show(&leases[LEASES_IN_BUCKET]);
	ck_assert(is_shown("/data/a", LEASES_IN_BUCKET) && !is_shown("/data/a", 3));
	leasepage_close(&leases[LEASES_IN_BUCKET + 1]); /* was never shown: closes no other lease's slot */
	ck_assert(is_shown("/data/a", LEASES_IN_BUCKET) && is_shown("/data/a", 0));
}

TEST(many_are_closed_at_once)
{
	for (int i = 0; i < 4; i++)
		leasepage_show(&leases[i]);
	leasepage_close_lock(lock);
	for (int i = 0; i < 4; i++)
		ck_assert(!is_shown("/data/a", i));
	for (int i = 0; i < 4; i++)
		leasepage_show(&leases[i]);
	leasepage_close_all(&k);
	for (int i = 0; i < 4; i++)
		ck_assert(!is_shown("/data/a", i));
}

/* A writer that died in the middle of a slot leaves it odd: no program believes it, and the next writer uses it
 * again. */
TEST(page_of_a_dead_keeper)
{
	struct leases_slot *slot;
	uint32_t left;

	leasepage_show(&leases[0]);
	leasepage_show(&leases[1]);
	slot = leases[0].shown;
	slot->seq |= 1;
	k.page->leases.clock_seq |= 1;
	left = slot->seq;
	ck_assert(!is_shown("/data/a", 0) && !is_shown("/data/a", 1));
	leasepage_reset(k.page);
	ck_assert_uint_eq(slot->seq, left + 1);
	leases[0].shown = leases[1].shown = NULL; /* the next keeper's */
	leasepage_refresh(&k);
	ck_assert(!is_shown("/data/a", 0) && !is_shown("/data/a", 1));
	for (int i = 0; i < LEASES_IN_BUCKET; i++)
		leasepage_show(&leases[i]);
	for (int i = 0; i < LEASES_IN_BUCKET; i++)
		ck_assert(is_shown("/data/a", i));
}

TEST(sure_for_a_second_at_the_most)
{
	int64_t before = clock_now_ns();

	leasepage_refresh(&k);
	ck_assert_int_ge(k.page->leases.clock.sure_until_ns, before + LEASEPAGE_FRESH_MS * NS_PER_MS);
	ck_assert_int_le(k.page->leases.clock.sure_until_ns, clock_now_ns() + LEASEPAGE_FRESH_MS * NS_PER_MS);
	k.members[0].deadline.freeze_at_ns = before + 1;
	leasepage_refresh(&k);
	ck_assert_int_le(k.page->leases.clock.sure_until_ns, before + 1);
	k.leaving = true;
	leasepage_refresh(&k);
	ck_assert_int_eq(k.page->leases.clock.sure_until_ns, 0);
}

/* A program may have read the time before the lease was shown, when it was that of another store. */
TEST(a_store_that_is_sure_for_a_shorter_time)
{
	struct member *m = &k.members[0];

	k.member_count = 2;
	m->deadline.freeze_at_ns = clock_now_ns() + LEASEPAGE_FRESH_MS / 2 * NS_PER_MS;
	leasepage_show(&leases[0]);
	ck_assert(!is_shown("/data/a", 0));
	m->deadline.freeze_at_ns = clock_now_ns() + 2 * LEASEPAGE_FRESH_MS * NS_PER_MS;
	leasepage_show(&leases[0]);
	ck_assert(is_shown("/data/a", 0));
	m->deadline.freeze_at_ns = clock_now_ns() + LEASEPAGE_FRESH_MS / 2 * NS_PER_MS;
	leasepage_refresh(&k);
	ck_assert_int_eq(k.page->leases.clock.sure_until_ns, m->deadline.freeze_at_ns); /* it counts for all */
	m->deadline.freeze_at_ns = clock_now_ns();
	leasepage_refresh(&k);
	ck_assert(!is_shown("/data/a", 0) && !m->shown); /* until it is over: then it is in the way of none */
	ck_assert_int_gt(k.page->leases.clock.sure_until_ns, clock_now_ns());
}

/* Whatever freeze_margin_ms has become since the parent was told. */
TEST(sure_until_the_parent_looks)
{
	int64_t told = clock_now_ns() + 100 * NS_PER_MS;

	k.members[0].deadline.freeze_at_ns = told;
	k.config->lease.freeze_margin_ms = 0;
	leasepage_refresh(&k);
	ck_assert_int_eq(k.page->leases.clock.sure_until_ns, told);
}
