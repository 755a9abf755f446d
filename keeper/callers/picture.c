/* See picture.h. */
#include "keeper/callers/picture.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/callers/configfile.h"
#include "keeper/callers/ending.h"
#include "keeper/callers/serve.h"
#include "keeper/callers/session.h"
#include "keeper/clock.h"
#include "keeper/kernel/command.h"
#include "keeper/leases/deadline.h"
#include "keeper/leases/grace.h"
#include "keeper/leases/ages.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/keys.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/reopen.h"
#include "keeper/leases/seenout.h"
#include "keeper/log.h"
#include "wire/memfd.h"

#define PICTURE_NOTE_BYTES 320
/* Several users may get one answer (metrics.c): none may change what the others read. */
#define PICTURE_SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

/* --- what all documents are made of --- */

json_t *picture_text(const char *text)
{
	char shown[4 * (PATH_MAX + 16)], *to = shown;
	json_t *value = json_string(text);

	if (value)
		return value;
	for (; *text && to < shown + sizeof(shown) - 4; text++)
		if ((unsigned char)*text < 0x80)
			*to++ = *text;
		else
			to += sprintf(to, "\\x%02x", (unsigned char)*text);
	*to = '\0';
	return json_string(shown);
}

const char *picture_space(enum wire_space space)
{
	return space == WIRE_FLOCK ? "flock" : "record";
}

static const char *picture_mode(enum wire_mode mode)
{
	return mode == WIRE_SHARED ? "shared" : "exclusive";
}

/* WIRE_EOF is null: no number for "no end". */
static json_t *picture_end(int64_t to)
{
	return to == WIRE_EOF ? json_null() : json_integer(to);
}

void picture_add_range(json_t *row, const struct store_range *range)
{
	json_object_set_new(row, "space", json_string(picture_space(range->space)));
	json_object_set_new(row, "mode", json_string(picture_mode(range->mode)));
	json_object_set_new(row, "from", json_integer(range->from));
	json_object_set_new(row, "to", picture_end(range->to));
}

struct store_range picture_read_range(const json_t *row)
{
	const json_t *to = json_object_get(row, "to");

	return (struct store_range){
		.space = strcmp(json_string_value(json_object_get(row, "space")), "flock") ? WIRE_RECORD : WIRE_FLOCK,
		.mode = strcmp(json_string_value(json_object_get(row, "mode")), "shared") ? WIRE_EXCLUSIVE
											  : WIRE_SHARED,
		.from = json_integer_value(json_object_get(row, "from")),
		.to = json_is_null(to) ? WIRE_EOF : json_integer_value(to)};
}

json_t *picture_job(const struct store_job *job)
{
	return json_pack("{s:i,s:s,s:I}", "pid", job->pid, "command", job->command, "since", (json_int_t)job->since);
}

/* --- what the store says --- */

json_t *picture_entry(const struct store_entry *e, bool told)
{
	json_t *row = json_pack("{s:o}", "host", picture_text(e->host));

	picture_add_range(row, &e->range);
	if (told) {
		json_object_set_new(row, "file", json_string(e->file));
		json_object_set_new(row, "token", json_string(e->token));
		json_object_set_new(row, "to", json_integer(e->range.to));
	}
	if (!e->waiter)
		json_object_set_new(row, "fence", json_integer((json_int_t)e->fence));
	if (e->job.pid)
		json_object_set_new(row, "job", picture_job(&e->job));
	return row;
}

static json_t *picture_entries(const struct store_entry *entries, size_t count, bool waiters)
{
	json_t *rows = json_array();

	for (size_t i = 0; i < count; i++)
		if (entries[i].waiter == waiters)
			json_array_append_new(rows, picture_entry(&entries[i], true));
	return rows;
}

json_t *picture_rests(const struct store_aside *aside)
{
	json_t *rests = json_object();

	for (int space = 0; space < WIRE_SPACES; space++)
		if (aside->rest_ms[space] > 0)
			json_object_set_new(rests, picture_space(space), json_integer(aside->rest_ms[space]));
	return rests;
}

json_t *picture_client(const struct store_aside *aside)
{
	return *aside->client ? json_pack("{s:s,s:I}", "token", aside->client, "left_ms", (json_int_t)aside->client_ms)
			      : json_null();
}

/* A number that the record does not have is null. */
static json_t *picture_number(int64_t n)
{
	return n < 0 ? json_null() : json_integer(n);
}

void picture_add_record(json_t *cluster, const struct store_picture *p)
{
	json_t *hosts = json_object_get(cluster, "hosts");
	bool first = !hosts;

	hosts = first ? json_object() : hosts;
	for (size_t i = 0; i < p->host_count; i++) {
		const json_t *other = json_object_get(hosts, p->hosts[i].host);

		if (!other || json_integer_value(json_object_get(other, "age_ms")) > p->hosts[i].age_ms)
			json_object_set_new(hosts, p->hosts[i].host,
					    json_pack("{s:I,s:I}", "beat", (json_int_t)p->hosts[i].beat, "age_ms",
						      (json_int_t)p->hosts[i].age_ms));
	}
	if (!first)
		return;
	json_object_set_new(cluster, "incarnation", picture_text(p->incarnation));
	json_object_set_new(cluster, "open", json_boolean(p->open));
	json_object_set_new(cluster, "ttl_ms", picture_number(p->ttl_ms));
	json_object_set_new(cluster, "fence", picture_number(p->fence));
	json_object_set_new(cluster, "hosts", hosts);
	json_object_set_new(cluster, "locks", json_object()); /* by name: the store may tell one twice */
}

void picture_add_name(json_t *cluster, const char *store, int64_t fence, const char *name,
		      const struct store_entry *entries, size_t count, const struct store_aside *aside)
{
	json_t *rests = picture_rests(aside), *shown = picture_text(name), *client = picture_client(aside);
	char *key = NULL;

	if (aside->key)
		json_object_set_new(client, "key", picture_text(aside->key));
	if (count + json_object_size(rests) > 0 && asprintf(&key, "%s\n%s", json_string_value(shown), store) >= 0)
		json_object_set_new(json_object_get(cluster, "locks"), key,
				    json_pack("{s:O,s:s,s:o,s:o,s:o,s:O,s:O}", "name", shown, "store", store, "fence",
					      picture_number(fence), "leases", picture_entries(entries, count, false),
					      "waiters", picture_entries(entries, count, true), "resting", rests,
					      "client", client));
	free(key);
	json_decref(shown);
	json_decref(rests);
	json_decref(client);
}

void picture_close(json_t *cluster)
{
	json_t *locks = json_array(), *lock;
	const char *name;

	json_object_foreach (json_object_get(cluster, "locks"), name, lock)
		json_array_append(locks, lock);
	json_object_set_new(cluster, "locks", locks);
}

/* --- leases of this host --- */

static const char *on_lost_name(enum on_lost on_lost)
{
	return on_lost == ON_LOST_FREEZE ? "freeze" : on_lost == ON_LOST_KILL ? "kill" : "warn";
}

static json_t *waiting_json(const struct lease *lease)
{
	json_t *list = json_array();
	struct waiter *w;

	DL_FOREACH (lease->lock->waiters, w) {
		const struct session *s = session_of_waiter(w);

		if (w->lease == lease)
			json_array_append_new(list, json_pack("{s:i,s:s,s:b,s:I}", "pid", (int)s->peer.pid, "mode",
							      picture_mode(s->request.mode), "nonblock", w->nonblocking,
							      "since", (json_int_t)s->started));
	}
	return list;
}

static enum on_lost on_lost_of(const struct lease *lease)
{
	return config_rule_for(lease->lock->file->keeper->config, lease->lock->file->path).on_lost;
}

/* made: room for a note that is made up. */
static const char *lease_note(const struct lease *lease, char made[PICTURE_NOTE_BYTES])
{
	if (lease->state == LEASE_ASKING && lease->asking.taken) {
		keys_say_taken(lease, made, PICTURE_NOTE_BYTES);
		return made;
	}
	if (lease->state == LEASE_ASKING)
		return lease->asking.resting  ? "waits until its rest is over (at_least_ms)"
		       : lease->asking.queued ? "waits for another host"
					      : "being asked for";
	if (table_is_hidden(lease->lock->file->keeper->table, lease->slot))
		return "cannot be renewed; held, but no holder can be stopped";
	if (table_frozen(lease->lock->file->keeper->table) && on_lost_of(lease) == ON_LOST_FREEZE &&
	    member_is_past(lease_member(lease)))
		return clock_now_ns() < lease_member(lease)->deadline.at_ns
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

/* Threads that keep a lease here which is wanted elsewhere. */
static json_t *calls_json(const struct lease *lease)
{
	json_t *list = json_array();
	struct underway_call call;
	char command[COMM_BYTES];

	for (size_t next = 0; seenout_next_keeping(lease, &next, &call);) {
		comm_read(call.pid, command);
		json_array_append_new(list, json_pack("{s:i,s:i,s:o,s:I,s:o}", "pid", (int)call.pid, "thread",
						      (int)call.thread, "command", picture_text(command), "from",
						      (json_int_t)call.from, "to", picture_end(call.to)));
	}
	return list;
}

/* Four states are one for people: "note" says what the lease waits for. */
static const char *lease_word(const struct lease *lease)
{
	return lease_state_name(lease_is_unsure(lease->state) ? LEASE_UNSURE : lease->state);
}

/* The token is of use to nobody but a client of the store; root may read it in leases.text, too. */
json_t *picture_lease(const struct lease *lease, bool all)
{
	const struct file *file = lease->lock->file;
	char made[PICTURE_NOTE_BYTES];
	json_t *row = json_pack(
		"{s:o,s:o,s:s,s:s,s:s,s:I,s:s,s:I,s:s,s:s,s:[],s:o,s:o}", "name", picture_text(file->name), "path",
		picture_text(file->path), "store", file->member->config->name, "inode", file->inode, "token",
		all ? lease->token : "", "fence", (json_int_t)lease->fence, "state", lease_word(lease), "since",
		(json_int_t)lease->held_at, "note", lease_note(lease, made), "on_lost", on_lost_name(on_lost_of(lease)),
		"holders", "waiting", waiting_json(lease), "calls", calls_json(lease));

	picture_add_range(row, &lease->range);
	return row;
}

json_t *picture_lost(const struct lost_lease *l)
{
	return json_pack("{s:o,s:o,s:s,s:I,s:I,s:s,s:b,s:[]}", "name", picture_text(l->name), "path",
			 picture_text(l->path), "mode", picture_mode(l->range.mode), "fence", (json_int_t)l->fence,
			 "when", (json_int_t)l->when, "why", l->why, "broken", l->broken, "holders");
}

json_t *picture_holder(pid_t pid, const char *command, const struct store_range *range, int64_t started)
{
	json_t *row = json_pack("{s:i,s:o,s:I}", "pid", (int)pid, "command", picture_text(command), "started",
				(json_int_t)started);

	picture_add_range(row, range);
	return row;
}

/* {PID: the moment of its last grant, "": since when there is the lease, or 0}. */
json_t *picture_ages(const struct lock *lock)
{
	json_t *grants = json_object();
	const struct age *h, *next;
	char pid[16];

	if (!lock)
		return grants;
	HASH_ITER (hh, lock->ages, h, next) {
		snprintf(pid, sizeof(pid), "%d", (int)h->pid);
		json_object_set_new(grants, pid, json_integer((json_int_t)h->since));
	}
	json_object_set_new(grants, "", json_integer(lock->taken_up ? 0 : (json_int_t)lock->leased_at));
	return grants;
}

void picture_add_since(const json_t *grants, pid_t locker, json_t *holder)
{
	json_int_t leased_at = json_integer_value(json_object_get(grants, ""));
	const json_t *granted;
	char pid[16];

	snprintf(pid, sizeof(pid), "%d", (int)locker);
	/* Pid 0 has the last grant of any process, which may not have got the lock: it is no time for people. */
	granted = locker > 0 ? json_object_get(grants, pid) : NULL;
	json_object_set_new(holder, "since", json_integer(granted ? json_integer_value(granted) : leased_at));
	json_object_set_new(holder, "since_is", json_string(granted ? "granted" : leased_at ? "after" : "unknown"));
}

/* --- the keeper --- */

static json_t *store_json(const struct member *m)
{
	const struct config_lease *lease = &m->keeper->config->lease;
	int64_t left = (m->deadline.at_ns - clock_now_ns()) / NS_PER_MS, sure = left - lease->freeze_margin_ms;
	bool grace = store_in_grace(m->store);

	return json_pack("{s:s,s:o,s:b,s:s,s:o,s:o,s:s,s:b,s:I,s:I,s:I,s:s,s:I}", "engine", store_engine_name(m->store),
			 "server", picture_text(store_server(m->store)), "up", store_is_up(m->store), "trouble",
			 store_is_up(m->store) ? "" : store_trouble(m->store), "error",
			 picture_text(store_last_error(m->store)), "version", picture_text(store_version(m->store)),
			 "incarnation", store_incarnation(m->store), "grace", grace, "grace_left_ms",
			 (json_int_t)(grace ? grace_left_ms(m) : 0), "deadline_left_ms",
			 (json_int_t)(left > 0 ? left : 0), "sure_left_ms", (json_int_t)(sure > 0 ? sure : 0),
			 "on_lost", on_lost_name(lease->on_lost), "ttl_ms", (json_int_t)lease->ttl_ms);
}

static json_t *rules_json(const struct keeper *k)
{
	const struct configfile *c = k->configfile;

	return json_pack("{s:I,s:I,s:s,s:o,s:I,s:[I,I]}", "count", (json_int_t)k->config->rule_count, "in_force_since",
			 (json_int_t)c->in_force_since, "file", configfile_state_name(c->state), "why",
			 picture_text(c->why), "since", (json_int_t)c->since, "seen", (json_int_t)c->seen.ino,
			 (json_int_t)c->seen.dev);
}

static json_t *log_json(void)
{
	enum log_by by;
	int level = log_level(&by);

	return json_pack("{s:s,s:s,s:I}", "level", config_log_level_name(level), "by", log_by_name(by), "unwritten",
			 (json_int_t)log_unwritten());
}

/* Locks that are held too long (toolong.h). */
static json_t *too_long_json(const struct keeper *k)
{
	json_t *list = json_array();
	const struct age *h, *next;
	const struct lock *lock;

	DL_FOREACH2 (k->ages.locks, lock, held_next)
		HASH_ITER (hh, lock->ages, h, next)
			if (h->state != AGE_QUIET)
				json_array_append_new(list,
						      json_pack("{s:o,s:o,s:s,s:i,s:o,s:I,s:I,s:s}", "name",
								picture_text(lock->file->name), "path",
								picture_text(lock->file->path), "space",
								picture_space(lock->space), "pid", (int)h->holder,
								"command", picture_text(h->command ? h->command : ""),
								"since", (json_int_t)h->since, "held_ms",
								(json_int_t)age_ms_of(k, h), "doing",
								h->state == AGE_ENDING  ? "is being ended"
								: h->state == AGE_STUCK ? "could not be ended"
											: ""));
	return list;
}

/* Locks that were taken past dflock (past.h). */
static json_t *past_json(const struct keeper *k)
{
	json_t *list = json_array(), *row;
	const struct suspect *s;

	DL_FOREACH (k->past.suspects, s) {
		if (!s->reported)
			continue;
		row = json_pack("{s:o,s:o,s:i,s:o,s:I,s:b}", "name", picture_text(s->name), "path",
				picture_text(s->path), "pid", (int)s->pid, "command", picture_text(s->command), "since",
				(json_int_t)s->since, "before", (int)s->known->before);
		picture_add_range(row,
				  &(struct store_range){(enum wire_space)s->known->key.space, s->mode, s->from, s->to});
		json_array_append_new(list, row);
	}
	return list;
}

static json_t *looks_json(const struct keeper *k)
{
	const struct past *p = &k->past;

	return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I}", "count", (json_int_t)p->looks, "every_ms",
			 (json_int_t)k->config->lease.past_look_ms, "locks", (json_int_t)p->listed, "not_found",
			 (json_int_t)p->nowhere, "left_out", (json_int_t)p->over, "took_us",
			 (json_int_t)(p->took_ns / 1000));
}

/* The stores with a name, and shards. */
static json_t *stores_json(const struct keeper *k)
{
	json_t *list = json_array();
	char name[MEMBER_NAME_BYTES];

	for (const struct member *m = k->members + 1; m < k->members + k->member_count; m++)
		if (m->wanted)
			json_array_append_new(
				list, json_pack("{s:s,s:o}", "name", member_name(m, name), "store", store_json(m)));
	return list;
}

json_t *picture_keeper(struct keeper *k)
{
	return json_pack(
		"{s:i,s:s,s:i,s:i,s:s,s:s,s:o,s:o,s:o,s:I,s:i,s:b,s:b,s:o,s:o,s:n,s:s,s:[],s:[],s:o,s:o,s:o,s:o}",
		"schema", PICTURE_SCHEMA, "version", DFLOCK_VERSION, "pid", (int)getpid(), "uid", (int)geteuid(),
		"host", k->host, "twin", k->twin, "config", picture_text(k->config->path), "rules", rules_json(k),
		"runtime_dir", picture_text(k->runtime_dir), "started", (json_int_t)k->started, "frozen",
		(int)table_frozen(k->table), "unsupervised", k->unsupervised, "ending", ending_waits(k), "store",
		store_json(&k->members[0]), "stores", stores_json(k), "cluster", "cluster_error", "", "leases", "lost",
		"too_long", too_long_json(k), "taken_past", past_json(k), "past_looks", looks_json(k), "log",
		log_json());
}

/* --- answers --- */

/* Writes large pieces: json_dumpfd() would make a system call for each comma. Any thread. */
int picture_to_memfd(const json_t *doc)
{
	int fd = memfd_make("dflock-status", MFD_CLOEXEC), ret;
	FILE *f = fd < 0 ? NULL : fdopen(fcntl(fd, F_DUPFD_CLOEXEC, 3), "w");
	bool written = f && json_dumpf(doc, f, JSON_INDENT(1)) == 0;

	if (f && fclose(f) != 0)
		written = false;
	if (written && lseek(fd, 0, SEEK_SET) == 0 && fcntl(fd, F_ADD_SEALS, PICTURE_SEALS) == 0)
		return fd;
	ret = errno;
	if (fd >= 0)
		close(fd);
	errno = ret;
	return -1;
}

void picture_answer(struct session *s, int fd, const char *what, int error)
{
	if (fd >= 0)
		session_reply(s, WIRE_OK, NULL, fd);
	else
		session_refuse(s, "the %s could not be written: %s", what, strerror(error));
}
