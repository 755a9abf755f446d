/*
 * For the tests of keeper/callers/status.c: a keeper with one file, whose lock a child holds, and two sessions. Leases, sessions and
 * the search for holders are real; the store and what the document also shows are here.
 */
#ifndef DFLOCK_TESTS_UNIT_STATUS_FIXTURE_H
#define DFLOCK_TESTS_UNIT_STATUS_FIXTURE_H

#include <jansson.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <utlist.h>

#include "keeper/callers/configfile.h"
#include "keeper/callers/ending.h"
#include "keeper/callers/metrics.h"
#include "keeper/callers/picture.h"
#include "keeper/callers/session.h"
#include "keeper/callers/control.h"
#include "keeper/clock.h"
#include "keeper/guard/deeds.h"
#include "keeper/kernel/census.h"
#include "keeper/leases/grace.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/keys.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/lost.h"
#include "keeper/leases/reopen.h"
#include "keeper/leases/queue.h"
#include "keeper/leases/room.h"
#include "keeper/leases/survey.h"
#include "keeper/leases/waiters.h"
#include "tests/unit/suite.h"

static uv_loop_t loop;
static struct config config;
static struct configfile configfile;
static struct sessions sessions;
static struct keeper k;
static const struct config_store default_store = {.name = "", .shards = 1};
static struct file *file;
static struct session asker, caller;
static char path[SUITE_PATH_BYTES];
static int lock_fd, ends[2];
static pid_t holder;

/* --- what the document also shows --- */

static bool up, hidden, frozen;
static enum store_status tried;
static const char *dump_error, *trouble;
static void (*meanwhile)(void);

bool store_is_up(const struct store *store) { return up; }
void store_reach(struct store *store) {}
const char *store_incarnation(const struct store *store) { return "inc-1"; }
bool store_in_grace(const struct store *store) { return false; }
const char *store_last_error(const struct store *store) { return up ? "" : "it is away"; }
const char *store_version(const struct store *store) { return "7.0"; }
const char *store_server(const struct store *store) { return "unix:/run/redis"; }
const char *store_engine_name(const struct store *store) { return "redis"; }
const char *store_risk(const struct store *store) { return ""; }

void store_try_write(struct store *store, store_reply_cb *cb, void *arg)
{
	const struct store_reply reply = {.status = tried, .error = "it is full"};

	if (meanwhile)
		meanwhile();
	cb(arg, &reply);
}

const char *store_trouble(const struct store *store) { return "is not reachable"; }

void store_read_rules(struct store *store, const char *place, const char *digest, store_rules_cb *cb, void *arg)
{
	ck_assert_str_eq(digest, "digest");
	cb(arg, NULL, "not recorded");
}

/* The rules of other hosts: the answer alone, here. */
static struct elsewhere {
	const char *error;
} elsewhere;

struct elsewhere *elsewhere_new(const struct config *of)
{
	ck_assert_ptr_eq(of, &config);
	elsewhere.error = "not asked";
	return &elsewhere;
}

void elsewhere_free(struct elsewhere *e) {}
const char *elsewhere_digest(const struct elsewhere *e) { return "digest"; }

void elsewhere_take(struct elsewhere *e, const struct store_rules *rules, const char *error)
{
	ck_assert_ptr_null(rules);
	e->error = error;
}

json_t *elsewhere_json(const struct elsewhere *e) { return json_pack("{s:s}", "error", e->error); }

void store_dump(struct store *store, const struct store_dump *to, void *arg)
{
	to->on_record(arg, &(struct store_picture){.incarnation = "inc-1", .open = true, .ttl_ms = 3000, .fence = -1});
	to->on_end(arg, dump_error);
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

/* `hidden`: there is a lock of a process that may not be looked into, too. */
int census_take(const struct claims *claims, struct holders_search *ask)
{
	struct holder h = {
		.how = HOLDER_NOBODY, .sight = SIGHT_BEYOND, .mode = WIRE_SHARED, .to = WIRE_EOF, .command = ""};
	int ret;

	if (!claims_count(claims))
		return 0;
	h.space = claims_at(claims, 0)->space;
	ask->files = claims->files;
	ask->count = claims->file_count;
	ret = holders_search(ask);
	return ret || !hidden ? ret : ask->cb(ask->arg, &h);
}

/* --- a keeper with one lease, whose lock a child holds --- */

static inline pid_t hold(void)
{
	pid_t pid = suite_fork();

	if (pid == 0) {
		int fd = open(path, O_RDWR | O_CLOEXEC);

		close(lock_fd);
		if (flock(fd, LOCK_EX) != 0)
			_exit(1);
		suite_rest();
	}
	return pid;
}

static inline void begin_session(struct session *s, int fd)
{
	*s = (struct session){.keeper = &k, .fd = fd, .peer = {.pid = 4711}};
	uv_timer_init(&loop, &s->timer);
	DL_APPEND(sessions.all, s);
}

static inline struct lease *add_lease(enum lease_state state)
{
	const struct store_range all = {WIRE_FLOCK, WIRE_EXCLUSIVE, 0, WIRE_EOF};
	struct lease *lease = lease_new(&file->locks[WIRE_FLOCK], &all, 0);

	ck_assert_ptr_nonnull(lease);
	lease->state = state;
	lease->fence = 9007199254740993; /* more than a double tells apart */
	lease->held_at = 12345;
	return lease;
}

static inline void prepare(void)
{
	struct stat st;

	lock_fd = suite_make_file(path, "/tmp");
	ck_assert_int_eq(fstat(lock_fd, &st), 0);
	holder = hold();
	uv_loop_init(&loop);
	config = (struct config){.path = (char *)"/etc/dflock.conf",
				 .lease = {.ttl_ms = 3000, .freeze_margin_ms = 500, .on_lost = ON_LOST_FREEZE}};
	configfile = (struct configfile){.why = "because"};
	sessions = (struct sessions){0};
	k = (struct keeper){.member_count = 1,
			    .members[0].keeper = &k,
			    .members[0].first = &k.members[0],
			    .members[0].config = &default_store,
			    .loop = &loop,
			    .config = &config,
			    .configfile = &configfile,
			    .sessions = &sessions,
			    .host = "box-1",
			    .runtime_dir = "/run/x",
			    .members[0].deadline.at_ns = clock_now_ns() + 3600 * 1000 * NS_PER_MS};
	survey_start(&k);
	queue_stop(&k); /* no lease takes a step here */
	ck_assert_int_eq(file_get(&k.members[0], &st, true, path, "jobs/x", -1, &file), 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	begin_session(&asker, ends[1]);
	begin_session(&caller, -1);
	up = true;
	hidden = frozen = false;
	tried = STORE_OK;
	dump_error = trouble = NULL;
	meanwhile = NULL;
}

static inline void clean(void)
{
	struct lease *lease, *next;

	kill(holder, SIGKILL);
	waitpid(holder, NULL, 0);
	if (caller.waiter.lock)
		waiters_remove(&caller.waiter);
	HASH_ITER (hh, k.leases, lease, next)
		lease_free(lease);
	file_free(file);
	survey_stop(&k);
	uv_close((uv_handle_t *)&asker.timer, NULL);
	uv_close((uv_handle_t *)&caller.timer, NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
	close(ends[0]);
	close(ends[1]);
	close(lock_fd);
	unlink(path);
}

/* Asks, and waits for the answer. */
static inline void ask(struct wire_reply *reply, int *fd)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec iov = {.iov_base = reply, .iov_len = sizeof(*reply)};
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};

	memset(reply, 0, sizeof(*reply));
	*fd = -1;
	status_start(&asker);
	ck_assert_int_eq(recv(ends[0], reply, sizeof(*reply), MSG_DONTWAIT), -1); /* later */
	uv_run(&loop, UV_RUN_DEFAULT);
	if (recvmsg(ends[0], &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) > 0 && msg.msg_controllen)
		memcpy(fd, CMSG_DATA(&control.head), sizeof(*fd));
}

static inline json_t *document(void)
{
	struct wire_reply reply;
	int fd;
	json_t *doc;

	ask(&reply, &fd);
	ck_assert_int_eq(reply.verdict, WIRE_OK);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(lseek(fd, 0, SEEK_CUR), 0);
	doc = json_loadfd(fd, 0, NULL);
	ck_assert_ptr_nonnull(doc);
	close(fd);
	return doc;
}

static inline const char *text(const json_t *object, const char *key)
{
	const char *value = json_string_value(json_object_get(object, key));

	ck_assert_msg(value != NULL, "no text: %s", key);
	return value;
}

static inline long long number(const json_t *object, const char *key)
{
	ck_assert_msg(json_is_integer(json_object_get(object, key)), "no number: %s", key);
	return json_integer_value(json_object_get(object, key));
}

static inline const json_t *nth(const json_t *object, const char *key, size_t i)
{
	const json_t *list = json_object_get(object, key);

	ck_assert_msg(json_array_size(list) > i, "%s: only %zu", key, json_array_size(list));
	return json_array_get(list, i);
}

#endif
