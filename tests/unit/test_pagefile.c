/*
 * keeper/leases/pagefile.c: what the keeper publishes of its rules, and of its leases, when a lease is closed, and what a dead keeper's page
 * becomes.
 */
#include "keeper/leases/pagefile.h"

#include <utlist.h>

#include "keeper/clock.h"
#include "keeper/leases/keeper.h"
#include "tests/unit/config_file.h"

static int dir;
static struct keeper k;
static struct file the_file;
static struct lock *lock;
static struct lease leases[LEASES_IN_BUCKET + 2];
static const struct wire_config_id first = {.dev = 1, .ino = 2, .size = 3}, second = {.dev = 1, .ino = 2, .size = 4};

static void begin(void)
{
	setup();
	read_ok("host = 'h'; store = { server = '127.0.0.1:1'; };\n"
		"protect = ( { path = '/data/a'; name = 'n'; }, { path = '/data/b'; name = 'n'; }, "
		"{ path = '/data/c'; name = 'm'; }, { tree = '/data/tree'; } );\n");
	config->id = first;
	dir = base_open();
	k = (struct keeper){.member_count = 1, .members[0].keeper = &k, .config = config};
	k.page = pagefile_open(dir, why, sizeof(why));
	ck_assert_msg(k.page, "%s", why);
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

static void end(void)
{
	HASH_CLEAR(hh, k.leases);
	pagefile_close(k.page);
	close(dir);
	free(the_file.path);
	free(the_file.name);
	teardown();
}
FIXTURE(begin, end)

/* --- rules --- */

/* The answer for a program whose file is in this state. */
static enum page_answer answer(const struct wire_config_id *id, const char *path)
{
	return page_ask(k.page, &(struct page_config){.id = *id}, path, NULL);
}

TEST(rules_in_force)
{
	struct config less = *config;

	ck_assert_int_eq(answer(&first, "/data/a"), PAGE_SAYS_NOTHING);
	ck_assert_int_eq(pagefile_publish(k.page, config, &first), 0);
	ck_assert_int_eq(answer(&first, "/data/a"), PAGE_SAYS_YES);
	ck_assert_int_eq(answer(&first, "/data/tree/f"), PAGE_SAYS_YES);
	ck_assert_int_eq(answer(&first, "/data/x"), PAGE_SAYS_NO);
	ck_assert_int_eq(answer(&second, "/data/a"), PAGE_SAYS_NOTHING);
	pagefile_seen(k.page, config, &second); /* the rules of the first stay in force */
	ck_assert_int_eq(answer(&first, "/data/a"), PAGE_SAYS_YES);
	ck_assert_int_eq(answer(&second, "/data/a"), PAGE_SAYS_YES);
	less.rule_count = 3;
	ck_assert_int_eq(pagefile_publish(k.page, &less, &first), 0);
	ck_assert_int_eq(answer(&first, "/data/a"), PAGE_SAYS_YES);
	ck_assert_int_eq(answer(&first, "/data/tree/f"), PAGE_SAYS_NO);
	pagefile_forget(k.page);
	ck_assert_int_eq(answer(&first, "/data/a"), PAGE_SAYS_NOTHING);
}

TEST(an_invalid_file)
{
	char message[PAGE_MESSAGE_BYTES];
	pagefile_invalid(k.page, config->path, &first, "/etc/dflock.conf:3: expected a number");
	ck_assert_int_eq(page_ask(k.page, &(struct page_config){.id = first}, "/data/a", message), PAGE_SAYS_REFUSE);
	ck_assert_str_eq(message, "/etc/dflock.conf:3: expected a number");
	ck_assert_int_eq(answer(&second, "/data/a"), PAGE_SAYS_NOTHING);
	ck_assert_int_eq(pagefile_publish(k.page, config, &first), 0);
	ck_assert_int_eq(answer(&first, "/data/a"), PAGE_SAYS_YES);
}

TEST(more_rules_than_there_is_room_for)
{
	static struct rule many[5000];
	struct config full = *config;
	char pattern[300];

	memset(pattern, 'a', sizeof(pattern) - 1);
	pattern[0] = '/';
	pattern[sizeof(pattern) - 1] = '\0';
	for (size_t i = 0; i < sizeof(many) / sizeof(*many); i++)
		many[i] = (struct rule){.kind = PAGE_RULE_PATH, .pattern = pattern};
	full.rules = many;
	full.rule_count = sizeof(many) / sizeof(*many);
	ck_assert_int_eq(pagefile_publish(k.page, config, &first), 0);
	ck_assert_int_eq(pagefile_publish(k.page, &full, &first), -ENOSPC);
	ck_assert_int_eq(answer(&first, "/data/x"), PAGE_SAYS_NOTHING); /* never "not protected" */
}

/* The next writer leaves the sequence number even, whatever it was. */
TEST(a_keeper_that_died_while_it_wrote)
{
	ck_assert_int_eq(pagefile_publish(k.page, config, &first), 0);
	k.page->seq |= 1;
	ck_assert_int_eq(answer(&first, "/data/a"), PAGE_SAYS_NOTHING);
	ck_assert_int_eq(pagefile_publish(k.page, config, &first), 0);
	ck_assert_uint_eq(k.page->seq % 2, 0);
	ck_assert_int_eq(answer(&first, "/data/a"), PAGE_SAYS_YES);
}

/* Programs have it mapped: the same file, never shorter, whatever the umask was. */
TEST(opened_again)
{
	struct stat before, after;

	ck_assert_int_eq(pagefile_publish(k.page, config, &first), 0);
	ck_assert_int_eq(fstatat(dir, PAGE_NAME, &before, 0), 0);
	ck_assert_uint_eq(before.st_mode & 0777, 0644);
	ck_assert_int_ge(before.st_blocks * 512, sizeof(struct page)); /* no hole: SIGBUS if the tmpfs gets full */
	ck_assert_int_eq(fchmodat(dir, PAGE_NAME, 0600, 0), 0);
	pagefile_close(k.page);
	k.page = pagefile_open(dir, why, sizeof(why));
	ck_assert_msg(k.page, "%s", why);
	ck_assert_int_eq(fstatat(dir, PAGE_NAME, &after, 0), 0);
	ck_assert_uint_eq(after.st_ino, before.st_ino);
	ck_assert_uint_eq(after.st_mode & 0777, 0644);
	ck_assert_int_eq(after.st_size, PAGE_BYTES);
	ck_assert_int_eq(answer(&first, "/data/a"), PAGE_SAYS_YES);
}

TEST(something_else_in_its_place)
{
	ck_assert_int_eq(renameat(dir, PAGE_NAME, dir, "elsewhere"), 0);
	ck_assert_int_eq(symlinkat("elsewhere", dir, PAGE_NAME), 0);
	ck_assert_ptr_null(pagefile_open(dir, why, sizeof(why)));
	ck_assert_ptr_nonnull(strstr(why, "the page cannot be opened"));
	ck_assert_int_eq(unlinkat(dir, PAGE_NAME, 0), 0);
	ck_assert_int_eq(mkfifoat(dir, PAGE_NAME, 0644), 0);
	ck_assert_ptr_null(pagefile_open(dir, why, sizeof(why)));
	ck_assert_ptr_nonnull(strstr(why, "remove it"));
}

/* --- leases --- */

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

/* Each lock of such a file is a question: it rests, or its keeper must know of each lock. */
TEST_EACH(one_that_rests_or_has_a_limit_is_not_shown, 3)
{
	int64_t *values[] = {&the_file.at_least_ms, &the_file.warn_after_ms, &the_file.kill_after_ms};
	*values[_i] = 1000;
	leasepage_show(&leases[0]);
	ck_assert(!is_shown("/data/a", 0));
	*values[_i] = 0;
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

TEST_EACH(many_are_closed_at_once, 2)
{
	for (int i = 0; i < 4; i++)
		leasepage_show(&leases[i]);
	if (_i)
		leasepage_close_all(&k);
	else
		leasepage_close_lock(lock);
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
	k.config->lease.freeze_margin_ms = 0; /* the parent was told before that */
	leasepage_refresh(&k);
	ck_assert_int_eq(k.page->leases.clock.sure_until_ns, before + 1);
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
