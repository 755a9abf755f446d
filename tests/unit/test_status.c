/*
 * keeper/callers/status.c: the document that `dflock status` shows, from the question to the descriptor that comes back. Here is what a
 * cluster hardly brings about: notes of leases in all states, holders that cannot be seen, texts and numbers that JSON has trouble with, and
 * sessions that end meanwhile. All else: tests/cli/test_status.py. Leases and sessions are real; the store, the census and what the document
 * also shows are here.
 */
#include <jansson.h>
#include <sys/socket.h>
#include <utlist.h>

#include "keeper/callers/configfile.h"
#include "keeper/callers/control.h"
#include "keeper/callers/ending.h"
#include "keeper/callers/metrics.h"
#include "keeper/callers/picture.h"
#include "keeper/callers/session.h"
#include "keeper/clock.h"
#include "keeper/kernel/census.h"
#include "keeper/leases/grace.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/keys.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/lost.h"
#include "keeper/leases/queue.h"
#include "keeper/leases/reopen.h"
#include "keeper/leases/room.h"
#include "keeper/leases/survey.h"
#include "tests/unit/suite.h"

static uv_loop_t loop;
static struct config config;
static struct configfile configfile;
static struct sessions sessions;
static struct keeper k;
static const struct config_store default_store = {.name = "", .shards = 1};
static struct file *file;
static struct session asker;
static int ends[2];

/* --- what the document also shows --- */

static bool hidden, frozen;
static enum store_status tried;
static const char *trouble, *version;
static void (*meanwhile)(void);

bool store_is_up(const struct store *store) { return true; }
void store_reach(struct store *store) {}
const char *store_incarnation(const struct store *store) { return "inc-1"; }
bool store_in_grace(const struct store *store) { return false; }
const char *store_last_error(const struct store *store) { return ""; }
const char *store_version(const struct store *store) { return version; }
const char *store_server(const struct store *store) { return "unix:/run/redis"; }
const char *store_engine_name(const struct store *store) { return "redis"; }
const char *store_risk(const struct store *store) { return ""; }
const char *store_trouble(const struct store *store) { return ""; }

void store_try_write(struct store *store, store_reply_cb *cb, void *arg)
{
	const struct store_reply reply = {.status = tried, .error = "it is full"};
	if (meanwhile)
		meanwhile();
	cb(arg, &reply);
}

void store_read_rules(struct store *store, const char *place, const char *digest, store_rules_cb *cb, void *arg)
{
	cb(arg, NULL, "not recorded");
}

void store_dump(struct store *store, const struct store_dump *to, void *arg)
{
	to->on_record(arg, &(struct store_picture){.incarnation = "inc-1", .open = true, .ttl_ms = 3000, .fence = -1});
	to->on_end(arg, NULL);
}

json_t *metrics_json(const struct keeper *of) { return json_object(); }
int64_t grace_left_ms(const struct member *member) { return 0; }
unsigned table_frozen(const struct table *table) { return frozen ? 3 : 0; }
bool table_is_hidden(const struct table *table, uint32_t slot) { return hidden; }
const char *configfile_state_name(enum configfile_state state) { return "same"; }
bool ending_waits(const struct keeper *keeper) { return false; }
void keys_say_taken(const struct lease *of, char *out, size_t size) { snprintf(out, size, "taken"); }
const char *reopen_trouble(const struct file *of) { return trouble; }
void room_leave(struct waiter *waiter) {}

/* `hidden`: there is a lock of a process that may not be looked into. */
int census_take(const struct claims *claims, struct holders_search *ask)
{
	struct holder h = {
		.how = HOLDER_NOBODY, .sight = SIGHT_BEYOND, .mode = WIRE_SHARED, .to = WIRE_EOF, .command = ""};
	if (!claims_count(claims) || !hidden)
		return 0;
	h.space = claims_at(claims, 0)->space;
	ask->files = claims->files;
	ask->count = claims->file_count;
	return ask->cb(ask->arg, &h);
}

/* --- a keeper with one file --- */

static struct lease *add_lease(enum lease_state state)
{
	const struct store_range all = {WIRE_FLOCK, WIRE_EXCLUSIVE, 0, WIRE_EOF};
	struct lease *lease = lease_new(&file->locks[WIRE_FLOCK], &all, 0);
	ck_assert_ptr_nonnull(lease);
	lease->state = state;
	return lease;
}

static void prepare(void)
{
	const struct stat st = {.st_dev = 1, .st_ino = 2};

	uv_loop_init(&loop);
	config = (struct config){.path = (char *)"/etc/dflock.conf",
				 .lease = {.ttl_ms = 3000, .freeze_margin_ms = 500, .on_lost = ON_LOST_FREEZE}};
	configfile = (struct configfile){.why = "because"};
	sessions = (struct sessions){0};
	k = (struct keeper){.member_count = 1,
			    .members[0] = {.keeper = &k,
					   .first = &k.members[0],
					   .config = &default_store,
					   .deadline.at_ns = clock_now_ns() + 3600 * 1000 * NS_PER_MS},
			    .loop = &loop,
			    .config = &config,
			    .configfile = &configfile,
			    .sessions = &sessions,
			    .host = "box-1",
			    .runtime_dir = "/run/x"};
	survey_start(&k);
	queue_stop(&k); /* no lease takes a step here */
	ck_assert_int_eq(file_get(&k.members[0], &st, true, "/srv/x", "jobs/x", -1, &file), 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	asker = (struct session){.keeper = &k, .fd = ends[1], .peer = {.pid = 4711}};
	uv_timer_init(&loop, &asker.timer);
	DL_APPEND(sessions.all, &asker);
	hidden = frozen = false;
	tried = STORE_OK;
	trouble = NULL;
	version = "7.0";
	meanwhile = NULL;
}

static void clean(void)
{
	struct lease *lease, *next;

	HASH_ITER (hh, k.leases, lease, next)
		lease_free(lease);
	file_free(file);
	survey_stop(&k);
	uv_close((uv_handle_t *)&asker.timer, NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
	close(ends[0]);
	close(ends[1]);
}
FIXTURE(prepare, clean)

/* Asks, and waits for the answer. Returns the descriptor that comes with it; -1: none. */
static int ask(struct wire_reply *reply)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec iov = {.iov_base = reply, .iov_len = sizeof(*reply)};
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	int fd = -1;

	memset(reply, 0, sizeof(*reply));
	status_start(&asker);
	ck_assert_int_eq(recv(ends[0], reply, sizeof(*reply), MSG_DONTWAIT), -1); /* later */
	uv_run(&loop, UV_RUN_DEFAULT);
	if (recvmsg(ends[0], &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) > 0 && msg.msg_controllen)
		memcpy(&fd, CMSG_DATA(&control.head), sizeof(fd));
	return fd;
}

static json_t *document(void)
{
	struct wire_reply reply;
	int fd = ask(&reply);
	json_t *doc;

	ck_assert_int_eq(reply.verdict, WIRE_OK);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(lseek(fd, 0, SEEK_CUR), 0);
	doc = json_loadfd(fd, 0, NULL);
	ck_assert_ptr_nonnull(doc);
	close(fd);
	return doc;
}

static void check_text(const json_t *object, const char *key, const char *text)
{
	ck_assert_msg(json_is_string(json_object_get(object, key)), "no text: %s", key);
	ck_assert_str_eq(json_string_value(json_object_get(object, key)), text);
}

static const json_t *nth(const json_t *object, const char *key, size_t i)
{
	const json_t *list = json_object_get(object, key);
	ck_assert_msg(json_array_size(list) > i, "%s: only %zu", key, json_array_size(list));
	return json_array_get(list, i);
}

static void check_note(const char *note)
{
	json_t *doc = document();
	check_text(nth(doc, "leases", 0), "note", note);
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
	const json_t *row, *held;
	json_t *doc;

	add_lease(LEASE_OPEN)->fence = 9007199254740993; /* more than a double tells apart */
	hidden = true;
	doc = document();
	row = nth(doc, "leases", 0);
	held = nth(row, "holders", 0);
	ck_assert_int_eq(json_integer_value(json_object_get(row, "fence")), 9007199254740993);
	ck_assert(json_is_null(json_object_get(row, "to")));
	ck_assert_int_eq(json_integer_value(json_object_get(held, "pid")), 0);
	ck_assert(json_is_true(json_object_get(held, "unseen")) && json_is_true(json_object_get(held, "unstoppable")));
	json_decref(doc);
}

TEST(a_path_that_is_no_text)
{
	struct lost_lease lost = {.name = (char *)"jobs/y",
				  .path = (char *)"/srv/\xff",
				  .file = file_searched(file),
				  .range = {WIRE_FLOCK, WIRE_EXCLUSIVE, 0, WIRE_EOF},
				  .when = 99,
				  .why = "taken"};
	json_t *doc;

	DL_APPEND(k.lost.all, &lost);
	k.lost.count = 1;
	doc = document();
	check_text(nth(doc, "lost", 0), "name", "jobs/y");
	check_text(nth(doc, "lost", 0), "path", "/srv/\\xff");
	json_decref(doc);
	DL_DELETE(k.lost.all, &lost);
}

/* The server tells it. */
TEST(a_version_that_is_no_text)
{
	json_t *doc;

	version = "7.0\xff";
	doc = document();
	check_text(json_object_get(doc, "store"), "version", "7.0\\xff");
	json_decref(doc);
}

static const struct {
	enum store_status tried;
	const char *refuses;
} answers[] = {{STORE_OK, ""}, {STORE_ERROR, "it is full"}, {STORE_UNREACHABLE, ""}};

/* Only an answer of the store is a refusal; that it cannot be reached stands in "error". */
TEST_EACH(what_the_store_refuses, ROWS(answers))
{
	json_t *doc;
	tried = answers[_i].tried;
	doc = document();
	check_text(json_object_get(doc, "store"), "refuses", answers[_i].refuses);
	json_decref(doc);
}

/* --- what ends meanwhile --- */

static enum session_state goes_to;

static void leave_it(void) { session_enter(&asker, goes_to); }

TEST_EACH(nobody_waits_any_more, 2)
{
	struct wire_reply reply;
	goes_to = _i ? SESSION_CLOSED : SESSION_READING;
	meanwhile = leave_it;
	ck_assert_int_eq(ask(&reply), -1);
	ck_assert_int_eq(reply.verdict, 0);
}

TEST(keeper_ends)
{
	json_t *doc;
	k.leaving = true;
	meanwhile = abort; /* the store is not asked */
	doc = document();
	check_text(doc, "cluster_error", "the keeper ends");
	json_decref(doc);
}
