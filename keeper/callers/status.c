/*
 * See status.h. In five steps: what the keeper knows (in the loop); which processes hold the kernel locks (in a
 * worker); whether the store takes new leases; by which rules other hosts go; what the store has (its scripts). The
 * session may be gone by then: the job finds it by its number.
 */
#include "keeper/callers/status.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/callers/configfile.h"
#include "keeper/callers/elsewhere.h"
#include "keeper/clock.h"
#include "keeper/leases/grace.h"
#include "keeper/kernel/comm.h"
#include "keeper/kernel/census.h"
#include "keeper/leases/deadline.h"
#include "keeper/leases/locks.h"
#include "keeper/log.h"
#include "keeper/leases/reopen.h"
#include "keeper/callers/serve.h"
#include "keeper/callers/status_calls.h"
#include "keeper/callers/status_past.h"
#include "keeper/callers/status_since.h"
#include "keeper/callers/ending.h"
#include "keeper/callers/session.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/keynote.h"

#define STATUS_NOTE_BYTES 320

struct status_job {
	uv_work_t work;
	struct keeper *keeper;
	const struct session *session; /* compared, never followed */
	json_t *doc;
	struct claims claims;       /* tag: the row */
	json_t **rows;              /* the holders of each, borrowed from the document */
	struct status_since *since; /* of each */
	size_t count;
	int error;
	size_t unseen;
	struct elsewhere *elsewhere;
	uid_t uid;                     /* the user that asks: QUOTA_STATUS was taken for it */
	char *cluster, *cluster_error; /* what the store has */
	size_t cluster_len;
	int fd; /* the answer */
};

static const char *mode_name(enum wire_mode mode)
{
	return mode == WIRE_SHARED ? "shared" : "exclusive";
}

static json_t *json_text(const char *s)
{
	json_t *value = json_string(s);

	return value ? value : json_string("(not UTF-8)"); /* names may be any bytes */
}

/* WIRE_EOF is null: no number for "no end". */
static json_t *range_end(int64_t to)
{
	return to == WIRE_EOF ? json_null() : json_integer(to);
}

static const char *on_lost_name(enum on_lost on_lost)
{
	return on_lost == ON_LOST_FREEZE ? "freeze" : on_lost == ON_LOST_KILL ? "kill" : "warn";
}

static json_t *store_json(struct keeper *k)
{
	const struct config_lease *lease = &k->config->lease;
	int64_t left = (k->deadline.at_ns - clock_now_ns()) / NS_PER_MS, sure = left - lease->freeze_margin_ms;
	bool grace = store_in_grace(k->store);

	return json_pack("{s:o,s:b,s:s,s:o,s:s,s:s,s:b,s:I,s:I,s:I,s:s,s:I}", "server",
			 json_text(store_server(k->store)), "up", store_is_up(k->store), "trouble",
			 store_is_up(k->store) ? "" : store_trouble(k->store), "error",
			 json_text(store_last_error(k->store)), "version", store_version(k->store), "incarnation",
			 store_incarnation(k->store), "grace", grace, "grace_left_ms",
			 (json_int_t)(grace ? grace_left_ms(k) : 0), "deadline_left_ms",
			 (json_int_t)(left > 0 ? left : 0), "sure_left_ms", (json_int_t)(sure > 0 ? sure : 0),
			 "on_lost", on_lost_name(lease->on_lost), "ttl_ms", (json_int_t)lease->ttl_ms);
}

static json_t *waiting_json(const struct lease *lease)
{
	json_t *list = json_array();
	struct waiter *w;

	DL_FOREACH (lease->lock->waiters, w) {
		const struct session *s = session_of_waiter(w);

		if (w->lease == lease)
			json_array_append_new(list, json_pack("{s:i,s:s,s:b,s:I}", "pid", (int)s->peer.pid, "mode",
							      mode_name(s->request.mode), "nonblock", w->nonblocking,
							      "since", (json_int_t)s->started));
	}
	return list;
}

static enum on_lost on_lost_of(const struct lease *lease)
{
	return config_on_lost(lease->lock->file->keeper->config, lease->lock->file->path);
}

/* made: room for a note that is made up. */
static const char *lease_note(const struct lease *lease, char made[STATUS_NOTE_BYTES])
{
	if (lease->state == LEASE_ASKING && lease->asking.taken) {
		keynote_taken(lease, made, STATUS_NOTE_BYTES);
		return made;
	}
	if (lease->state == LEASE_ASKING)
		return lease->asking.resting  ? "waits until its rest is over (at_least_ms)"
		       : lease->asking.queued ? "waits for another host"
					      : "being asked for";
	if (table_is_hidden(lease->lock->file->keeper->table, lease->slot))
		return "cannot be renewed; held, but no holder can be stopped";
	if (table_frozen(lease->lock->file->keeper->table) && on_lost_of(lease) == ON_LOST_FREEZE)
		return clock_now_ns() < lease->lock->file->keeper->deadline.at_ns
			       ? "cannot be renewed: its holders are frozen until the store answers"
			       : "ran out: its holders are frozen; they go on if the store still has it, and are "
				 "killed if another host has had it or the store comes back without its memory";
	if (lease->state != LEASE_RELEASING && reopen_trouble(lease->lock->file))
		return reopen_trouble(lease->lock->file);
	if (lease_is_unsure(lease->state))
		return "was not renewed in time; closed until the store confirms it";
	if (lease->recalled.level == RECALL_RULE && lease->key)
		return "its key is taken, too (redis_key)";
	if (lease->recalled.level == RECALL_RULE)
		return "for one lock; the next asks the store (at_least_ms)";
	return lease->recalled.level >= RECALL_ASK ? "wanted by another host" : "";
}

/* Four states are one for people: "note" says what the lease waits for. */
static const char *lease_word(const struct lease *lease)
{
	return lease_state_name(lease_is_unsure(lease->state) ? LEASE_UNSURE : lease->state);
}

/* The token is of use to nobody but a client of the store; root may read it in leases.text, too. */
static json_t *lease_json(const struct lease *lease, json_t *holders, bool all)
{
	const struct file *file = lease->lock->file;
	char made[STATUS_NOTE_BYTES];

	return json_pack("{s:o,s:o,s:s,s:s,s:s,s:I,s:o,s:s,s:I,s:s,s:I,s:s,s:s,s:O,s:o,s:o}", "name",
			 json_text(file->name), "path", json_text(file->path), "inode", file->inode, "space",
			 lease->range.space == WIRE_FLOCK ? "flock" : "record", "mode", mode_name(lease->range.mode),
			 "from", (json_int_t)lease->range.from, "to", range_end(lease->range.to), "token",
			 all ? lease->token : "", "fence", (json_int_t)lease->fence, "state", lease_word(lease),
			 "since", (json_int_t)lease->held_at, "note", lease_note(lease, made), "on_lost",
			 on_lost_name(on_lost_of(lease)), "holders", holders, "waiting", waiting_json(lease), "calls",
			 status_calls_json(lease));
}

/* lock: NULL if it is known no more. */
static json_t *status_add_row(struct status_job *job, const struct holders_file *file, const struct store_range *range,
			      const struct lock *lock)
{
	json_t *holders = json_array();

	if (claims_add(&job->claims, file, range->space, range->from, range->to, job->count) < 0)
		job->error = -ENOMEM;
	if (lock)
		status_since_init(&job->since[job->count], lock);
	job->rows[job->count++] = holders;
	return holders;
}

static json_t *rules_json(const struct keeper *k)
{
	const struct configfile *c = k->configfile;

	return json_pack("{s:I,s:I,s:s,s:o,s:I,s:[I,I]}", "count", (json_int_t)k->config->rule_count, "in_force_since",
			 (json_int_t)c->in_force_since, "file", configfile_state_name(c->state), "why",
			 json_text(c->why), "since", (json_int_t)c->since, "seen", (json_int_t)c->seen.ino,
			 (json_int_t)c->seen.dev);
}

static json_t *log_json(void)
{
	enum log_by by;
	int level = log_level(&by);

	return json_pack("{s:s,s:s,s:I}", "level", config_log_level_name(level), "by", log_by_name(by), "unwritten",
			 (json_int_t)log_unwritten());
}

static json_t *status_document(struct status_job *job)
{
	struct keeper *k = job->keeper;
	json_t *leases = json_array(), *lost = json_array();
	const struct lease *lease, *next;
	const struct lost_lease *l;

	HASH_ITER (hh, k->leases, lease, next) {
		struct holders_file file = file_searched(lease->lock->file);
		json_t *holders = status_add_row(job, &file, &lease->range, lease->lock);

		json_array_append_new(leases, lease_json(lease, holders, !quota_is_limited(k, job->uid)));
		json_decref(holders);
	}
	DL_FOREACH (k->lost.all, l) {
		json_t *holders = status_add_row(job, &l->file, &l->range, NULL);

		json_array_append_new(lost, json_pack("{s:o,s:o,s:s,s:I,s:I,s:s,s:o}", "name", json_text(l->name),
						      "path", json_text(l->path), "mode", mode_name(l->range.mode),
						      "fence", (json_int_t)l->fence, "when", (json_int_t)l->when, "why",
						      l->why, "holders", holders));
	}
	return json_pack("{s:s,s:i,s:i,s:s,s:s,s:o,s:o,s:o,s:I,s:i,s:b,s:b,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "version",
			 DFLOCK_VERSION, "pid", (int)getpid(), "uid", (int)geteuid(), "host", k->host, "twin",
			 k->host_in_store.twin, "config", json_text(k->config->path), "rules", rules_json(k),
			 "runtime_dir", json_text(k->runtime_dir), "started", (json_int_t)k->started, "frozen",
			 (int)table_frozen(k->table), "unsupervised", k->unsupervised, "ending", ending_waits(k),
			 "store", store_json(k), "leases", leases, "lost", lost, "too_long", status_since_too_long(k),
			 "taken_past", status_past_json(k), "past_looks", status_past_looks_json(k), "log", log_json());
}

/* In a worker: only the job is touched. */
static json_t *status_holder(const struct holder *h)
{
	return json_pack("{s:i,s:o,s:s,s:I,s:o,s:I}", "pid", (int)h->pid, "command", json_text(h->command), "mode",
			 mode_name(h->mode), "from", (json_int_t)h->from, "to", range_end(h->to), "started",
			 (json_int_t)h->started);
}

/* "unseen": the keeper may not look into the process, or it is not known, then the pid is 0. */
static json_t *status_unseen(const struct holder *h)
{
	const bool open = h->sight == SIGHT_OPEN;
	struct holder shown = *h;
	char name[COMM_BYTES] = "";
	json_t *holder;

	if (open)
		comm_read(h->pid, name);
	shown.command = name;
	holder = status_holder(&shown);
	json_object_set_new(holder, "unseen", json_boolean(!open));
	json_object_set_new(holder, "unstoppable", json_boolean(h->sight == SIGHT_BEYOND));
	return holder;
}

static int status_on_holder(void *arg, const struct holder *h)
{
	struct status_job *job = arg;
	const struct claim *claim;
	size_t next = SIZE_MAX;

	while (h->how != HOLDER_MAPPER &&
	       (claim = claims_next(&job->claims, h->file, h->space, h->from, h->to, &next))) {
		json_t *holder = h->how == HOLDER_SHOWN ? status_holder(h) : status_unseen(h);

		if (h->how == HOLDER_SHOWN)
			status_since_add(&job->since[claim->tag], h->locker, holder);
		json_array_append_new(job->rows[claim->tag], holder);
	}
	return 0;
}

static void status_search_work(uv_work_t *req)
{
	struct status_job *job = req->data;
	struct holders_search ask = {
		.ignore_pid = getpid(), .how = HOLDERS_COMMANDS, .cb = status_on_holder, .arg = job};

	if (!job->error)
		job->error = claims_build(&job->claims);
	if (!job->error)
		job->error = census_take(&job->claims, &ask);
	job->unseen = ask.unseen;
}

static void status_job_free(struct status_job *job)
{
	if (!job)
		return;
	quota_give(job->keeper, job->uid, QUOTA_STATUS);
	json_decref(job->doc);
	claims_free(&job->claims);
	for (size_t i = 0; job->since && i < job->count; i++)
		status_since_free(&job->since[i]);
	free(job->since);
	free(job->rows);
	elsewhere_free(job->elsewhere);
	free(job->cluster);
	free(job->cluster_error);
	free(job);
}

static struct session *status_session(const struct status_job *job)
{
	struct session *s;

	DL_FOREACH (job->keeper->sessions->all, s)
		if (s == job->session && s->state == SESSION_STATUS) /* mutant: status-session */
			return s;
	return NULL;
}

/* In a worker: with tens of thousands of leases it takes a second. */
static void status_write(uv_work_t *req)
{
	struct status_job *job = req->data;
	json_t *cluster = job->cluster ? json_loadb(job->cluster, job->cluster_len, 0, NULL) : NULL;
	const char *error = job->cluster_error;

	if (!cluster && !error)
		error = "the store's answer is not JSON";
	json_object_set_new(job->doc, "cluster", cluster ? cluster : json_null());
	json_object_set_new(job->doc, "cluster_error", json_text(cluster ? "" : error));
	json_object_set_new(job->doc, "elsewhere", elsewhere_json(job->elsewhere));
	job->fd = status_to_memfd(job->doc);
	job->error = job->fd < 0 ? -errno : 0;
}

static void status_written(uv_work_t *req, int status)
{
	struct status_job *job = req->data;
	struct session *s = status_session(job);

	(void)status;
	if (s && job->fd >= 0)
		session_reply(s, WIRE_OK, NULL, job->fd);
	else if (s)
		session_refuse(s, "the status could not be written: %s", strerror(-job->error));
	if (job->fd >= 0)
		close(job->fd);
	status_job_free(job);
}

static void status_on_dump(void *arg, const char *json, size_t len, const char *error)
{
	struct status_job *job = arg;

	job->cluster = json ? malloc(len + 1) : NULL;
	if (job->cluster)
		memcpy(job->cluster, json, len);
	job->cluster_len = len;
	if (json && !job->cluster)
		error = "no memory left";
	job->cluster_error = error ? strdup(error) : NULL;
	if (uv_queue_work(job->keeper->loop, &job->work, status_write, status_written) != 0)
		status_job_free(job);
}

static void status_on_rules(void *arg, const struct store_rules *rules, const char *error)
{
	struct status_job *job = arg;

	elsewhere_take(job->elsewhere, rules, error);
	store_dump(job->keeper->store, status_on_dump, job);
}

/* A store may refuse new leases while it answers: an operator wants to know. */
static void status_on_tried(void *arg, const struct store_reply *reply)
{
	struct status_job *job = arg;
	const char *refused = reply->status == STORE_ERROR && reply->error ? reply->error : "";

	json_t *store = json_object_get(job->doc, "store");
	const char *risk = store_risk(job->keeper->store);

	json_object_set_new(store, "refuses", json_text(refused));
	json_object_set_new(store, "risk", risk ? json_text(risk) : json_null());
	store_read_rules(job->keeper->store, job->keeper->posting.place, elsewhere_digest(job->elsewhere),
			 status_on_rules, job);
}

static void status_searched(uv_work_t *req, int status)
{
	struct status_job *job = req->data;

	(void)status;
	if (job->error < 0)
		log_event(LINE_SEARCH_FAILED, "status: the holders of the locks could not be found: %s; ask again",
			  strerror(-job->error));
	if (job->keeper->leaving)
		status_on_dump(job, NULL, 0, "the keeper ends");
	else
		store_try_write(job->keeper->store, status_on_tried, job);
}

/* The user's share was taken. NULL: no memory; the share was given back. */
static struct status_job *status_job_new(struct session *s)
{
	struct keeper *k = s->keeper;
	size_t rows = HASH_COUNT(k->leases) + k->lost.count + 1;
	struct status_job *job = calloc(1, sizeof(*job));

	if (job) {
		job->keeper = k;
		job->session = s;
		job->uid = s->peer.uid;
		job->rows = calloc(rows, sizeof(*job->rows));
		job->elsewhere = elsewhere_new(k->config);
		job->since = calloc(rows, sizeof(*job->since));
		if (job->rows && job->since && job->elsewhere)
			job->doc = status_document(job);
		job->work.data = job;
	} else
		quota_give(k, s->peer.uid, QUOTA_STATUS);
	if (job && job->doc)
		return job;
	status_job_free(job);
	return NULL;
}

void status_start(struct session *s)
{
	int ret = quota_take(s->keeper, s->peer.uid, QUOTA_STATUS);
	struct status_job *job = ret == 0 ? status_job_new(s) : NULL;

	if (job && uv_queue_work(s->keeper->loop, &job->work, status_search_work, status_searched) == 0) {
		session_enter(s, SESSION_STATUS);
		return;
	}
	status_job_free(job);
	if (ret == -EDQUOT)
		session_refuse(s, "this user has asked for the status %d times and has no answer so far: wait for one",
			       QUOTA_STATUS_EACH);
	else
		session_refuse(s, ret == -EBUSY ? "too many users ask for the status at once: try again"
						: "the keeper has no memory left");
}
