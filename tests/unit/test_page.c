/* What the shared page answers. */
#include "tests/unit/page_fixture.h"
#include "tests/unit/suite.h"

FIXTURE(setup, teardown)

TEST(page_answers)
{
	char message[PAGE_MESSAGE_BYTES];

	ck_assert_int_eq(page_ask(page, &mine, "/run/lock/a", NULL), PAGE_SAYS_YES);
	ck_assert_int_eq(page_ask(page, &mine, "/srv/x.lock", message), PAGE_SAYS_YES);
	ck_assert_int_eq(page_ask(page, &mine, "/mnt/share/x", NULL), PAGE_SAYS_YES);
	ck_assert_int_eq(page_ask(page, &mine, "/run/lock/b", NULL), PAGE_SAYS_NO);
	ck_assert_int_eq(page_ask(page, &mine, "", NULL), PAGE_SAYS_NO);
	page->rules_bytes = 0;
	ck_assert_int_eq(page_ask(page, &mine, "/run/lock/a", NULL), PAGE_SAYS_NO);
}

/* For messages: which rule it is; what does not fit is left out. */
TEST(which_rule)
{
	struct page_found found;

	page->config_hash = mine.path_hash;
	ck_assert(page_find_rule(page, &mine, "/mnt/share/x", &found));
	ck_assert_int_eq(found.kind, PAGE_RULE_TREE);
	ck_assert_str_eq(found.pattern, "/mnt/share");
	ck_assert(page_find_rule(page, &mine, "/srv/x.lock", &found));
	ck_assert_int_eq(found.kind, PAGE_RULE_GLOB);
	ck_assert(!page_find_rule(page, &mine, "/srv/x", &found));
}

static enum wire_on_refused on_refused(const struct page_config *config, const char *path)
{
	struct page_found found;

	return page_find_rule(page, config, path, &found) ? found.on_refused : WIRE_ON_REFUSED_REFUSE;
}

TEST(what_a_refused_call_gets)
{
	struct page_rule *first = (struct page_rule *)page->rules;
	struct page_config other = mine;

	other.path_hash++;
	page->config_hash = mine.path_hash;
	ck_assert_int_eq(on_refused(&mine, "/run/lock/a"), WIRE_ON_REFUSED_REFUSE);
	first->on_refused = WIRE_ON_REFUSED_WAIT;
	ck_assert_int_eq(on_refused(&mine, "/run/lock/a"), WIRE_ON_REFUSED_WAIT);
	ck_assert_int_eq(on_refused(&mine, "/mnt/share/x"), WIRE_ON_REFUSED_REFUSE);
	ck_assert_int_eq(on_refused(&mine, "/run/lock/b"), WIRE_ON_REFUSED_REFUSE);
	first->on_refused = WIRE_ON_REFUSED_VALUES;
	ck_assert_int_eq(on_refused(&mine, "/run/lock/a"), WIRE_ON_REFUSED_REFUSE);
	first->on_refused = WIRE_ON_REFUSED_BUSY;
	ck_assert_int_eq(on_refused(&mine, "/run/lock/a"), WIRE_ON_REFUSED_BUSY);
	/* Whatever has become of the file since, but not for another file. */
	page->config.ino++;
	ck_assert_int_eq(page_ask(page, &mine, "/run/lock/a", NULL), PAGE_SAYS_NOTHING);
	ck_assert_int_eq(on_refused(&mine, "/run/lock/a"), WIRE_ON_REFUSED_BUSY);
	page->state = PAGE_INVALID;
	ck_assert_int_eq(on_refused(&mine, "/run/lock/a"), WIRE_ON_REFUSED_BUSY);
	ck_assert_int_eq(on_refused(&other, "/run/lock/a"), WIRE_ON_REFUSED_REFUSE);
	page->version++;
	ck_assert_int_eq(on_refused(&mine, "/run/lock/a"), WIRE_ON_REFUSED_REFUSE);
}

/* Every file that a rule matches is below each directory of its path, and no other directory is claimed without
 * need. */
TEST(below_a_directory)
{
	static const struct {
		enum page_rule_kind kind;
		const char *pattern, *directory;
		enum page_answer answer;
	} cases[] = {
		{PAGE_RULE_PATH, "/srv/jail/x", "/srv/jail", PAGE_SAYS_YES},
		{PAGE_RULE_PATH, "/srv/jail/x", "/srv", PAGE_SAYS_YES},
		{PAGE_RULE_PATH, "/srv/jail/x", "", PAGE_SAYS_YES},
		{PAGE_RULE_PATH, "/srv/jail/x", "/", PAGE_SAYS_YES},
		{PAGE_RULE_PATH, "/srv/jail", "/srv/jail", PAGE_SAYS_YES},
		{PAGE_RULE_PATH, "/srv/jail2/x", "/srv/jail", PAGE_SAYS_NO},
		{PAGE_RULE_PATH, "/srv/jai", "/srv/jail", PAGE_SAYS_NO},
		{PAGE_RULE_PATH, "/srv", "/srv/jail", PAGE_SAYS_NO},
		{PAGE_RULE_GLOB, "/srv/jail/*", "/srv/jail", PAGE_SAYS_YES},
		{PAGE_RULE_GLOB, "/srv/*/x", "/srv/jail", PAGE_SAYS_YES},
		{PAGE_RULE_GLOB, "/srv/[j]ail/x", "/srv/jail", PAGE_SAYS_YES},
		{PAGE_RULE_GLOB, "/srv/\\jail/x", "/srv/jail", PAGE_SAYS_YES},
		{PAGE_RULE_GLOB, "/srw/*", "/srv/jail", PAGE_SAYS_NO},
		{PAGE_RULE_GLOB, "/srv/jail-*", "/srv/jail", PAGE_SAYS_NO},
		{PAGE_RULE_PATH, "/srv/*/x", "/srv/jail", PAGE_SAYS_NO},
		{PAGE_RULE_TREE, "/srv", "/srv/jail", PAGE_SAYS_YES},
		{PAGE_RULE_TREE, "/srv/", "/srv/jail", PAGE_SAYS_YES},
		{PAGE_RULE_TREE, "/", "/srv/jail", PAGE_SAYS_YES},
		{PAGE_RULE_TREE, "/srv/jail/a", "/srv/jail", PAGE_SAYS_YES},
		{PAGE_RULE_TREE, "/srv/ja", "/srv/jail", PAGE_SAYS_NO},
		{PAGE_RULE_TREE, "/srv/jail2", "/srv/jail", PAGE_SAYS_NO},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		size_t used = 0;

		ck_assert_int_eq(page_rule_append(page->rules, sizeof(page->rules), &used, cases[i].kind,
						  WIRE_ON_REFUSED_REFUSE, cases[i].pattern),
				 0);
		page->rules_bytes = (uint32_t)used;
		ck_assert_msg(page_ask_below(page, &mine, cases[i].directory) == cases[i].answer, "%s in %s",
			      cases[i].pattern, cases[i].directory);
	}
}

TEST(page_says_nothing)
{
	static const size_t words[] = {
		offsetof(struct wire_config_id, dev),      offsetof(struct wire_config_id, ino),
		offsetof(struct wire_config_id, size),     offsetof(struct wire_config_id, mtime_ns),
		offsetof(struct wire_config_id, ctime_ns),
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		for (int shift = 0; shift < 64; shift += 63) {
			struct page_config of_other = mine;

			*(uint64_t *)((char *)&of_other.id + words[i]) ^= 1ull << shift;
			ck_assert_int_eq(page_ask(page, &of_other, "/run/lock/a", NULL), PAGE_SAYS_NOTHING);
		}
	}
	page->seq = 7;
	ck_assert_int_eq(page_ask(page, &mine, "/run/lock/a", NULL), PAGE_SAYS_NOTHING);
	page->seq = 8;
	page->state = PAGE_EMPTY;
	ck_assert_int_eq(page_ask(page, &mine, "/run/lock/a", NULL), PAGE_SAYS_NOTHING);
	page->state = 99;
	ck_assert_int_eq(page_ask(page, &mine, "/run/lock/a", NULL), PAGE_SAYS_NOTHING);
	page->state = PAGE_RULES;
	page->version++;
	ck_assert_int_eq(page_ask(page, &mine, "/run/lock/a", NULL), PAGE_SAYS_NOTHING);
	page->version--;
	page->magic ^= 1ull << 40;
	ck_assert_int_eq(page_ask(page, &mine, "/run/lock/a", NULL), PAGE_SAYS_NOTHING);
}

/* The rules of a file are in force whatever its state, for programs that have it, and for no others. */
TEST(page_speaks_of_its_file)
{
	struct page_config of_other = mine;

	page->config_hash = 6;
	of_other.id.ino++;
	ck_assert_int_eq(page_ask(page, &of_other, "/run/lock/a", NULL), PAGE_SAYS_NOTHING);
	of_other.young = true;
	ck_assert_int_eq(page_ask(page, &of_other, "/run/lock/a", NULL), PAGE_SAYS_YES);
	ck_assert_int_eq(page_ask(page, &of_other, "/run/lock/b", NULL), PAGE_SAYS_NO);
	of_other.path_hash++;
	ck_assert_int_eq(page_ask(page, &of_other, "/run/lock/a", NULL), PAGE_SAYS_NOTHING);
	of_other.path_hash = page->config_hash = 0; /* means that it is not known */
	ck_assert_int_eq(page_ask(page, &of_other, "/run/lock/a", NULL), PAGE_SAYS_NOTHING);
	page->config_hash = 6;
	of_other.young = false;
	page->seen = of_other.id; /* by whatever path */
	ck_assert_int_eq(page_ask(page, &of_other, "/run/lock/a", NULL), PAGE_SAYS_YES);
	/* Missing files: that does not make two files the same. */
	of_other.id = page->seen = page->config = (struct wire_config_id){0};
	ck_assert_int_eq(page_ask(page, &of_other, "/run/lock/a", NULL), PAGE_SAYS_NOTHING);
	of_other.path_hash = 6;
	ck_assert_int_eq(page_ask(page, &of_other, "/run/lock/a", NULL), PAGE_SAYS_YES);
	/* An invalid file is refused in exactly that state. */
	page->state = PAGE_INVALID;
	page->config = page->seen = id;
	ck_assert_int_eq(page_ask(page, &mine, "/x", NULL), PAGE_SAYS_REFUSE);
	ck_assert_int_eq(page_ask(page, &of_other, "/x", NULL), PAGE_SAYS_NOTHING);
	of_other.id = page->seen = (struct wire_config_id){.ino = 77};
	of_other.young = true;
	ck_assert_int_eq(page_ask(page, &of_other, "/x", NULL), PAGE_SAYS_NOTHING);
}

TEST(page_refuses)
{
	char message[PAGE_MESSAGE_BYTES];
	struct page_config of_other = mine;

	page->state = PAGE_INVALID;
	strcpy(page->message, "/etc/dflock.conf:3: \x1b[31mwrong\n");
	ck_assert_int_eq(page_ask(page, &mine, "/x", message), PAGE_SAYS_REFUSE);
	ck_assert_str_eq(message, "/etc/dflock.conf:3: ?[31mwrong?");
	ck_assert_int_eq(page_ask(page, &mine, "/x", NULL), PAGE_SAYS_REFUSE);
	memset(page->message, 'x', sizeof(page->message));
	ck_assert_int_eq(page_ask(page, &mine, "/x", message), PAGE_SAYS_REFUSE);
	ck_assert_uint_eq(strlen(message), PAGE_MESSAGE_BYTES - 1);
	of_other.id.size++;
	ck_assert_int_eq(page_ask(page, &of_other, "/x", message), PAGE_SAYS_NOTHING);
}
