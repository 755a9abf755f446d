/* See configfile.h. */
#include "keeper/callers/configfile.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "keeper/clock.h"
#include "keeper/log.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/pagefile.h"
#include "keeper/leases/past.h"
#include "keeper/leases/posting.h"
#include "wire/place.h"

#define STOP_ADVICE   "end the keeper with `dflock stop`, the next one reads them"
#define RELOAD_ADVICE "`dflock reload` takes it over"
#define BECOMES_BYTES (LOCK_NAME_BYTES + 32)

const char *configfile_state_name(enum configfile_state state)
{
	static const char *const names[] = {
		[CONFIGFILE_SAME] = "same", [CONFIGFILE_CHANGED] = "changed", [CONFIGFILE_WAITS] = "waits",
		[CONFIGFILE_STOP] = "stop", [CONFIGFILE_INVALID] = "invalid", [CONFIGFILE_MISSING] = "missing",
	};

	return names[state];
}

/* --- the state of the file --- */

/* Logs a state once, as long as it stays: two states with different `why` are different states. */
__attribute__((format(printf, 3, 4))) static void configfile_enter(struct keeper *k, enum configfile_state state,
								   const char *format, ...)
{
	struct configfile *c = k->configfile;
	char why[WIRE_REASON_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(why, sizeof(why), format, args);
	va_end(args);
	if (state == c->state && strcmp(why, c->why) == 0)
		return;
	if (state >= CONFIGFILE_WAITS)
		log_about(LINE_CONFIG_NOT_IN_FORCE, &(struct log_about){.subject = why},
			  "%s; the old rules stay in force", why);
	else if (state == CONFIGFILE_SAME && c->state >= CONFIGFILE_WAITS)
		log_event(LINE_CONFIG_IN_FORCE_AGAIN, "%s: it has the rules in force again", k->config->path);
	c->state = state;
	c->since = time(NULL);
	snprintf(c->why, sizeof(c->why), "%s", why);
}

bool configfile_is_known(const struct configfile *c)
{
	return c->state == CONFIGFILE_SAME || c->judged;
}

static void configfile_set_seen(struct keeper *k, const struct wire_config_id *id, int64_t now_ns)
{
	struct configfile *c = k->configfile;

	c->judged = false;
	if (memcmp(&c->seen, id, sizeof(*id)) == 0)
		return;
	c->seen = *id;
	c->seen_ns = now_ns;
	pagefile_seen(k->page, k->config, id);
}

static bool is_same_text(const struct config_source *source, const struct config *config)
{
	return source->len == config->text_len && memcmp(source->text, config->text, source->len) == 0;
}

void configfile_look_now(const char *path, struct configfile_look *look)
{
	*look = (struct configfile_look){.read = -ENOENT};
	look->read = config_fetch(path, &look->source, look->why, sizeof(look->why));
	if (look->read < 0) {
		look->error = -place_config_id(path, &look->id);
		return;
	}
	look->id = look->source.id;
	look->read = config_parse(&look->source, false, &look->fresh, look->why, sizeof(look->why));
	if (look->fresh)
		look->command = config_can_run(look->fresh, look->why, sizeof(look->why));
}

/* --- taking over --- */

static void configfile_add_names(const struct keeper *k, struct config *config)
{
	if (k->names_dir && !config->names.pattern && config_set_names(config, k->names_dir) < 0)
		log_event(LINE_NAMES_UNUSABLE,
			  "no memory left: `dflock lock` is refused until the configuration is read again");
}

static void configfile_keep(struct keeper *k, const struct config *config)
{
	int ret = kept_write(k->dir_fd, config);

	if (ret < 0)
		log_event(LINE_CONFIG_COPY_FAILED,
			  "%s/" KEPT_NAME " cannot be written: %s; a keeper that is started anew reads the file, "
			  "whatever it then says",
			  k->runtime_dir, strerror(-ret));
}

/* Puts `fresh` in force. Frees the configuration that was in force. */
static void configfile_replace(struct keeper *k, struct config *fresh)
{
	/* Each store keeps a pointer to its part of the configuration. config_same_store() found all parts equal, so
	 * the old ones stay at their addresses. Of the passwords, the new ones count for the next connection. */
	struct config old = *k->config;
	struct lease *lease, *next;
	struct file *file, *next_file;

	config_swap_passwords(&old, fresh);
	*k->config = *fresh;
	k->config->stores = old.stores;
	old.stores = fresh->stores;
	*fresh = old;
	config_free(fresh);
	log_set_level(LOG_BY_CONFIGURATION, k->config->log_level);
	HASH_ITER (hh, k->leases, lease, next)
		table_set_on_lost(k->table, lease->slot, config_rule_for(k->config, lease->lock->file->path).on_lost);
	HASH_ITER (hh, k->files, file, next_file)
		file_follow_rule(file);
}

static void configfile_tell_command(const struct configfile_look *look)
{
	if (look->command < 0)
		log_event(LINE_COMMAND_FAILED, "%s; events are in the log alone", look->why);
}

/* Takes over look->fresh. */
static void configfile_take_over(struct keeper *k, struct configfile_look *look)
{
	struct configfile *c = k->configfile;
	struct config *fresh = look->fresh;

	look->fresh = NULL;
	configfile_tell_command(look);
	configfile_keep(k, fresh);
	configfile_add_names(k, fresh);
	leasepage_close_all(k);
	pagefile_publish(k->page, fresh, &fresh->id); /* there is room: config_parse() has checked that */
	configfile_replace(k, fresh);
	past_rules_changed(k);
	c->seen = k->config->id;
	c->in_force_since = time(NULL);
	configfile_enter(k, CONFIGFILE_SAME, "%s", "");
	for (unsigned i = 0; i < k->member_count; i++)
		posting_send(&k->members[i]);
}

/* The contents are at rest. */
static void configfile_judge(struct keeper *k, struct configfile_look *look)
{
	char why[WIRE_REASON_BYTES / 2];
	struct config *fresh = look->fresh;

	k->configfile->judged = true;
	if (!fresh) {
		configfile_enter(k, CONFIGFILE_INVALID, "%s", look->why);
	} else if (!config_follows(k->config, fresh, why, sizeof(why))) {
		configfile_enter(k, CONFIGFILE_WAITS, "%s was changed, and %s; " RELOAD_ADVICE, k->config->path, why);
	} else if (!config_same_store(k->config, fresh)) {
		configfile_enter(k, CONFIGFILE_STOP, "%s was changed: host, store, ttl_ms or sweep_ms; " STOP_ADVICE,
				 k->config->path);
	} else {
		configfile_take_over(k, look);
		log_event(LINE_CONFIG_TAKEN_OVER,
			  "%s was changed and taken over: %zu rules, and no file lost its protection or name",
			  k->config->path, k->config->rule_count);
	}
}

void configfile_found(struct keeper *k, struct configfile_look *look, int64_t now_ns)
{
	struct configfile *c = k->configfile;

	configfile_set_seen(k, &look->id, now_ns);
	if (!look->source.text) {
		if (look->error == ENOENT)
			configfile_enter(k, CONFIGFILE_MISSING, "%s is missing: put it back", k->config->path);
		else if (look->read == -EAGAIN) /* the file changes while it is read */
			configfile_enter(k, CONFIGFILE_CHANGED, "%s", look->why);
		else
			configfile_enter(k, CONFIGFILE_INVALID, "%s", look->why);
	} else if (is_same_text(&look->source, k->config)) {
		k->config->id = look->id;
		configfile_enter(k, CONFIGFILE_SAME, "%s", "");
	} else if (now_ns - c->seen_ns >= CONFIGFILE_REST_MS * NS_PER_MS) {
		configfile_judge(k, look);
	} else if (c->state < CONFIGFILE_WAITS) {
		configfile_enter(k, CONFIGFILE_CHANGED, "%s was changed", k->config->path);
	}
}

/* --- the start --- */

/* Has the file been at rest for long enough that no second look is needed? Goes by the wall clock: if somebody has set
 * the clock, the start waits for the second look. */
static bool configfile_is_at_rest(const struct wire_config_id *id)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec - id->ctime_ns >= CONFIGFILE_REST_MS * NS_PER_MS;
}

/* Takes the file over in place of the copy. */
static bool configfile_may_replace(const struct keeper *k, const struct config *old, const struct configfile_look *look)
{
	char why[WIRE_REASON_BYTES];

	if (!look->fresh)
		return false;
	if (is_same_text(&look->source, old))
		return true;
	if (!configfile_is_at_rest(&look->id) || !config_follows(old, look->fresh, why, sizeof(why)))
		return false;
	return config_same_store(old, look->fresh) || (look->fresh->has_store && !table_in_use(k->table));
}

static int configfile_start_with(struct keeper *k, struct config *config, const struct wire_config_id *seen)
{
	struct configfile *c = k->configfile;

	configfile_add_names(k, config);
	k->config = config;
	log_set_level(LOG_BY_CONFIGURATION, config->log_level);
	c->seen = *seen;
	c->seen_ns = clock_now_ns();
	c->since = c->in_force_since = time(NULL);
	return pagefile_publish(k->page, config, seen);
}

/* There is no copy: the keeper does not know what should be protected. */
static int configfile_refuse_all(struct keeper *k, const char *path, const struct configfile_look *look, char *why,
				 size_t why_size)
{
	if (!wire_config_is_none(&look->id))
		pagefile_invalid(k->page, path, &look->id, look->why);
	snprintf(why, why_size, "%s", look->why);
	return -EINVAL;
}

/* An editor may be writing the file at this moment: a file that protects nothing, or is invalid, is not believed while
 * it is young. */
static void configfile_read_at_start(const char *path, struct configfile_look *look)
{
	const struct timespec pause = {.tv_nsec = 50 * NS_PER_MS};
	int64_t end = clock_now_ns() + CONFIGFILE_REST_MS * NS_PER_MS;

	configfile_look_now(path, look);
	while ((!look->fresh || !look->fresh->rule_count) && !wire_config_is_none(&look->id) &&
	       !configfile_is_at_rest(&look->id) && clock_now_ns() < end) {
		nanosleep(&pause, NULL);
		config_free(look->fresh);
		config_source_free(&look->source);
		configfile_look_now(path, look);
	}
}

int configfile_load(struct keeper *k, const char *path, char *why, size_t why_size)
{
	struct config_source kept;
	struct config *old = NULL;
	struct configfile_look look;
	int ret;

	k->configfile = calloc(1, sizeof(*k->configfile));
	if (!k->configfile) {
		snprintf(why, why_size, "no memory left");
		return -ENOMEM;
	}
	ret = kept_read(k->dir_fd, path, &kept);
	if (ret == 0 && config_parse(&kept, false, &old, why, why_size) < 0)
		log_event(LINE_CONFIG_COPY_FAILED,
			  "the copy of the configuration in force is of no use: %s; the configuration itself is read",
			  why);
	else if (ret < 0 && ret != -ENOENT)
		log_event(LINE_CONFIG_COPY_FAILED,
			  "%s/" KEPT_NAME " is of no use: %s; the configuration itself is read", k->runtime_dir,
			  strerror(-ret));
	config_source_free(&kept);
	if (old)
		configfile_look_now(path, &look);
	else
		configfile_read_at_start(path, &look);
	if (old && !configfile_may_replace(k, old, &look)) {
		log_event(LINE_CONFIG_NOT_IN_FORCE,
			  "%s does not have the rules in force: those of the keeper before this one stay in force",
			  path);
		ret = configfile_start_with(k, old, &look.id);
		old = NULL;
		configfile_found(k, &look, clock_now_ns());
	} else if (look.fresh) {
		configfile_tell_command(&look);
		configfile_keep(k, look.fresh);
		ret = configfile_start_with(k, look.fresh, &look.id);
		look.fresh = NULL;
	} else {
		ret = configfile_refuse_all(k, path, &look, why, why_size);
	}
	config_free(old);
	config_free(look.fresh);
	config_source_free(&look.source);
	if (ret < 0)
		configfile_free(k);
	return ret;
}

void configfile_free(struct keeper *k)
{
	config_free(k->config);
	free(k->configfile);
	k->config = NULL;
	k->configfile = NULL;
}

/* --- operators --- */

/* A file that would have another name, or its name in another store: that is another lock. And this one is held, or was a moment ago, or
 * a caller waits for it, and would have it by its old name. *becomes: what the file would do. */
static const struct file *find_affected_file(const struct keeper *k, const struct config *fresh,
					     char becomes[BECOMES_BYTES])
{
	const struct file *file, *next;
	char name[LOCK_NAME_BYTES];

	HASH_ITER (hh, k->files, file, next) {
		bool named = config_lock_name(fresh, file->path, name) == 0;
		/* The stores are the same, in the same places (config_same_store()). */
		unsigned store = config_rule_for(fresh, file->path).store;

		if (!file_is_used(file))
			continue;
		if (!named)
			snprintf(becomes, BECOMES_BYTES, "not be protected any more");
		else if (strcmp(name, file->name) != 0)
			snprintf(becomes, BECOMES_BYTES, "have the name %s", name);
		else if (&k->config->stores[store] != file->member->config)
			snprintf(becomes, BECOMES_BYTES, "be in another store");
		else
			continue;
		return file;
	}
	return NULL;
}

int configfile_reload(struct keeper *k, struct configfile_look *look, bool force, char *why, size_t why_size)
{
	char becomes[BECOMES_BYTES];
	const struct file *file;

	if (!look->fresh) {
		snprintf(why, why_size, "%s; the keeper goes on with what it had read", look->why);
		return -EINVAL;
	}
	if (!config_same_store(k->config, look->fresh)) {
		snprintf(why, why_size, "%s: host, store, ttl_ms or sweep_ms have changed: " STOP_ADVICE,
			 k->config->path);
		return -EINVAL;
	}
	configfile_add_names(k, look->fresh);
	file = force ? NULL : find_affected_file(k, look->fresh, becomes);
	if (file) {
		snprintf(
			why, why_size,
			"%s (%s) is locked, was just now, or is waited for, and would %s: other hosts could lock it "
			"meanwhile. End the program that holds it or waits (`dflock status`), or say `dflock reload --force`",
			file->name, file->path, becomes);
		return -EINVAL;
	}
	configfile_take_over(k, look);
	log_event(LINE_CONFIG_TAKEN_OVER, "%s was read again: %zu rules", k->config->path, k->config->rule_count);
	return 0;
}

void configfile_forget(struct keeper *k)
{
	struct configfile *c = k->configfile;

	if (c->state == CONFIGFILE_INVALID)
		return; /* all locks would be refused */
	kept_remove(k->dir_fd);
	if (c->state != CONFIGFILE_SAME)
		pagefile_forget(k->page);
}

/* --- programs --- */

bool configfile_is_ours(const struct keeper *k, const struct wire_config_id *id, uint64_t path_hash)
{
	bool none = wire_config_is_none(id);
	struct timespec now;

	if (!none &&
	    (memcmp(id, &k->config->id, sizeof(*id)) == 0 || memcmp(id, &k->configfile->seen, sizeof(*id)) == 0))
		return true;
	if (!path_hash || path_hash != leases_hash(k->config->path))
		return false;
	clock_gettime(CLOCK_REALTIME, &now);
	return none || wire_config_is_young(id, now.tv_sec * INT64_C(1000000000) + now.tv_nsec);
}
