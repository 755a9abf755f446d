/* keeper/callers/status.c: the document that `dflock status` shows, from the question to the descriptor that comes back. */
#include "tests/unit/status_fixture.h"

FIXTURE(prepare, clean)

TEST(keeper_and_store)
{
	json_t *doc = document(), *store = json_object_get(doc, "store"), *rules = json_object_get(doc, "rules");

	ck_assert_str_eq(text(doc, "host"), "box-1");
	ck_assert_str_eq(text(doc, "config"), "/etc/dflock.conf");
	ck_assert_str_eq(text(doc, "runtime_dir"), "/run/x");
	ck_assert_int_eq(number(doc, "pid"), getpid());
	ck_assert_int_eq(number(doc, "frozen"), 0);
	ck_assert_str_eq(text(rules, "file"), "same");
	ck_assert_str_eq(text(rules, "why"), "because");
	ck_assert_str_eq(text(store, "server"), "unix:/run/redis");
	ck_assert_str_eq(text(store, "incarnation"), "inc-1");
	ck_assert(json_is_true(json_object_get(store, "up")) && json_is_false(json_object_get(store, "grace")));
	ck_assert_int_eq(number(store, "deadline_left_ms") - number(store, "sure_left_ms"), 500);
	ck_assert_str_eq(text(store, "on_lost"), "freeze");
	ck_assert_str_eq(text(store, "refuses"), "");
	ck_assert_str_eq(text(store, "error"), "");
	ck_assert(json_is_true(json_object_get(json_object_get(doc, "cluster"), "open")));
	ck_assert(json_is_null(json_object_get(json_object_get(doc, "cluster"), "fence")));
	ck_assert_str_eq(text(doc, "cluster_error"), "");
	ck_assert_int_eq(number(doc, "schema"), PICTURE_SCHEMA);
	ck_assert(json_is_object(json_object_get(doc, "metrics")));
	ck_assert_str_eq(text(store, "trouble"), "");
	ck_assert_str_eq(text(json_object_get(doc, "elsewhere"), "error"), "not recorded");
	ck_assert_uint_eq(json_array_size(json_object_get(doc, "leases")), 0);
	json_decref(doc);
}

TEST(leases_and_who_holds_them)
{
	struct lease *lease = add_lease(LEASE_OPEN);
	json_t *doc = document();
	const json_t *row = nth(doc, "leases", 0), *held = nth(row, "holders", 0);

	ck_assert_str_eq(text(row, "name"), "jobs/x");
	ck_assert_str_eq(text(row, "path"), path);
	ck_assert_str_eq(text(row, "space"), "flock");
	ck_assert_str_eq(text(row, "mode"), "exclusive");
	ck_assert_str_eq(text(row, "token"), lease->token);
	ck_assert_str_eq(text(row, "state"), "held");
	ck_assert_str_eq(text(row, "note"), "");
	ck_assert_str_eq(text(row, "on_lost"), "freeze");
	ck_assert_int_eq(number(row, "fence"), 9007199254740993);
	ck_assert_int_eq(number(row, "since"), 12345);
	ck_assert_int_eq(number(row, "from"), 0);
	ck_assert(json_is_null(json_object_get(row, "to")));
	ck_assert_uint_eq(json_array_size(json_object_get(row, "holders")), 1);
	ck_assert_int_eq(number(held, "pid"), holder);
	ck_assert_str_eq(text(held, "mode"), "exclusive");
	ck_assert_str_ne(text(held, "command"), "");
	ck_assert_int_gt(number(held, "started"), 1000000000);
	json_decref(doc);
}

/* Each row has the holders of its own range. */
TEST(ranges)
{
	const struct store_range part = {WIRE_RECORD, WIRE_SHARED, 5, 7};
	json_t *doc;

	lease_new(&file->locks[WIRE_RECORD], &part, 0)->state = LEASE_OPEN;
	doc = document();
	ck_assert_str_eq(text(nth(doc, "leases", 0), "space"), "record");
	ck_assert_str_eq(text(nth(doc, "leases", 0), "mode"), "shared");
	ck_assert_int_eq(number(nth(doc, "leases", 0), "from"), 5);
	ck_assert_int_eq(number(nth(doc, "leases", 0), "to"), 7);
	ck_assert_uint_eq(json_array_size(json_object_get(nth(doc, "leases", 0), "holders")), 0);
	json_decref(doc);
}

static void check_note(const char *note)
{
	json_t *doc = document();

	ck_assert_str_eq(text(nth(doc, "leases", 0), "note"), note);
	json_decref(doc);
}

TEST(notes)
{
	struct lease *lease = add_lease(LEASE_ASKING);

	check_note("being asked for");
	lease->asking.queued = true;
	check_note("waits for another host");
	lease->state = LEASE_OPEN;
	lease->recalled.level = RECALL_LINGER;
	check_note("");
	lease->recalled.level = RECALL_ASK;
	check_note("wanted by another host");
	lease->state = LEASE_UNSURE;
	check_note("was not renewed in time; closed until the store confirms it");
	trouble = "EIO";
	check_note("EIO");
	lease->state = LEASE_RELEASING;
	check_note("wanted by another host");
	frozen = true;
	check_note("cannot be renewed: its holders are frozen until the store answers");
	k.members[0].deadline.at_ns = 1;
	check_note("ran out: its holders are frozen; they go on if the store still has it, and are killed if another "
		   "host has had it or the store comes back without its memory");
	config.lease.on_lost = ON_LOST_WARN;
	check_note("wanted by another host");
	hidden = true;
	check_note("cannot be renewed; held, but no holder can be stopped");
}

TEST(a_holder_that_cannot_be_seen)
{
	const json_t *row;
	json_t *doc;

	add_lease(LEASE_OPEN);
	hidden = true;
	doc = document();
	row = nth(nth(doc, "leases", 0), "holders", 1);
	ck_assert_int_eq(number(row, "pid"), 0);
	ck_assert(json_is_true(json_object_get(row, "unseen")) && json_is_true(json_object_get(row, "unstoppable")));
	json_decref(doc);
}

TEST(callers_that_wait)
{
	struct lease *lease = add_lease(LEASE_ASKING);
	json_t *doc;
	size_t mine = 0;

	add_lease(LEASE_ASKING);
	caller.request.mode = WIRE_SHARED;
	caller.started = 777;
	caller.waiter.nonblocking = true;
	waiters_add(&caller.waiter, &file->locks[WIRE_FLOCK]);
	waiters_join(&caller.waiter, lease);
	doc = document();
	if (strcmp(text(nth(doc, "leases", 0), "token"), lease->token) != 0)
		mine = 1;
	ck_assert_uint_eq(json_array_size(json_object_get(nth(doc, "leases", !mine), "waiting")), 0);
	ck_assert_int_eq(number(nth(nth(doc, "leases", mine), "waiting", 0), "pid"), 4711);
	ck_assert_int_eq(number(nth(nth(doc, "leases", mine), "waiting", 0), "since"), 777);
	ck_assert_str_eq(text(nth(nth(doc, "leases", mine), "waiting", 0), "mode"), "shared");
	json_decref(doc);
}

TEST(lost_leases)
{
	struct lost_lease lost = {.name = (char *)"jobs/y",
				  .path = (char *)"/srv/\xff",
				  .file = file_searched(file),
				  .range = {WIRE_FLOCK, WIRE_EXCLUSIVE, 0, WIRE_EOF},
				  .fence = 5,
				  .when = 99,
				  .why = "taken"};
	json_t *doc;

	DL_APPEND(k.lost.all, &lost);
	k.lost.count = 1;
	doc = document();
	ck_assert_str_eq(text(nth(doc, "lost", 0), "name"), "jobs/y");
	ck_assert_str_eq(text(nth(doc, "lost", 0), "path"), "(not UTF-8)");
	ck_assert_str_eq(text(nth(doc, "lost", 0), "why"), "taken");
	ck_assert_int_eq(number(nth(doc, "lost", 0), "when"), 99);
	ck_assert_int_eq(number(nth(nth(doc, "lost", 0), "holders", 0), "pid"), holder);
	json_decref(doc);
	DL_DELETE(k.lost.all, &lost);
}

/* --- the store --- */

TEST(store_away)
{
	json_t *doc;

	up = false;
	tried = STORE_ERROR;
	dump_error = "no answer";
	k.members[0].deadline.at_ns = 1;
	doc = document();
	ck_assert_str_eq(text(json_object_get(doc, "store"), "error"), "it is away");
	ck_assert_str_eq(text(json_object_get(doc, "store"), "trouble"), "is not reachable");
	ck_assert_str_eq(text(json_object_get(doc, "store"), "refuses"), "it is full");
	ck_assert_int_eq(number(json_object_get(doc, "store"), "deadline_left_ms"), 0);
	ck_assert_int_eq(number(json_object_get(doc, "store"), "sure_left_ms"), 0);
	ck_assert(json_is_null(json_object_get(doc, "cluster")));
	ck_assert_str_eq(text(doc, "cluster_error"), "no answer");
	json_decref(doc);
}

/* Only an answer of the store is one; that it cannot be reached stands in "error". */
TEST(store_unreachable)
{
	json_t *doc;

	tried = STORE_UNREACHABLE;
	doc = document();
	ck_assert_str_eq(text(json_object_get(doc, "store"), "refuses"), "");
	json_decref(doc);
}

/* --- a session that ends meanwhile --- */

static enum session_state goes_to;

static void leave_it(void) { session_enter(&asker, goes_to); }

TEST_EACH(nobody_waits_any_more, 2)
{
	struct wire_reply reply;
	int fd;

	goes_to = _i ? SESSION_CLOSED : SESSION_READING;
	meanwhile = leave_it;
	ask(&reply, &fd);
	ck_assert_int_eq(reply.verdict, 0);
	ck_assert_int_eq(fd, -1);
}

TEST(keeper_ends)
{
	json_t *doc;

	k.leaving = true;
	meanwhile = abort; /* the store is not asked */
	doc = document();
	ck_assert_str_eq(text(doc, "cluster_error"), "the keeper ends");
	ck_assert_str_eq(text(json_object_get(doc, "elsewhere"), "error"), "not asked");
	json_decref(doc);
}
