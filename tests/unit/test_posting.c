/* keeper/leases/posting.c: what a keeper tells other hosts of its rules, under which place, and what the log says if it cannot. */
#include "keeper/leases/posting.h"

#include "config/ruleset.h"
#include "keeper/leases/keeper.h"
#include "keeper/log.h"
#include "tests/unit/config_file.h"
#include "tests/unit/said.h"

static struct keeper k;
static struct member *const m = &k.members[0];
static bool up;
static char text[RULESET_BYTES], digest[RULESET_DIGEST_BYTES], place[POSTING_PLACE_BYTES];
static int64_t keep_ms;
static store_reply_cb *answer;

bool store_is_up(const struct store *store) { return up; }

void store_post_rules(struct store *store, const struct store_posting *posting, store_reply_cb *cb, void *arg)
{
	ck_assert_ptr_eq(arg, m);
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
	ck_assert_ptr_eq(arg, m);
	ck_assert_str_eq(of, m->posting.place);
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
	read_ok("host = 'a'; lease = { sweep_ms = 86400001; };\nprotect = ( { path = '/srv/x'; name = 'x'; } );");
	k = (struct keeper){.member_count = 1,
			    .members[0].keeper = &k,
			    .config = config,
			    .host = "a-0123456789abcdef",
			    .runtime_dir = "/run/user/1/dflock"};
	up = true;
	said[0] = '\0';
}
FIXTURE(begin, teardown)

/* The next keeper there replaces what this one has posted; one of another directory, or of another host's name, does not. */
TEST(places)
{
	static const struct {
		const char *dir, *host_id, *host;
		bool same;
	} keepers[] = {{"/run/a", "a-0123456789abcdef", "a", true},
		       {"/run/a", "a-fedcba9876543210", "a", true},
		       {"/run/b", "a-0123456789abcdef", "a", false},
		       {"/run/a", "a-0123456789abcdef", "b", false}};
	char first[POSTING_PLACE_BYTES];

	for (int i = 0; i < ROWS(keepers); i++) {
		strcpy(k.runtime_dir, keepers[i].dir);
		strcpy(k.host, keepers[i].host_id);
		free(config->host);
		config->host = strdup(keepers[i].host);
		posting_start(m);
		ck_assert_uint_eq(strlen(m->posting.place), POSTING_PLACE_BYTES - 1);
		if (i == 0)
			strcpy(first, m->posting.place);
		ck_assert_int_eq(strcmp(m->posting.place, first) == 0, keepers[i].same);
	}
}

TEST(what_is_posted)
{
	char *rules = ruleset_text(config), *many = NULL, of_rules[RULESET_DIGEST_BYTES];
	size_t len;
	FILE *f;

	posting_start(m);
	up = false;
	posting_send(m);
	check_said("");
	up = true;
	posting_send(m);
	check_said("posted");
	ck_assert_ptr_nonnull(strstr(rules, "/srv/x"));
	ruleset_digest(rules, of_rules);
	ck_assert_str_eq(text, rules);
	ck_assert_str_eq(digest, of_rules);
	ck_assert_str_eq(place, m->posting.place);
	ck_assert_int_eq(keep_ms, 86400001);
	free(rules);
	/* Of rules that are too long the digest alone: other hosts see that the rules are others, and not which. */
	f = open_memstream(&many, &len);
	fputs("protect = ( { path = '/srv/first'; }", f);
	for (int i = 0; i < 400; i++)
		fprintf(f, ", { path = '/srv/%0100d'; name = '%0100d'; }", i, i);
	fputs(" );", f);
	fclose(f);
	read_ok(many);
	free(many);
	k.config = config;
	posting_send(m);
	check_said("posted");
	ck_assert_str_eq(text, "");
	ck_assert_uint_eq(strlen(digest), RULESET_DIGEST_BYTES - 1);
}

static void send_and_hear(enum store_status status)
{
	posting_send(m);
	answer(m, &(struct store_reply){.status = status, .error = "no"});
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

	posting_start(m);
	posting_send(m);
	posting_compare(m);
	posting_compare(m);
	check_said("posted, asked"); /* one question at a time */
	ck_assert_int_eq(m->posting.compared_at, 0);
	compared(m, &rules, NULL);
	ck_assert_int_gt(m->posting.compared_at, 0);
	ck_assert_uint_eq(m->posting.compared.same, 3);
	ck_assert_uint_eq(m->posting.compared.different, 11);
	ck_assert_uint_eq(m->posting.compared.unknown, 1);
	posting_compare(m);
	check_said("");
	m->posting.asked_ns -= POSTING_COMPARE_MS * 1000000ll;
	posting_compare(m);
	compared(m, NULL, "away");
	check_said("asked, not known");
	ck_assert_uint_eq(m->posting.compared.different, 11); /* as it was */
	m->posting.asked_ns -= POSTING_COMPARE_MS * 1000000ll;
	up = false;
	posting_compare(m);
	check_said("");
}
