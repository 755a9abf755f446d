/* See who.h. A question belongs to its session; if that ends, the question stays until the last of its calls has come
 * back. */
#include "keeper/callers/who.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/callers/finding.h"
#include "keeper/callers/picture.h"
#include "keeper/callers/session.h"
#include "keeper/callers/whoreport.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/queue.h"

struct who {
	struct keeper *keeper;
	struct session *session; /* NULL: it has ended, or was answered */
	uid_t uid;
	bool counted; /* in whos.count, and has QUOTA_WHO */
	char token[STORE_TOKEN_BYTES];
	unsigned calls; /* that have not come back: finding_find(), store_entries() */
	bool early;     /* the keeper has only just started: the store is asked when it was tried to connect */
	struct who_report report;
	char *path; /* WIRE_HELD: of the file, or the NAME of a `dflock lock`; else NULL */
	struct who *prev, *next;
};

struct whos {
	struct who *all; /* those with a session */
	unsigned count;  /* also of those whose session has ended, while they make work */
};

static void who_drop(struct who *who)
{
	if (who->calls)
		return;
	if (who->counted) {
		who->keeper->whos->count--;
		quota_give(who->keeper, who->uid, QUOTA_WHO);
	}
	for (size_t i = 0; i < who->report.host_count; i++)
		free(who->report.hosts[i]);
	free(who->report.entries);
	free(who->path);
	free(who);
}

/* The session has nothing to do with it any more. */
static void who_detach(struct who *who)
{
	struct whos *whos = who->keeper->whos;

	uv_timer_stop(&who->session->timer);
	who->session->who = NULL;
	who->session = NULL;
	DL_DELETE(whos->all, who);
}

void who_leave(struct session *s)
{
	struct who *who = s->who;

	if (!who)
		return;
	who_detach(who);
	who_drop(who);
}

/* --- the answer --- */

static void who_tell_json(struct session *s, const struct who_report *report)
{
	json_t *doc = whoreport_json(report);
	int fd = doc ? picture_to_memfd(doc) : -1;

	picture_answer(s, fd, "answer", doc ? errno : ENOMEM);
	if (fd >= 0)
		close(fd);
	json_decref(doc);
}

static void who_tell_line(struct session *s, const struct who *who)
{
	const struct wire_request *r = &s->request;
	const struct store_range wanted = {.space = r->space, .mode = r->mode, .from = r->from, .to = r->to};
	/* POSIX locks of one process do not exclude each other. */
	pid_t but = r->space == WIRE_RECORD && r->owner == WIRE_OWNER_PROCESS ? s->peer.pid : 0;
	char line[WIRE_REASON_BYTES];

	whoreport_line(&who->report, who->path, &wanted, but, line, sizeof(line));
	session_reply(s, WIRE_OK, line, -1);
}

static void who_answer(struct who *who)
{
	struct session *s = who->session;

	who_detach(who);
	if (who->path)
		who_tell_line(s, who);
	else
		who_tell_json(s, &who->report);
	who_drop(who);
}

static bool who_is_complete(const struct who *who)
{
	for (size_t i = 0; i < who->report.host_count; i++)
		if (who->report.hosts[i]->state == WHO_SILENT)
			return false;
	return !who->calls && !who->early;
}

static void on_who_timer(uv_timer_t *timer)
{
	struct session *s = timer->data;
	struct keeper *k = s->keeper;

	if (s->who)
		who_answer(s->who);
	queue_settle(k);
}

/* --- what comes in --- */

/* The host in the report, added if there is room. NULL: none, or no memory. */
static struct who_host *who_host(struct who *who, const char *host, bool add)
{
	struct who_report *report = &who->report;
	struct who_host *new;

	for (size_t i = 0; i < report->host_count; i++)
		if (strcmp(report->hosts[i]->host, host) == 0)
			return report->hosts[i];
	new = add && report->host_count < WHO_HOSTS ? calloc(1, sizeof(*new)) : NULL;
	if (!new)
		return NULL;
	snprintf(new->host, sizeof(new->host), "%s", host);
	report->hosts[report->host_count++] = new;
	return new;
}

static void who_take_local(void *arg, const struct finding_list *list)
{
	struct who *who = arg;
	struct who_host *own = who->report.hosts[0];

	who->calls--;
	if (!who->session)
		return who_drop(who);
	memcpy(own->holders, list->items, list->shown * sizeof(*list->items));
	own->shown = list->shown;
	own->count = list->count;
	own->state = list->error ? WHO_UNASKED : WHO_ANSWERED;
	if (who_is_complete(who))
		who_answer(who);
}

static void who_ask_hosts(struct who *who)
{
	struct who_report *report = &who->report;
	struct store_message question = {.kind = STORE_MSG_WHO};

	snprintf(question.name, sizeof(question.name), "%s", report->name);
	memcpy(question.token, who->token, sizeof(question.token));
	for (size_t i = 0; i < report->entry_count; i++) {
		const struct store_entry *e = &report->entries[i];
		struct who_host *host = e->waiter ? NULL : who_host(who, e->host, true);

		report->left_out += !host && !e->waiter;
		if (!host || host->own || host->state != WHO_UNASKED)
			continue;
		host->state = e->old ? WHO_OLD : WHO_SILENT; /* mutant: who-old */
		if (!e->old)
			store_tell(who->keeper->store, e->host, &question);
	}
}

static void who_take_entries(void *arg, enum store_status status, const struct store_entry *entries, size_t count,
			     const struct store_aside *aside)
{
	struct who *who = arg;
	struct who_report *report = &who->report;
	struct keeper *k = who->keeper;

	who->calls--;
	if (!who->session)
		return who_drop(who);
	report->why = status == STORE_OK ? "" : "the store is not reachable, or refuses; see `dflock status`";
	report->entries = count ? malloc(count * sizeof(*entries)) : NULL;
	if (count && !report->entries)
		report->why = "the keeper has no memory left";
	if (report->entries) {
		memcpy(report->entries, entries, count * sizeof(*entries));
		report->entry_count = count;
	}
	report->aside = *aside;
	who_ask_hosts(who);
	if (who_is_complete(who))
		who_answer(who);
	queue_settle(k);
}

static void who_take_answer(struct who *who, const struct store_message *m)
{
	struct who_host *host = who_host(who, m->holder, false);

	if (!host || host->state != WHO_SILENT) /* was not asked, or has said all */
		return;
	if (m->kind == STORE_MSG_HOLDERS) {
		host->count = m->count > host->shown ? m->count : host->shown;
		host->state = WHO_ANSWERED;
		if (who_is_complete(who))
			who_answer(who);
	} else if (host->shown < FINDING_MAX) {
		host->holders[host->shown++] = (struct finding){.job = m->job, .range = m->range};
	}
}

/* --- asking --- */

static void who_ask_store(struct who *who)
{
	who->early = false;
	who->calls++;
	store_entries(who->keeper->store, who->report.name, config_redis_key_of(who->keeper->config, who->report.name),
		      who_take_entries, who);
}

void who_store_tried(struct keeper *k)
{
	struct who *who;

	DL_FOREACH (k->whos->all, who)
		if (who->early)
			who_ask_store(who);
}

/* 0, -EDQUOT, -EBUSY or -ENOMEM: it may not begin. */
static int who_count(struct who *who)
{
	struct keeper *k = who->keeper;
	int ret = k->whos->count < WHO_MAX ? quota_take(k, who->uid, QUOTA_WHO) : -EBUSY;

	who->counted = ret == 0;
	k->whos->count += who->counted;
	return ret;
}

static void who_begin(struct session *s, struct who *who)
{
	struct keeper *k = s->keeper;
	struct who_host *own;
	int ret;

	who->keeper = k;
	who->uid = s->peer.uid;
	who->report.why = "the store has not answered";
	own = lease_make_token(k, who->token) == 0 ? who_host(who, k->host, true) : NULL;
	ret = own ? who_count(who) : -ENOMEM;
	if (ret < 0) {
		who_drop(who);
		if (ret == -EDQUOT)
			session_refuse(s,
				       "this user asks too often at once which processes hold locks: try again later");
		else
			session_refuse(s, ret == -EBUSY ? "too many ask which processes hold locks: try again later"
							: "the keeper has no memory left");
		return;
	}
	own->own = true;
	who->session = s;
	s->who = who;
	session_enter(s, SESSION_WHO);
	DL_APPEND(k->whos->all, who);
	who->early = !store_is_up(k->store) && !k->host_in_store.tried;
	if (!who->early)
		who_ask_store(who);
	if (finding_find(k, who->report.name, who_take_local, who) == 0)
		who->calls++;
	uv_timer_start(&s->timer, on_who_timer, WHO_MS, 0);
}

void who_start(struct session *s, const char *text)
{
	struct who *who = calloc(1, sizeof(*who));
	bool is_path = text[0] == '/';

	if (!who) {
		session_refuse(s, "the keeper has no memory left");
		return;
	}
	who->report.is_protected = is_path && config_lock_name(s->keeper->config, text, who->report.name) == 0;
	if (!who->report.is_protected && strlen(text) >= sizeof(who->report.name)) {
		free(who);
		session_refuse(s, "the name is longer than any lock name: %d bytes", LOCK_NAME_BYTES - 1);
		return;
	}
	if (!who->report.is_protected)
		strcpy(who->report.name, text);
	who_begin(s, who);
}

void who_blocks(struct session *s, const struct file *file)
{
	struct who *who = calloc(1, sizeof(*who));
	bool is_named = strncmp(file->name, CONFIG_NAMES, strlen(CONFIG_NAMES)) == 0;

	if (who) /* the user of `dflock lock` knows no file */
		who->path = strdup(is_named ? file->name + strlen(CONFIG_NAMES) : file->path);
	if (!who || !who->path) {
		free(who);
		session_refuse(s, "the keeper has no memory left");
		return;
	}
	strcpy(who->report.name, file->name);
	who->report.is_protected = true;
	who_begin(s, who);
}

/* --- the questions of other hosts --- */

struct who_asker {
	struct keeper *keeper;
	char host[STORE_HOST_BYTES];
	char token[STORE_TOKEN_BYTES];
};

static void who_tell_asker(void *arg, const struct finding_list *list)
{
	struct who_asker *asker = arg;
	struct store_message m = {.kind = STORE_MSG_HOLDER, .count = list->count};
	struct keeper *k = asker->keeper;

	memcpy(m.token, asker->token, sizeof(m.token));
	for (size_t i = 0; !k->leaving && k->config->show_jobs && i < list->shown; i++) /* mutant: who-hidden */
		if (list->items[i].job.pid) {
			m.range = list->items[i].range;
			m.job = list->items[i].job;
			store_tell(k->store, asker->host, &m);
		}
	m.kind = STORE_MSG_HOLDERS;
	if (!k->leaving && !list->error)
		store_tell(k->store, asker->host, &m);
	free(asker);
}

static void who_asked(struct keeper *k, const struct store_message *m)
{
	struct who_asker *asker = calloc(1, sizeof(*asker));

	if (!asker)
		return; /* the asker's own limit ends its question */
	asker->keeper = k;
	memcpy(asker->host, m->asker, sizeof(asker->host));
	memcpy(asker->token, m->token, sizeof(asker->token));
	if (finding_find(k, m->name, who_tell_asker, asker) < 0)
		free(asker);
}

void who_message(struct keeper *k, const struct store_message *m)
{
	struct who *who, *next;

	if (m->kind == STORE_MSG_WHO) {
		who_asked(k, m);
		return;
	}
	DL_FOREACH_SAFE (k->whos->all, who, next)
		if (strcmp(who->token, m->token) == 0)
			who_take_answer(who, m);
}

int who_init(struct keeper *k)
{
	k->whos = calloc(1, sizeof(*k->whos));
	return k->whos ? 0 : -ENOMEM;
}

void who_free(struct keeper *k)
{
	free(k->whos);
	k->whos = NULL;
}
