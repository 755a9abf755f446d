/* See who.h. A question belongs to its session, or to a host that asks; if the session ends, it stays until the last of its
 * calls has come back. */
#include "keeper/callers/who.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/callers/picture.h"
#include "keeper/callers/session.h"
#include "keeper/kernel/command.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/queue.h"
#include "keeper/leases/seenout.h"
#include "keeper/leases/survey.h"

#define WHO_SHOWN    64 /* locks of one host in an answer */
#define WHO_HOSTS    16 /* that are asked */
#define WHO_SEARCHES 64 /* at a time */

/* One lock of one process; or, where no process holds any, a call under way that keeps the lock (seenout_next_keeping()). */
struct who_lock {
	/* since: the earliest moment at which it can have got the lock: when the lease was granted, or when the process was
	 * started if that is later. pid 0: a process that the keeper may not look into. */
	struct store_job job;
	struct store_range range;
};

struct who_found {
	struct who_lock shown[WHO_SHOWN];
	size_t count; /* not all may be shown */
};

struct who {
	struct survey survey; /* the first member; a claim's tag: since when there is the lease, Unix time */
	struct keeper *keeper;
	struct member *member; /* of the store that has the leases of this name */
	char name[LOCK_NAME_BYTES];
	char token[STORE_TOKEN_BYTES]; /* of the question */
	char asker[STORE_HOST_BYTES];  /* the host that asks; "": a session, to which the rest belongs */
	struct who_found found, calls; /* here; calls: under way */
	struct session *session;       /* NULL: it has ended, or was answered */
	uid_t uid;
	bool counted;   /* in whos.count, and has QUOTA_WHO */
	unsigned under; /* calls that have not come back: survey_ask(), store_entries() */
	bool early;     /* the keeper has only just started: the store is asked when it was tried to connect */
	json_t *report; /* docs/state.md, "One lock" */
	char *path;     /* WIRE_HELD: of the file, or the NAME of a `dflock lock`; else NULL */
	struct who *prev, *next;
};

static void who_drop(struct who *who)
{
	if (!who || who->under)
		return;
	if (who->counted) {
		who->keeper->whos.count--;
		quota_give(who->keeper, who->uid, QUOTA_WHO);
	}
	json_decref(who->report);
	free(who->path);
	free(who);
}

/* The session has its answer, or has ended. */
static void who_leave(struct session *s)
{
	struct who *who = s->who;

	s->who = NULL;
	who->session = NULL;
	DL_DELETE(who->keeper->whos.all, who);
	who_drop(who);
}

/* --- the report --- */

static json_t *who_host(const struct who *who, const char *name)
{
	json_t *host;
	size_t i;

	json_array_foreach (json_object_get(who->report, "hosts"), i, host)
		if (strcmp(json_string_value(json_object_get(host, "host")), name) == 0)
			return host;
	return NULL;
}

/* NULL: there is no room, or no memory. */
static json_t *who_add_host(const struct who *who, const char *name)
{
	json_t *hosts = json_object_get(who->report, "hosts"), *host = who_host(who, name);
	bool own = json_array_size(hosts) == 0;

	if (host || json_array_size(hosts) > WHO_HOSTS)
		return host;
	host = json_pack("{s:s,s:b,s:s,s:i,s:[],s:[]}", "host", name, "own", own, "state", "unasked", "count", 0,
			 "leases", "holders");
	json_array_append_new(hosts, host);
	return host;
}

static bool who_is(const json_t *host, const char *state)
{
	return strcmp(json_string_value(json_object_get(host, "state")), state) == 0;
}

static void who_add_holder(json_t *host, const struct who_lock *lock)
{
	json_t *holder = picture_job(&lock->job);

	picture_add_range(holder, &lock->range);
	json_array_append_new(json_object_get(host, "holders"), holder);
}

static void who_set_answered(json_t *host, uint64_t count)
{
	size_t shown = json_array_size(json_object_get(host, "holders"));

	json_object_set_new(host, "count", json_integer((json_int_t)(count > shown ? count : shown)));
	json_object_set_new(host, "state", json_string("answered"));
}

static void who_tell(struct session *s)
{
	const struct wire_request *r = &s->request;
	const struct store_range wanted = {.space = r->space, .mode = r->mode, .from = r->from, .to = r->to};
	/* POSIX locks of one process do not exclude each other. */
	pid_t but = r->space == WIRE_RECORD && r->owner == WIRE_OWNER_PROCESS ? s->peer.pid : 0;
	json_t *hosts = json_object_get(s->who->report, "hosts");
	char line[WIRE_REASON_BYTES];
	int fd;

	for (size_t i = json_array_size(hosts); i-- > 0;) {
		const json_t *host = json_array_get(hosts, i);

		if (!json_array_size(json_object_get(host, "leases")) &&
		    !json_integer_value(json_object_get(host, "count")))
			json_array_remove(hosts, i);
	}
	if (s->who->path) {
		whoreport_line(s->who->report, s->who->path, &wanted, but, line, sizeof(line));
		session_reply(s, WIRE_OK, line, -1);
		return;
	}
	fd = picture_to_memfd(s->who->report);
	picture_answer(s, fd, "answer", errno);
	if (fd >= 0)
		close(fd);
}

/* If that was all. */
static void who_tell_all(struct who *who)
{
	bool all = !who->under && !who->early;
	json_t *host;
	size_t i;

	json_array_foreach (json_object_get(who->report, "hosts"), i, host)
		all = all && !who_is(host, "silent");
	if (all)
		who_tell(who->session);
}

/* --- the processes of this host --- */

static void who_found(struct who_found *found, const struct store_job *job, const struct store_range *range)
{
	if (found->count < WHO_SHOWN)
		found->shown[found->count] = (struct who_lock){.job = *job, .range = *range};
	found->count++;
}

/* In a worker: only `found` is touched. */
static int who_on_holder(struct survey *survey, const struct holder *h)
{
	struct who *who = (struct who *)survey;
	const struct store_range range = {.space = h->space, .mode = h->mode, .from = h->from, .to = h->to};
	struct store_job job = {.pid = h->pid, .since = INT64_MAX};
	const struct claim *claim;
	size_t next = SIZE_MAX;

	while ((claim = survey_claim(survey, h, &next)))
		if ((int64_t)claim->tag < job.since)
			job.since = (int64_t)claim->tag;
	if (job.since == INT64_MAX)
		return 0;            /* past dflock, or of another range */
	if (h->how == HOLDER_MAPPER) /* one of many, perhaps, that may have it */
		return 0;
	if (job.since < h->started)
		job.since = h->started;
	if (h->pid)
		comm_read(h->pid, job.command);
	who_found(&who->found, &job, &range);
	return 0;
}

static void who_add_calls(struct who *who, const struct lease *lease)
{
	struct underway_call call;

	for (size_t next = 0; seenout_next_keeping(lease, &next, &call);) {
		const struct store_range range = {
			.space = lease->range.space, .mode = lease->range.mode, .from = call.from, .to = call.to};
		struct store_job job = {.pid = call.pid, .since = lease->held_at};

		comm_read(call.pid, job.command);
		who_found(&who->calls, &job, &range);
	}
}

/* A lease that is asked for, or on its way back, has no holder. */
static int who_search_begins(struct survey *survey)
{
	struct who *who = (struct who *)survey;
	const struct lease *lease, *next;
	int ret = 0;

	HASH_ITER (hh, who->keeper->leases, lease, next) {
		struct holders_file file = file_searched(lease->lock->file);

		if (!lease_is_ours(lease->state) || strcmp(lease->lock->file->name, who->name) != 0)
			continue;
		ret = claims_add(&survey->claims, &file, lease->range.space, lease->range.from, lease->range.to,
				 (uint64_t)lease->held_at);
		if (ret)
			break;
		who_add_calls(who, lease);
	}
	return ret;
}

static void who_tell_asker(const struct who *who)
{
	struct store_message m = {.kind = STORE_MSG_HOLDER, .count = who->found.count};
	struct keeper *k = who->keeper;

	memcpy(m.token, who->token, sizeof(m.token));
	for (size_t i = 0; !k->leaving && k->config->show_jobs && i < m.count && i < WHO_SHOWN;
	     i++) /* mutant: who-hidden */
		if (who->found.shown[i].job.pid) {
			m.range = who->found.shown[i].range;
			m.job = who->found.shown[i].job;
			store_tell(who->member->store, who->asker, &m);
		}
	m.kind = STORE_MSG_HOLDERS;
	if (!k->leaving && !who->survey.error)
		store_tell(who->member->store, who->asker, &m);
}

static void who_searched(struct survey *survey)
{
	struct who *who = (struct who *)survey;

	who->under--;
	who->keeper->whos.searches--;
	/* Else a call waits for a holder, or has ended. */
	if (!who->found.count) /* mutant: finding-calls */
		who->found = who->calls;
	if (*who->asker)
		who_tell_asker(who);
	if (!who->session)
		return who_drop(who);
	for (size_t i = 0; i < who->found.count && i < WHO_SHOWN; i++)
		who_add_holder(who_host(who, who->keeper->host), &who->found.shown[i]);
	if (!survey->error)
		who_set_answered(who_host(who, who->keeper->host), who->found.count);
	who_tell_all(who);
}

/* 0 or -errno. */
static int who_search(struct who *who)
{
	struct keeper *k = who->keeper;
	int ret;

	who->survey = (struct survey){.begin = who_search_begins, .row = who_on_holder, .done = who_searched};
	ret = k->whos.searches < WHO_SEARCHES ? survey_ask(k, &who->survey) : -EAGAIN;
	who->under += ret == 0;
	k->whos.searches += ret == 0;
	return ret;
}

/* --- the store, and other hosts --- */

static void who_ask_host(struct who *who, const struct store_entry *e, json_t *host)
{
	struct store_message question = {.kind = STORE_MSG_WHO};

	if (!who_is(host, "unasked") || json_is_true(json_object_get(host, "own")))
		return;
	json_object_set_new(host, "state", json_string(e->old ? "old" : "silent")); /* mutant: who-old */
	memcpy(question.name, who->name, sizeof(question.name));
	memcpy(question.token, who->token, sizeof(question.token));
	if (!e->old)
		store_tell(who->member->store, e->host, &question);
}

static void who_take_entries(void *arg, enum store_status status, const struct store_entry *entries, size_t count,
			     const struct store_aside *aside)
{
	struct who *who = arg;
	struct keeper *k = who->keeper;
	json_int_t left_out = 0;

	who->under--;
	if (!who->session)
		return who_drop(who);
	for (size_t i = 0; i < count; i++) {
		json_t *host = entries[i].waiter ? NULL : who_add_host(who, entries[i].host);

		left_out += !host && !entries[i].waiter;
		json_array_append_new(json_object_get(entries[i].waiter ? who->report : host,
						      entries[i].waiter ? "waiting" : "leases"),
				      picture_entry(&entries[i], false));
		if (host)
			who_ask_host(who, &entries[i], host);
	}
	if (status == STORE_OK)
		json_object_set_new(who->report, "error", json_string(""));
	else
		json_object_set_new(who->report, "error",
				    json_string("the store is not reachable, or refuses; see `dflock status`"));
	json_object_set_new(who->report, "resting", picture_rests(aside));
	json_object_set_new(who->report, "client", picture_client(aside));
	json_object_set_new(who->report, "left_out", json_integer(left_out));
	who_tell_all(who);
	queue_settle(k);
}

static void who_take_answer(struct who *who, const struct store_message *m)
{
	json_t *host = who_host(who, m->holder);

	if (!host || !who_is(host, "silent")) /* was not asked, or has said all */
		return;
	if (m->kind == STORE_MSG_HOLDERS) {
		who_set_answered(host, m->count);
		who_tell_all(who);
	} else if (json_array_size(json_object_get(host, "holders")) < WHO_SHOWN) {
		who_add_holder(host, &(struct who_lock){.job = m->job, .range = m->range});
	}
}

static void who_ask_store(struct who *who)
{
	who->early = false;
	who->under++;
	store_entries(who->member->store, who->name, config_redis_key_of(who->keeper->config, who->name),
		      who_take_entries, who);
}

void who_store_tried(struct member *m)
{
	struct who *who;

	DL_FOREACH (m->keeper->whos.all, who)
		if (who->early && who->member == m)
			who_ask_store(who);
}

/* The question of another host. Without an answer that host's own limit ends it. */
static void who_asked(struct member *member, const struct store_message *m)
{
	struct who *who = calloc(1, sizeof(*who));

	if (!who)
		return;
	who->keeper = member->keeper;
	who->member = member;
	memcpy(who->name, m->name, sizeof(who->name));
	memcpy(who->asker, m->asker, sizeof(who->asker));
	memcpy(who->token, m->token, sizeof(who->token));
	if (who_search(who) < 0)
		free(who);
}

void who_message(struct member *member, const struct store_message *m)
{
	struct who *who, *next;

	if (m->kind == STORE_MSG_WHO) {
		who_asked(member, m);
		return;
	}
	DL_FOREACH_SAFE (member->keeper->whos.all, who, next)
		if (strcmp(who->token, m->token) == 0)
			who_take_answer(who, m);
}

/* --- questions --- */

/* 0, -EDQUOT, -EBUSY or -ENOMEM: it may not begin. */
static int who_fill(struct who *who, bool is_protected, const char *path)
{
	struct keeper *k = who->keeper;
	int ret;

	who->path = path ? strdup(path) : NULL;
	who->report = json_pack("{s:i,s:o,s:b,s:s,s:[],s:[],s:{},s:n,s:i}", "schema", PICTURE_SCHEMA, "name",
				picture_text(who->name), "protected", is_protected, "error",
				"the store has not answered", "hosts", "waiting", "resting", "client", "left_out", 0);
	if ((path && !who->path) || !who_add_host(who, k->host) || lease_make_token(k, who->token) < 0)
		return -ENOMEM;
	ret = k->whos.count < WHO_MAX ? quota_take(k, who->uid, QUOTA_WHO) : -EBUSY;
	who->counted = ret == 0;
	k->whos.count += who->counted;
	return ret;
}

/* path: as in struct who. */
static void who_begin(struct session *s, const char *name, bool is_protected, const char *path)
{
	struct keeper *k = s->keeper;
	struct who *who = calloc(1, sizeof(*who));
	int ret = -ENOMEM;

	if (who) {
		who->keeper = k;
		who->member = member_of_name(k, name);
		who->uid = s->peer.uid;
		strcpy(who->name, name);
		ret = who_fill(who, is_protected, path);
	}
	if (ret < 0) {
		who_drop(who);
		session_refuse(s,
			       ret == -EDQUOT
				       ? "this user asks too often at once which processes hold locks: try again later"
			       : ret == -EBUSY ? "too many ask which processes hold locks: try again later"
					       : "the keeper has no memory left");
		return;
	}
	session_enter(s, SESSION_WHO);
	who->session = s;
	s->who = who;
	s->leave = who_leave;
	DL_APPEND(k->whos.all, who);
	who->early = !store_is_up(who->member->store) && !who->member->tried;
	if (!who->early)
		who_ask_store(who);
	(void)who_search(who); /* else this host stays "unasked" */
	session_expect(s, WHO_MS, who_tell);
}

void who_start(struct session *s, const char *text)
{
	char name[LOCK_NAME_BYTES];
	bool is_protected = text[0] == '/' && config_lock_name(s->keeper->config, text, name) == 0;

	if (!is_protected && strlen(text) >= sizeof(name)) {
		session_refuse(s, "the name is longer than any lock name: %d bytes", LOCK_NAME_BYTES - 1);
		return;
	}
	who_begin(s, is_protected ? name : text, is_protected, NULL);
}

void who_blocks(struct session *s, const struct file *file)
{
	bool is_named = strncmp(file->name, CONFIG_NAMES, strlen(CONFIG_NAMES)) == 0;

	/* The user of `dflock lock` knows no file. */
	who_begin(s, file->name, true, is_named ? file->name + strlen(CONFIG_NAMES) : file->path);
}
