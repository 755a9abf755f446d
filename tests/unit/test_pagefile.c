/* What the keeper publishes in the shared page, and what a program reads there. */
#include "keeper/leases/pagefile.h"
#include "tests/unit/base_folder.h"

static char why[256];
static int dir;
static struct page *page;
static struct rule rules[] = {{.kind = PAGE_RULE_PATH, .pattern = "/data/f"},
			      {.kind = PAGE_RULE_TREE, .pattern = "/data/tree"}};
static const struct wire_config_id first = {.dev = 1, .ino = 2, .size = 3}, second = {.dev = 1, .ino = 2, .size = 4};
static struct config config = {.path = "/etc/dflock.conf", .rules = rules, .rule_count = 2};

static void setup(void)
{
	base_make();
	dir = base_open();
	config.id = first;
	page = pagefile_open(dir, why, sizeof(why));
	ck_assert_msg(page, "%s", why);
}

static void teardown(void)
{
	pagefile_close(page);
	close(dir);
	base_remove();
}
FIXTURE(setup, teardown)

/* The answer for a program whose file is in this state. */
static enum page_answer answer(const struct wire_config_id *id, const char *path)
{
	return page_ask(page, &(struct page_config){.id = *id}, path, NULL);
}

TEST(rules_in_force)
{
	ck_assert_int_eq(answer(&first, "/data/f"), PAGE_SAYS_NOTHING);
	ck_assert_int_eq(pagefile_publish(page, &config, &first), 0);
	ck_assert_int_eq(answer(&first, "/data/f"), PAGE_SAYS_YES);
	ck_assert_int_eq(answer(&first, "/data/tree/f"), PAGE_SAYS_YES);
	ck_assert_int_eq(answer(&first, "/data/g"), PAGE_SAYS_NO);
	ck_assert_int_eq(answer(&second, "/data/f"), PAGE_SAYS_NOTHING);
	pagefile_seen(page, &config, &second); /* the rules of the first stay in force */
	ck_assert_int_eq(answer(&first, "/data/f"), PAGE_SAYS_YES);
	ck_assert_int_eq(answer(&second, "/data/f"), PAGE_SAYS_YES);
	pagefile_forget(page);
	ck_assert_int_eq(answer(&first, "/data/f"), PAGE_SAYS_NOTHING);
}

TEST(fewer_rules)
{
	struct config less = config;

	less.rule_count = 1;
	ck_assert_int_eq(pagefile_publish(page, &config, &first), 0);
	ck_assert_int_eq(pagefile_publish(page, &less, &first), 0);
	ck_assert_int_eq(answer(&first, "/data/f"), PAGE_SAYS_YES);
	ck_assert_int_eq(answer(&first, "/data/tree/f"), PAGE_SAYS_NO);
}

TEST(an_invalid_file)
{
	char message[PAGE_MESSAGE_BYTES];

	pagefile_invalid(page, config.path, &first, "/etc/dflock.conf:3: expected a number");
	ck_assert_int_eq(page_ask(page, &(struct page_config){.id = first}, "/data/f", message), PAGE_SAYS_REFUSE);
	ck_assert_str_eq(message, "/etc/dflock.conf:3: expected a number");
	ck_assert_int_eq(answer(&second, "/data/f"), PAGE_SAYS_NOTHING);
	ck_assert_int_eq(pagefile_publish(page, &config, &first), 0);
	ck_assert_int_eq(answer(&first, "/data/f"), PAGE_SAYS_YES);
}

TEST(more_rules_than_there_is_room_for)
{
	static struct rule many[5000];
	struct config full = config;
	char pattern[300];

	memset(pattern, 'a', sizeof(pattern) - 1);
	pattern[0] = '/';
	pattern[sizeof(pattern) - 1] = '\0';
	for (size_t i = 0; i < sizeof(many) / sizeof(*many); i++)
		many[i] = (struct rule){.kind = PAGE_RULE_PATH, .pattern = pattern};
	full.rules = many;
	full.rule_count = sizeof(many) / sizeof(*many);
	ck_assert_int_eq(pagefile_publish(page, &config, &first), 0);
	ck_assert_int_eq(pagefile_publish(page, &full, &first), -ENOSPC);
	ck_assert_int_eq(answer(&first, "/data/g"), PAGE_SAYS_NOTHING); /* never "not protected" */
}

/* The next writer leaves the sequence number even, whatever it was. */
TEST(a_keeper_that_died_while_it_wrote)
{
	ck_assert_int_eq(pagefile_publish(page, &config, &first), 0);
	page->seq |= 1;
	ck_assert_int_eq(answer(&first, "/data/f"), PAGE_SAYS_NOTHING);
	ck_assert_int_eq(pagefile_publish(page, &config, &first), 0);
	ck_assert_uint_eq(page->seq % 2, 0);
	ck_assert_int_eq(answer(&first, "/data/f"), PAGE_SAYS_YES);
}

/* Programs have it mapped: the same file, never shorter, whatever the umask was. */
TEST(opened_again)
{
	struct stat before, after;

	ck_assert_int_eq(pagefile_publish(page, &config, &first), 0);
	ck_assert_int_eq(fstatat(dir, PAGE_NAME, &before, 0), 0);
	ck_assert_uint_eq(before.st_mode & 0777, 0644);
	ck_assert_int_ge(before.st_blocks * 512, sizeof(struct page)); /* no hole: SIGBUS if the tmpfs gets full */
	ck_assert_int_eq(fchmodat(dir, PAGE_NAME, 0600, 0), 0);
	pagefile_close(page);
	page = pagefile_open(dir, why, sizeof(why));
	ck_assert_msg(page, "%s", why);
	ck_assert_int_eq(fstatat(dir, PAGE_NAME, &after, 0), 0);
	ck_assert_uint_eq(after.st_ino, before.st_ino);
	ck_assert_uint_eq(after.st_mode & 0777, 0644);
	ck_assert_int_eq(after.st_size, PAGE_BYTES);
	ck_assert_int_eq(answer(&first, "/data/f"), PAGE_SAYS_YES);
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
