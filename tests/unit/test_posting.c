/* keeper/leases/posting.c: what a keeper tells other hosts of its rules, under which place, and what the log says if it cannot. */
#include "keeper/leases/posting.h"

#include "config/ruleset.h"
#include "keeper/leases/keeper.h"
#include "keeper/log.h"
#include "tests/unit/config_file.h"
#include "tests/unit/said.h"

static struct keeper k;
static bool up;
static char text[RULESET_BYTES], digest[RULESET_DIGEST_BYTES], place[POSTING_PLACE_BYTES];
static int64_t keep_ms;
static store_reply_cb *answer;

bool store_is_up(const struct store *store) { return up; }

void store_post_rules(struct store *store, const struct store_posting *posting, store_reply_cb *cb, void *arg)
{
	ck_assert_ptr_eq(arg, &k.members[0]);
	snprintf(text, sizeof(text), "%s", posting->text);
	snprintf(digest, sizeof(digest), "%s", posting->digest);
	snprintf(place, sizeof(place), "%s", posting->place);
	keep_ms = posting->keep_ms;
	answer = cb;
	say("posted");
}

static store_rules_cb *compared;

void store_read_rules(struct store *store, const char *of, const char *same_as, store_rules_cb *cb, void *arg)
{
	ck_assert_ptr_eq(arg, &k.members[0]);
	ck_assert_str_eq(of, k.members[0].posting.place);
	ck_assert_str_eq(same_as, digest);
	compared = cb;
	say("asked");
}

void log_debug(const char *format, ...)
{
	ck_assert_ptr_nonnull(strstr(format, "not known"));
	say("not known");
}

void log_event(enum event_kind kind, const char *format, ...)
{
	ck_assert_int_eq(kind, LINE_RULES_NOT_SHARED);
	ck_assert_ptr_nonnull(strstr(format, "other hosts cannot compare"));
	say("logged");
}

static void begin(void)
{
	setup();
	read_ok("host = \"a\"; lease = { sweep_ms = 86400001; };\nprotect = ( { path = \"/srv/x\"; name = \"x\"; } );");
	k = (struct keeper){.member_count = 1,
			    .members[0].keeper = &k,
			    .config = config,
			    .host = "a-0123456789abcdef",
			    .runtime_dir = "/run/user/1/dflock"};
	up = true;
	said[0] = '\0';
}
FIXTURE(begin, teardown)

static const char *place_of(const char *dir)
{
	static char places[2][POSTING_PLACE_BYTES];
	static int n;

	snprintf(k.runtime_dir, sizeof(k.runtime_dir), "%s", dir);
	posting_start(&k.members[0]);
	ck_assert_uint_eq(strlen(k.members[0].posting.place), POSTING_PLACE_BYTES - 1);
	n = !n;
	return strcpy(places[n], k.members[0].posting.place);
}

/* The next keeper there replaces what this one has posted; one of another directory, or of another host's name, does not. */
TEST(places)
{
	const char *here = place_of("/run/a");

	strcpy(k.host, "a-fedcba9876543210");
	ck_assert_str_eq(place_of("/run/a"), here);
	here = place_of("/run/a");
	ck_assert_str_ne(place_of("/run/b"), here);
	here = place_of("/run/a");
	free(config->host);
	config->host = strdup("b");
	ck_assert_str_ne(place_of("/run/a"), here);
}

TEST(what_is_posted)
{
	char *rules = ruleset_text(config), of_rules[RULESET_DIGEST_BYTES];

	ck_assert_ptr_nonnull(strstr(rules, "/srv/x"));
	ruleset_digest(rules, of_rules);
	posting_start(&k.members[0]);
	posting_send(&k.members[0]);
	check_said("posted");
	ck_assert_str_eq(text, rules);
	ck_assert_str_eq(digest, of_rules);
	ck_assert_str_eq(place, k.members[0].posting.place);
	ck_assert_int_eq(keep_ms, 86400001);
	free(rules);
}

TEST(nothing_while_the_store_is_down)
{
	up = false;
	posting_send(&k.members[0]);
	check_said("");
}

/* Their digest alone: other hosts see that the rules are others, and not which. */
TEST(rules_that_are_too_long)
{
	char *many = NULL;
	size_t len;
	FILE *f = open_memstream(&many, &len);

	fputs("protect = ( { path = \"/srv/first\"; }", f);
	for (int i = 0; i < 400; i++)
		fprintf(f, ", { path = \"/srv/%0100d\"; name = \"%0100d\"; }", i, i);
	fputs(" );", f);
	fclose(f);
	read_ok(many);
	free(many);
	k.config = config;
	posting_send(&k.members[0]);
	check_said("posted");
	ck_assert_str_eq(text, "");
	ck_assert_uint_eq(strlen(digest), RULESET_DIGEST_BYTES - 1);
}

static void send_and_hear(enum store_status status)
{
	posting_send(&k.members[0]);
	answer(&k, &(struct store_reply){.status = status, .error = "no"});
}

TEST_EACH(refusals_are_logged_once, 2)
{
	const enum store_status refusal = _i ? STORE_LIMIT : STORE_ERROR;

	send_and_hear(refusal);
	check_said("posted, logged");
	send_and_hear(refusal);
	send_and_hear(STORE_UNREACHABLE);
	send_and_hear(refusal);
	check_said("posted, posted, posted");
	send_and_hear(STORE_OK);
	send_and_hear(refusal);
	check_said("posted, posted, logged");
}

/* The answer is there the next time; the store is not asked more often than that. */
TEST(compares)
{
	const struct store_rules rules = {
		.same = 3, .unknown = 1, .left_out = 4, .count = 2, .sets = {{.places = 2}, {.places = 5}}};

	posting_start(&k.members[0]);
	posting_send(&k.members[0]);
	check_said("posted");
	posting_compare(&k.members[0]);
	posting_compare(&k.members[0]);
	check_said("asked"); /* one question at a time */
	ck_assert_int_eq(k.members[0].posting.compared_at, 0);
	compared(&k.members[0], &rules, NULL);
	ck_assert_int_gt(k.members[0].posting.compared_at, 0);
	ck_assert_uint_eq(k.members[0].posting.compared.same, 3);
	ck_assert_uint_eq(k.members[0].posting.compared.different, 11);
	ck_assert_uint_eq(k.members[0].posting.compared.unknown, 1);
	posting_compare(&k.members[0]);
	check_said("");
	k.members[0].posting.asked_ns -= POSTING_COMPARE_MS * 1000000ll;
	posting_compare(&k.members[0]);
	compared(&k.members[0], NULL, "away");
	check_said("asked, not known");
	ck_assert_uint_eq(k.members[0].posting.compared.different, 11); /* as it was */
	k.members[0].posting.asked_ns -= POSTING_COMPARE_MS * 1000000ll;
	up = false;
	posting_compare(&k.members[0]);
	check_said("");
}
