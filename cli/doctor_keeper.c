/* dflock doctor: runtime directory, keeper, configuration in force, store, and what the keeper's status warns of. */
#include "cli/doctor.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cli/ask.h"
#include "cli/field.h"
#include "cli/show.h"
#include "wire/page.h"
#include "wire/rundir.h"

static void check_runtime_dir(struct doctor *d)
{
	char dir[PLACE_DIR_BYTES], why[CLI_LINE_BYTES];
	int fd;

	fd = rundir_find(&d->place, geteuid(), dir, why, sizeof(why));
	if (!fd)
		fd = rundir_open(dir, geteuid(), false, why, sizeof(why));
	if (fd >= 0) {
		doctor_find(d, FINDING_OK, "the runtime directory is %s", dir);
		close(fd);
	} else if (fd == -ENOENT) {
		doctor_find(d, FINDING_OK, "the runtime directory%s%s will be made by the first keeper",
			    *dir ? " " : "", dir);
	} else {
		doctor_find(d, FINDING_PROBLEM, "%s", why);
	}
	if (!d->place.runtime_env[0] && strcmp(dir, RUNDIR_SYSTEM) != 0 && rundir_is_taken(geteuid(), why, sizeof(why)))
		doctor_find(d, FINDING_WARNING, "%s: another name is used instead", why);
}

/* Do these two paths lead to one file? It need not be readable. */
static bool is_same_config(const char *one, const char *other)
{
	struct wire_config_id mine, theirs;

	return !strcmp(one, other) || (!place_config_id(one, &theirs) && !place_config_id(other, &mine) &&
				       mine.dev == theirs.dev && mine.ino == theirs.ino);
}

void doctor_unread(struct doctor *d, const char *why)
{
	char ignored[CLI_LINE_BYTES];
	struct config *rules = NULL;
	json_t *status = NULL;
	const json_t *in_force;
	struct ask ask;
	int ret = ask_connect(&d->place, &ask, ignored);

	if (!ret)
		status = store_await(&ask, ignored);
	in_force = status && is_same_config(field_text(status, "config"), d->place.config)
			   ? json_object_get(status, "rules")
			   : NULL;
	if (ret == -ENOENT && ask_is_left(&ask))
		doctor_find(d, FINDING_PROBLEM,
			    "%s; until this is mended the next keeper goes by the rules of the one before", why);
	else if (!in_force)
		doctor_find(d, FINDING_PROBLEM, "%s; until this is mended every lock is refused", why);
	else if (*field_text(in_force, "why"))
		doctor_find(d, FINDING_PROBLEM, "%s; until this is mended the rules in force are the older ones", why);
	else if (config_load_rules(d->place.config, &rules, ignored, sizeof(ignored)))
		doctor_find(
			d, FINDING_WARNING,
			"the keeper of uid %u goes by the configuration %s, which this user cannot read (%s): locks are "
			"protected all the same, but `dflock run --require` and `dflock check` need it; let this user "
			"read it (what is secret belongs into password_file)",
			(unsigned)ask.uid, d->place.config, why);
	else
		doctor_find(d, FINDING_OK,
			    "the keeper of uid %u goes by the configuration %s, and has %" PRId64
			    " rules. This user cannot read all of it (%s), and need not; `dflock doctor` as that user "
			    "looks at the rules and the store, too",
			    (unsigned)ask.uid, d->place.config, field_number(in_force, "count"), why);
	config_free(rules);
	json_decref(status);
	ask_close(&ask);
}

static void check_same_config(struct doctor *d, const json_t *status)
{
	const json_t *rules = json_object_get(status, "rules");
	const char *keepers = field_text(status, "config");

	if (!is_same_config(keepers, d->place.config))
		doctor_find(d, FINDING_PROBLEM,
			    "the keeper goes by the configuration %s and programs by %s, so that their locks are "
			    "refused; set DFLOCK_CONFIG to the former, or DFLOCK_RUNTIME_DIR to have a keeper of "
			    "their own",
			    keepers, d->place.config);
	else if (!*field_text(rules, "why"))
		doctor_find(d, FINDING_OK, "the keeper goes by this configuration");
	else if (!strcmp(field_text(rules, "file"), "changed"))
		doctor_find(d, FINDING_OK, "%s has just changed, and the keeper looks at it", d->place.config);
	else if (d->config) /* else doctor_unread() has said it */
		doctor_find(d, FINDING_PROBLEM, "%s; until then the rules in force are older ones",
			    field_text(rules, "why"));
}

/* Advice for the reasons that do not say what to do; "": none. Reasons that the server itself gives do. */
static const char *store_advice(const char *engine, const char *why)
{
	static const char way[] = "is the server up, and does a firewall drop packets to it?";
	static const char hangs[] = "the server hangs or has too much to do: look at its log";
	static const char *const known[][3] = {
		{"redis", "connection refused", "start the server there, or correct `server` in the configuration"},
		{"redis", "no such file or directory",
		 "start the server there, or correct `server` in the configuration"},
		{"redis", "cannot look up",
		 "correct `server` in the configuration, or the name service of this machine"},
		{"redis", "unreachable", "correct `server` in the configuration, or the way there"},
		{"redis", "closed the connection", "look at the server's log"},
		{"redis", "connection reset", "look at the server's log"},
		{"redis", "permission denied", "let the keeper's user use the socket (unixsocketperm in redis.conf)"},
		{"redis", "not Redis's protocol",
		 "correct `server` in the configuration: something else answers there"},
		{"redis", "it is no Redis", "correct `server` in the configuration: something else answers there"},
		{"postgresql", "Connection refused",
		 "start the server there, or correct `postgresql` in the configuration"},
		{"postgresql", "No such file or directory",
		 "start the server there, or correct `postgresql` in the configuration"},
		{"postgresql", "could not translate host name",
		 "correct `postgresql` in the configuration, or the name service of this machine"},
		{"postgresql", "no password supplied", "write it into a file that password_file names"},
		{"postgresql", "password authentication failed",
		 "correct the file that password_file names, or the role's password"},
		{"postgresql", "no pg_hba.conf entry", "let this host in there (pg_hba.conf)"},
		{"postgresql", "too many c", "each host needs a connection: raise max_connections or the role's limit"},
		{"postgresql", "role \"", "`dflock doctor --acl` prints what makes the role, and user= names it"},
		{"postgresql", "database \"", "create the database, or correct dbname= in `postgresql`"},
		{"postgresql", "certificate", "correct sslmode=, sslrootcert= and so on in `postgresql`"},
		{"zookeeper", "Connection refused",
		 "start the server there, or correct `zookeeper` in the configuration"},
		{"zookeeper", "cannot be looked up",
		 "correct `zookeeper` in the configuration, or the name service of this machine"},
		{"zookeeper", "connection loss",
		 "has its ensemble a majority, and is maxClientCnxns large enough? Look at the server's log"},
		{"zookeeper", "no connection to", way},
		{"", "no connection within", way},
		{"", "no answer within", hangs},
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if ((!*known[i][0] || strcmp(known[i][0], engine) == 0) && strstr(why, known[i][1]))
			return known[i][2];
	return "";
}

static void check_store(struct doctor *d, const json_t *status)
{
	const json_t *store = json_object_get(status, "store"), *cluster = json_object_get(status, "cluster");
	int64_t ttl_ms = field_number(store, "ttl_ms"), cluster_ttl_ms = field_number(cluster, "ttl_ms");
	bool redis = strcmp(field_text(store, "engine"), "redis") == 0;
	char time[SHOW_TIME_BYTES], other[SHOW_TIME_BYTES];

	if (!field_flag(store, "up")) {
		const char *why = field_text(store, "error"), *advice = store_advice(field_text(store, "engine"), why);

		doctor_find(d, FINDING_PROBLEM, "the store %s is not usable, and locks are refused: %s%s%s",
			    field_text(store, "server"), *why ? why : "it has not answered yet; try again",
			    *advice ? "; " : "", advice);
		return;
	}
	if (*field_text(store, "refuses"))
		doctor_find(d, FINDING_PROBLEM, "the store %s answers, version %s, but takes no new locks: %s",
			    field_text(store, "server"), field_text(store, "version"), field_text(store, "refuses"));
	else
		doctor_find(d, FINDING_OK, "the store %s answers, version %s, can be written%s",
			    field_text(store, "server"), field_text(store, "version"),
			    redis && !strstr(field_text(store, "risk"), "drops leases") ? " and evicts no leases" : "");
	if (*field_text(store, "risk"))
		doctor_find(d, FINDING_WARNING, "the store %s: %s", field_text(store, "server"),
			    field_text(store, "risk"));
	else if (json_is_null(json_object_get(store, "risk")))
		doctor_find(
			d, FINDING_OK,
			"what would make the store refuse renewals and freeze jobs cannot be seen here (CONFIG GET): have "
			"`stop-writes-on-bgsave-error no` and `min-replicas-to-write %d` there",
			d->store ? config_acknowledgements(d->store) : 0);
	if (field_flag(store, "grace"))
		doctor_find(d, FINDING_WARNING,
			    "the store is new or lost its memory: it grants nothing for another %s, and then opens by "
			    "itself; if it is new, `dflock init` opens it sooner",
			    show_ms(field_number(store, "grace_left_ms"), time));
	if (cluster_ttl_ms && cluster_ttl_ms != ttl_ms)
		doctor_find(
			d, FINDING_PROBLEM,
			"ttl_ms is %s here and %s in the store; all hosts must have the same: change the configuration",
			show_ms(ttl_ms, time), show_ms(cluster_ttl_ms, other));
	else
		doctor_find(d, FINDING_OK, "a host that falls silent loses its locks after %s (ttl_ms)",
			    show_ms(ttl_ms, time));
	if (json_array_size(json_object_get(status, "lost")))
		doctor_find(d, FINDING_WARNING, "leases were lost; `dflock status` shows which and why");
}

/* The keeper inherited this from the program that started it, and may not undo it. pid 0: of a keeper outside of this pid namespace. */
static void check_priority(struct doctor *d, pid_t pid)
{
	int nice_value = getpriority(PRIO_PROCESS, (id_t)pid), policy = sched_getscheduler(pid);

	if (!pid)
		return;
	if (nice_value > 0 || policy == SCHED_IDLE)
		doctor_find(d, FINDING_WARNING,
			    "the keeper runs with nice %d%s: on a busy machine its leases may run out and their "
			    "holders be frozen; end it with `dflock stop` and start dflockd without that",
			    nice_value, policy == SCHED_IDLE ? " and SCHED_IDLE" : "");
}

/* --- locks that the keeper's status says were taken past dflock --- */

#define SHOWN_MAX 10 /* `dflock status` shows all */

static void find_past(struct doctor *d, const json_t *lock)
{
	const char *path = field_text(lock, "path"), *command = field_text(lock, "command");
	int64_t pid = field_number(lock, "pid");
	char since[SHOW_TIME_BYTES];

	if (field_flag(lock, "before"))
		doctor_find(d, FINDING_WARNING,
			    "%s was locked by pid %" PRId64 " (%s) before the keeper or the rule came, and no lease "
			    "covers the lock; start the program again, with `dflock run`",
			    path, pid, command);
	else
		doctor_find(d, FINDING_PROBLEM,
			    "%s is locked past dflock by pid %" PRId64
			    " (%s), seen since %s: another host may have the lock, "
			    "too; start the program with `dflock run`, and see `dflock doctor PROGRAM`",
			    path, pid, command, show_when(field_number(lock, "since"), since));
}

/* A keeper of root's may look into all processes. */
static void find_none(struct doctor *d, const json_t *status)
{
	const json_t *looks = json_object_get(status, "past_looks");
	int64_t hidden = field_number(status, "uid") ? field_number(looks, "not_found") : 0;
	char note[128] = "";

	if (hidden)
		snprintf(note, sizeof(note), "; %" PRId64 " locks belong to processes that it may not look into",
			 hidden);
	if (field_number(looks, "every_ms"))
		doctor_find(d, FINDING_OK, "the keeper has found no lock that was taken past dflock%s", note);
	else
		doctor_find(d, FINDING_WARNING,
			    "the keeper does not look for locks that are taken past dflock: past_look_ms is 0");
}

static void check_past(struct doctor *d, const json_t *status)
{
	size_t count, found[2] = {0};
	json_t **list = field_sorted(json_object_get(status, "taken_past"), "name", "pid", &count);
	int64_t left_out = field_number(json_object_get(status, "past_looks"), "left_out");

	/* Those that are past dflock, then those from before. */
	for (int before = 0; before < 2; before++) {
		for (size_t i = 0; i < count; i++)
			if (field_flag(list[i], "before") == before && found[before]++ < SHOWN_MAX)
				find_past(d, list[i]);
		if (found[before] > SHOWN_MAX)
			doctor_find(d, before ? FINDING_WARNING : FINDING_PROBLEM,
				    "%zu more locks like these: `dflock status` shows them", found[before] - SHOWN_MAX);
		if (!before && !found[0])
			find_none(d, status);
	}
	if (left_out)
		doctor_find(d, FINDING_WARNING, "%" PRId64 " locks were not looked at: more than the keeper watches",
			    left_out);
	free(list);
}

/* --- what other hosts name or protect differently --- */

#define OLD_MS      (2 * 3600 * 1000) /* a keeper that runs has said by which rules it goes since then */
#define HOSTS_BYTES 512

/* "host web2-1a2b", "hosts web2-1a2b, web3-4c5d and 7 others", and since when, if that is long ago. */
static const char *elsewhere_hosts(const json_t *difference, char out[HOSTS_BYTES])
{
	const json_t *hosts = json_object_get(difference, "hosts"), *host;
	int64_t others = field_number(difference, "others"), age_ms = field_number(difference, "age_ms");
	size_t i, count = json_array_size(hosts), used = 0;
	char age[SHOW_TIME_BYTES];

	used += (size_t)snprintf(out, HOSTS_BYTES, "host%s", count + (size_t)others == 1 ? "" : "s");
	json_array_foreach (hosts, i, host)
		if (i < 3 && json_is_string(host))
			used += (size_t)snprintf(out + used, HOSTS_BYTES - used, "%s %.127s",
						 i == 0                    ? ""
						 : others || i + 1 < count ? ","
									   : " and",
						 json_string_value(host));
	if (others > 0)
		used += (size_t)snprintf(out + used, HOSTS_BYTES - used, " and %" PRId64 " other%s", others,
					 others == 1 ? "" : "s");
	if (age_ms > OLD_MS && used < HOSTS_BYTES)
		snprintf(out + used, HOSTS_BYTES - used, " (%s ago)", show_ms(age_ms, age));
	return out;
}

static void elsewhere_find(struct doctor *d, const json_t *difference)
{
	bool renamed = !strcmp(field_text(difference, "what"), "renamed");
	char hosts[HOSTS_BYTES];

	/* `tree /srv/app` as "app/..."; cut where it is very long. */
	doctor_find(d, FINDING_WARNING, "%s%.2000s as \"%.1500s\" here, and %.2000s as \"%.1500s\" on %s: %s",
		    renamed ? "named differently: " : "another redis_key: ", field_text(difference, "here"),
		    field_text(difference, "here_as"), field_text(difference, "there"),
		    field_text(difference, "there_as"), elsewhere_hosts(difference, hosts),
		    renamed ? "these locks do not exclude each other; give both rules the same `name` and `store`"
			    : "Redis clients are excluded by some of these hosts only; give both rules the same "
			      "`redis_key` and `redis_key_format`");
}

static void check_elsewhere(struct doctor *d, const json_t *elsewhere)
{
	const json_t *list = json_object_get(elsewhere, "differences"), *difference;
	int64_t same = field_number(elsewhere, "same"), unknown = field_number(elsewhere, "unknown"),
		left_out = field_number(elsewhere, "left_out"), alone = field_number(elsewhere, "alone");
	size_t i;

	json_array_foreach (list, i, difference)
		elsewhere_find(d, difference);
	if (left_out > 0)
		doctor_find(d, FINDING_WARNING, "%" PRId64 " more rules differ between this host and others", left_out);
	if (alone > 0)
		doctor_find(d, FINDING_WARNING,
			    "%" PRId64
			    " lock name%s that only some hosts have, of hosts that share others: compare their "
			    "`protect` with this one; is a path misspelt?",
			    alone, alone == 1 ? "" : "s");
	if (*field_text(elsewhere, "error"))
		doctor_find(d, FINDING_WARNING, "the rules of other hosts cannot be compared with these: %s",
			    field_text(elsewhere, "error"));
	else if (same > 0 && !json_array_size(list) && !alone)
		doctor_find(d, FINDING_OK, "%" PRId64 " other keeper%s the same, or did when %s ran", same,
			    same == 1 ? " names and protects" : "s name and protect", same == 1 ? "it" : "they");
	if (unknown > 0)
		doctor_find(d, FINDING_OK, "the rules of %" PRId64 " other keeper%s are not known", unknown,
			    unknown == 1 ? "" : "s");
}

/* Root's programs would start a keeper of root's own beside the system's, which only has to be started. */
static bool is_for_system(const struct doctor *d)
{
	return geteuid() == 0 && !d->place.runtime_env[0] && access(RUNDIR_SYSTEM, F_OK) == 0;
}

/* As the keeper calls it: "NAME", or "NAME/N" for a shard. NULL: it goes by another configuration. */
static const struct config_store *store_of_name(const struct config *config, const char *name)
{
	for (size_t i = 0; config && i < config->store_count; i++) {
		const char *called = *config->stores[i].name ? config->stores[i].name : "default";
		size_t len = strlen(called);

		if (strncmp(name, called, len) == 0 && (!name[len] || name[len] == '/'))
			return &config->stores[i];
	}
	return NULL;
}

/* The others than the default one only if the keeper goes by the same configuration. */
static void check_stores(struct doctor *d, const json_t *status)
{
	unsigned shards = 0;
	const json_t *store;
	size_t i;

	d->store = d->config ? &d->config->stores[0] : NULL;
	check_store(d, status);
	json_array_foreach (json_object_get(status, "stores"), i, store) {
		const char *name = field_text(store, "name");

		d->store = store_of_name(d->config, name);
		d->part = strchr(name, '/') ? name : NULL;
		shards += d->part != NULL;
		if (d->store)
			check_store(d, store);
	}
	d->store = NULL;
	d->part = NULL;
	if (shards)
		doctor_find(d, FINDING_OK, "%u shard%s more were looked at", shards, shards == 1 ? "" : "s");
}

void doctor_keeper(struct doctor *d)
{
	char why[CLI_LINE_BYTES];
	json_t *status = NULL;
	struct ask ask;
	int ret;

	check_runtime_dir(d);
	ret = ask_connect(&d->place, &ask, why);
	if (ret == -ENOENT && is_for_system(d)) {
		doctor_find(
			d, FINDING_WARNING,
			"the keeper of the system does not run, and the store was not tried; start it (`systemctl start "
			"dflock`), or else each user's programs start one of their own");
		return;
	}
	/* Without a valid configuration no keeper can be started, but one may run already. */
	if (ret == -ENOENT && d->config)
		ret = start_connect(&d->place, &ask, why);
	if (ret) {
		doctor_find(d, d->config || ret != -ENOENT ? FINDING_PROBLEM : FINDING_WARNING, "%s", why);
		return;
	}
	doctor_find(d, FINDING_OK, "%s keeper %s (pid %d, uid %u)", ask.started ? "no keeper ran; a" : "the",
		    ask.started ? "was started" : "runs", (int)ask.pid, (unsigned)ask.uid);
	check_priority(d, ask.pid);
	status = store_await(&ask, why);
	if (!status) {
		doctor_find(d, FINDING_PROBLEM, "the keeper (pid %d): %s", (int)ask.pid, why);
	} else {
		if (d->place.config[0])
			check_same_config(d, status);
		check_stores(d, status);
		check_past(d, status);
		if (field_flag(json_object_get(status, "store"), "up"))
			check_elsewhere(d, json_object_get(status, "elsewhere"));
	}
	json_decref(status);
	ask_close(&ask);
}
