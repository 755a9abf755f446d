/*
 * See control.h. In five steps: what the keeper knows, when a search begins (in the loop); which processes hold the kernel locks
 * (survey.h); of all stores at once, since those that hang take a time each: whether they take new leases; by which rules other hosts go; what
 * each has, one after the other (its scripts). The session may be gone by then.
 */
#include "keeper/callers/control.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/callers/metrics.h"
#include "keeper/callers/picture.h"
#include "keeper/callers/session.h"
#include "keeper/kernel/command.h"
#include "keeper/kernel/family.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/survey.h"
#include "keeper/log.h"

#define ASKERS_MAX      64
#define STATUS_AGAIN_MS 20 /* until shards are connected that no lock has needed */

struct status_tried {
	struct status_job *job;
	struct member *member;
};

struct status_job {
	struct survey survey; /* the first member; a claim's tag: the index in rows and grants */
	uv_work_t work;
	struct keeper *keeper;
	struct session *session; /* NULL: it has ended */
	uid_t uid;               /* the user that asks: QUOTA_STATUS was taken for it */
	pid_t pid;               /* the process that asks */
	json_t *doc;
	json_t *rows;   /* of the leases, those that were lost, too */
	json_t *grants; /* picture_ages() of each */
	struct elsewhere *elsewhere;
	struct status_tried tried[CONFIG_MAX_MEMBERS];
	unsigned trying; /* so many have not answered */
	unsigned store;  /* which of the keeper's is read now */
	int64_t fence;   /* its last one */
	bool read;       /* one of them was read to its end */
	bool own;        /* WIRE_F_OWN */
	int error;
	int fd; /* the answer */
};

/* lock: NULL if it is known no more. */
static int status_add_row(struct status_job *job, const char *list, json_t *row, const struct holders_file *file,
			  const struct store_range *range, const struct lock *lock)
{
	int ret =
		claims_add(&job->survey.claims, file, range->space, range->from, range->to, json_array_size(job->rows));

	json_array_append_new(json_object_get(job->doc, list), json_incref(row));
	json_array_append_new(job->rows, row);
	json_array_append_new(job->grants, picture_ages(lock));
	return ret;
}

/* All of the document is of the moment at which the search begins. */
static int status_begin(struct survey *survey)
{
	struct status_job *job = (struct status_job *)survey;
	struct keeper *k = job->keeper;
	bool all = !quota_is_limited(k, job->uid);
	const struct lease *lease, *next;
	const struct lost_lease *l;
	int ret = 0;

	json_decref(job->doc);
	job->doc = picture_keeper(k);
	HASH_ITER (hh, k->leases, lease, next) {
		struct holders_file file = file_searched(lease->lock->file);

		ret |= status_add_row(job, "leases", picture_lease(lease, all), &file, &lease->range, lease->lock);
	}
	DL_FOREACH (k->lost.all, l)
		ret |= status_add_row(job, "lost", picture_lost(l), &l->file, &l->range, NULL);
	json_object_set_new(job->doc, "metrics", metrics_json(k));
	return ret;
}

/* --- in a worker: only the job is touched --- */

/* "unseen": the keeper may not look into the process, or it is not known, then the pid is 0. */
static int status_on_holder(struct survey *survey, const struct holder *h)
{
	struct status_job *job = (struct status_job *)survey;
	const struct store_range range = {.space = h->space, .mode = h->mode, .from = h->from, .to = h->to};
	const bool shown = h->how == HOLDER_SHOWN, open = h->sight == SIGHT_OPEN;
	const struct claim *claim;
	char name[COMM_BYTES] = "";
	size_t next = SIZE_MAX;

	if (!shown && open)
		comm_read(h->pid, name);
	while (h->how != HOLDER_MAPPER && (claim = survey_claim(survey, h, &next))) {
		json_t *holder = picture_holder(h->pid, shown ? h->command : name, &range, shown ? h->started : 0);

		if (shown)
			picture_add_since(json_array_get(job->grants, claim->tag), h->locker, holder);
		else
			json_object_update_new(holder, json_pack("{s:b,s:b}", "unseen", !open, "unstoppable",
								 h->sight == SIGHT_BEYOND));
		json_array_append_new(json_object_get(json_array_get(job->rows, claim->tag), "holders"), holder);
	}
	return 0;
}

/* The process that asks, and those above it: in another pid namespace it does not know them by their numbers here. What cannot be read
 * ends the list. */
static json_t *status_askers(pid_t pid)
{
	json_t *list = json_array();
	struct procfs_stat stat;

	while (pid > 0 && json_array_append_new(list, json_integer(pid)) == 0 && json_array_size(list) < ASKERS_MAX)
		pid = family_stat(pid, &stat) ? stat.parent : 0;
	return list;
}

/* With tens of thousands of leases it takes a second. */
static void status_write(uv_work_t *req)
{
	struct status_job *job = req->data;

	json_object_set_new(job->doc, "asker", status_askers(job->pid));
	json_object_set_new(job->doc, "elsewhere", elsewhere_json(job->elsewhere));
	job->fd = picture_to_memfd(job->doc);
	job->error = errno;
}

/* --- in the loop --- */

static void status_job_free(struct status_job *job)
{
	if (!job)
		return;
	quota_give(job->keeper, job->uid, QUOTA_STATUS);
	json_decref(job->doc);
	json_decref(job->rows);
	json_decref(job->grants);
	elsewhere_free(job->elsewhere);
	free(job);
}

static void status_leave(struct session *s)
{
	s->status->session = NULL; /* mutant: status-session */
	s->status = NULL;
}

static void status_written(uv_work_t *req, int status)
{
	struct status_job *job = req->data;

	(void)status;
	if (job->session)
		picture_answer(job->session, job->fd, "status", job->error);
	if (job->fd >= 0)
		close(job->fd);
	status_job_free(job);
}

static struct member *status_member(const struct status_job *job)
{
	return &job->keeper->members[job->store];
}

/* What is said of that store itself: "store" of the document, or of its entry in "stores". */
static json_t *status_store(const struct status_job *job, const struct member *m)
{
	const json_t *place = m == job->keeper->members ? job->doc : NULL, *row;
	char name[MEMBER_NAME_BYTES];
	size_t i;

	member_name(m, name);
	json_array_foreach (json_object_get(job->doc, "stores"), i, row)
		if (!strcmp(json_string_value(json_object_get(row, "name")), name))
			place = row;
	return json_object_get(place, "store");
}

/* What all stores have. */
static json_t *status_cluster(const struct status_job *job)
{
	return json_object_get(job->doc, "cluster");
}

static void status_on_record(void *arg, const struct store_picture *record)
{
	struct status_job *job = arg;

	if (!json_is_object(status_cluster(job)))
		json_object_set_new(job->doc, "cluster", json_object());
	job->fence = record->fence;
	picture_add_record(status_cluster(job), record);
}

static void status_on_name(void *arg, const char *name, const struct store_entry *entries, size_t count,
			   const struct store_aside *aside)
{
	struct status_job *job = arg;

	picture_add_name(status_cluster(job), status_member(job)->config->name, job->fence, name, entries, count,
			 aside);
}

static void status_dump(struct status_job *job);

static void status_on_dumped(void *arg, const char *error)
{
	struct status_job *job = arg;
	char name[MEMBER_NAME_BYTES], line[WIRE_REASON_BYTES];

	job->read |= !error && !job->own;
	if (error && !*json_string_value(json_object_get(job->doc, "cluster_error"))) {
		snprintf(line, sizeof(line), "%s: %s", member_name(status_member(job), name), error);
		json_object_set_new(job->doc, "cluster_error",
				    picture_text(job->keeper->member_count > 1 ? line : error));
	}
	while (!job->keeper->leaving && ++job->store < job->keeper->member_count)
		if (status_member(job)->wanted)
			return status_dump(job);
	if (job->read)
		picture_close(status_cluster(job));
	else
		json_object_set_new(job->doc, "cluster", json_null());
	if (uv_queue_work(job->keeper->loop, &job->work, status_write, status_written) != 0)
		status_job_free(job);
}

static void status_dump(struct status_job *job)
{
	static const struct store_dump to = {status_on_record, status_on_name, status_on_dumped};

	if (job->own)
		status_on_dumped(job, NULL);
	else
		store_dump(status_member(job)->store, &to, job);
}

static void status_on_rules(void *arg, const struct store_rules *rules, const char *error)
{
	struct status_job *job = arg;

	elsewhere_take(job->elsewhere, rules, error);
	status_dump(job);
}

/* A store may refuse new leases while it answers: an operator wants to know. */
static void status_on_tried(void *arg, const struct store_reply *reply)
{
	const struct status_tried *tried = arg;
	struct status_job *job = tried->job;
	const struct member *m = tried->member;
	const char *refused = reply->status == STORE_ERROR && reply->error ? reply->error : "";
	json_t *store = status_store(job, m);
	const char *risk = store_risk(m->store);

	json_object_set_new(store, "refuses", picture_text(refused));
	json_object_set_new(store, "risk", risk ? picture_text(risk) : json_null());
	if (--job->trying)
		return;
	m = job->keeper->members;
	if (job->keeper->leaving) /* that store may be gone */
		status_on_dumped(job, "the keeper ends");
	else
		store_read_rules(m->store, m->posting.place, elsewhere_digest(job->elsewhere), status_on_rules, job);
}

static void status_try(struct status_job *job)
{
	struct keeper *k = job->keeper;

	for (struct member *m = k->members; m < k->members + k->member_count; m++)
		if (m->wanted)
			job->tried[job->trying++] = (struct status_tried){.job = job, .member = m};
	for (unsigned i = 0, count = job->trying; i < count; i++)
		store_try_write(job->tried[i].member->store, status_on_tried, &job->tried[i]);
}

static void status_searched(struct survey *survey)
{
	struct status_job *job = (struct status_job *)survey;

	if (survey->error < 0 && !job->keeper->leaving)
		log_event(LINE_SEARCH_FAILED, "status: not all holders of the locks were found: %s; ask again",
			  strerror(-survey->error));
	if (job->keeper->leaving)
		status_on_dumped(job, "the keeper ends");
	else
		status_try(job);
}

/* The user's share was taken. NULL: no memory; the share was given back. */
static struct status_job *status_job_new(struct session *s)
{
	struct keeper *k = s->keeper;
	struct status_job *job = calloc(1, sizeof(*job));

	if (!job) {
		quota_give(k, s->peer.uid, QUOTA_STATUS);
		return NULL;
	}
	job->keeper = k;
	job->session = s;
	job->uid = s->peer.uid;
	job->pid = s->connected;
	job->own = s->request.flags & WIRE_F_OWN;
	job->rows = json_array();
	job->grants = json_array();
	job->elsewhere = elsewhere_new(k->config);
	job->doc = job->rows && job->grants && job->elsewhere ? picture_keeper(k) : NULL;
	job->work.data = job;
	job->survey = (struct survey){
		.commands = true, .begin = status_begin, .row = status_on_holder, .done = status_searched};
	if (job->doc)
		return job;
	status_job_free(job);
	return NULL;
}

void status_start(struct session *s)
{
	struct status_job *job;
	int ret;

	if (!(s->request.flags & WIRE_F_OWN) && !host_reaches_all(s->keeper)) {
		session_enter(s, SESSION_STATUS);
		session_expect(s, STATUS_AGAIN_MS, status_start);
		return;
	}
	ret = quota_take(s->keeper, s->peer.uid, QUOTA_STATUS);
	job = ret == 0 ? status_job_new(s) : NULL;

	if (job && survey_ask(s->keeper, &job->survey) == 0) {
		session_enter(s, SESSION_STATUS);
		s->status = job;
		s->leave = status_leave;
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
