#include "config/config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

#include "config/internal.h"
#include "wire/place.h"

#define HOST_BYTES 64 /* STORE_HOST_BYTES has room for this and a suffix */
#define HOST_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._"
#define LOAD_TRIES 3
#define HOUR_MS    INT64_C(3600000)
#define DAY_MS     CONFIG_DAY_MS

struct top_values {
	const char *host, *log_level;
	bool allow_break;
	bool show_jobs;
	config_setting_t *on_event, *store, *stores, *lease, *protect;
};

const struct setting_row config_top_rows[] = {
	{"host", SETTING_STRING, offsetof(struct top_values, host), .with = NULL},
	{"log_level", SETTING_STRING, offsetof(struct top_values, log_level), .with = NULL},
	{"allow_break", SETTING_FLAG, offsetof(struct top_values, allow_break), .with = NULL},
	{"on_event", SETTING_TEXTS, offsetof(struct top_values, on_event), .with = NULL},
	{"show_jobs", SETTING_FLAG, offsetof(struct top_values, show_jobs), .with = NULL},
	{"store", SETTING_GROUP, offsetof(struct top_values, store), .with = NULL},
	{"stores", SETTING_GROUP, offsetof(struct top_values, stores), .with = NULL},
	{"lease", SETTING_GROUP, offsetof(struct top_values, lease), .with = NULL},
	{"protect", SETTING_LIST, offsetof(struct top_values, protect), .with = NULL},
	{.name = NULL},
};

const struct setting_row config_lease_rows[] = {
	{"ttl_ms", SETTING_NUMBER, offsetof(struct config_lease, ttl_ms), .min = 100, .max = HOUR_MS},
	{"linger_ms", SETTING_NUMBER, offsetof(struct config_lease, linger_ms), .min = 0, .max = HOUR_MS},
	{"pin_ms", SETTING_NUMBER, offsetof(struct config_lease, pin_ms), .min = 10, .max = 60000},
	{"probe_ms", SETTING_NUMBER, offsetof(struct config_lease, probe_ms), .min = 10, .max = 60000},
	{"store_wait_ms", SETTING_NUMBER, offsetof(struct config_lease, store_wait_ms), .min = 0, .max = DAY_MS},
	{"min_hold_ms", SETTING_NUMBER, offsetof(struct config_lease, min_hold_ms), .min = 0, .max = 1000},
	{"fair_ms", SETTING_NUMBER, offsetof(struct config_lease, fair_ms), .min = 0, .max = HOUR_MS},
	{"freeze_margin_ms", SETTING_NUMBER, offsetof(struct config_lease, freeze_margin_ms), .min = 1, .max = HOUR_MS},
	{"dead_ms", SETTING_NUMBER, offsetof(struct config_lease, dead_ms), .min = 2000, .max = 30 * DAY_MS},
	{"sweep_ms", SETTING_NUMBER, offsetof(struct config_lease, sweep_ms), .min = 100, .max = 30 * DAY_MS},
	{"idle_ms", SETTING_NUMBER, offsetof(struct config_lease, idle_ms), .min = 0, .max = DAY_MS},
	{"past_look_ms", SETTING_NUMBER, offsetof(struct config_lease, past_look_ms), .min = 0, .max = HOUR_MS},
	{"wait_warn_ms", SETTING_NUMBER, offsetof(struct config_lease, wait_warn_ms), .min = 0, .max = DAY_MS},
	{"on_lost", SETTING_WORD, offsetof(struct config_lease, on_lost), .words = settings_on_lost},
	{"on_refused", SETTING_WORD, offsetof(struct config_lease, on_refused), .words = settings_on_refused},
	{.name = NULL},
};

/* The limits of these settings depend on ttl_ms, so no table has them. */
static int config_check_lease(const struct config_reading *r, config_setting_t *group, const struct config_lease *lease)
{
	/* A lease is sure for nine tenths of ttl_ms; half of that must be left for work. */
	if (lease->freeze_margin_ms >= lease->ttl_ms * 9 / 20)
		return reading_fail(r, settings_line(group, "freeze_margin_ms"),
				    "lease.freeze_margin_ms is %lld; expected less than %lld (9/20 of ttl_ms)",
				    (long long)lease->freeze_margin_ms, (long long)(lease->ttl_ms * 9 / 20));
	if (lease->dead_ms < 20 * lease->ttl_ms)
		return reading_fail(r, settings_line(group, "dead_ms"),
				    "lease.dead_ms is %lld; expected at least %lld (20 times ttl_ms)",
				    (long long)lease->dead_ms, (long long)(20 * lease->ttl_ms));
	if (lease->sweep_ms < lease->ttl_ms)
		return reading_fail(r, settings_line(group, "sweep_ms"),
				    "lease.sweep_ms is %lld; expected at least %lld (ttl_ms)",
				    (long long)lease->sweep_ms, (long long)lease->ttl_ms);
	return 0;
}

static int config_read_lease(const struct config_reading *r, config_setting_t *group, struct config_lease *lease)
{
	int ret;

	*lease = (struct config_lease){
		.ttl_ms = 30000,
		.linger_ms = 1000,
		.pin_ms = 1000,
		.probe_ms = 200,
		.store_wait_ms = 30000,
		.fair_ms = 1000,
		.min_hold_ms = 5,
		.freeze_margin_ms = -1,
		.dead_ms = -1,
		.sweep_ms = DAY_MS,
		.idle_ms = 60000,
		.past_look_ms = 5000,
		.on_lost = ON_LOST_FREEZE,
		.on_refused = WIRE_ON_REFUSED_REFUSE,
	};
	ret = group ? settings_read(r, group, "lease.", config_lease_rows, lease) : 0;
	if (ret < 0)
		return ret;
	if (lease->freeze_margin_ms < 0)
		lease->freeze_margin_ms = lease->ttl_ms / 6;
	if (lease->dead_ms < 0)
		lease->dead_ms = lease->ttl_ms > 30000 ? 20 * lease->ttl_ms : 600000;
	return config_check_lease(r, group, lease);
}

static int config_read_host(const struct config_reading *r, int line, const char *host, char **out)
{
	char own[HOST_BYTES + 2] = "";

	if (!host) {
		line = 0;
		host = own;
		/* gethostname() may leave out the NUL when it cuts a name; such a name is too long in any case. */
		if (gethostname(own, sizeof(own) - 1) < 0 && errno != ENAMETOOLONG)
			return reading_fail(r, 0, "the machine's name cannot be read: %s; set host", strerror(errno));
	}
	if (!*host || strlen(host) > HOST_BYTES || host[strspn(host, HOST_CHARS)])
		return reading_fail(r, line, "%s is \"%.80s\"; expected 1 to %d letters, digits, '-', '.' and '_'%s",
				    line ? "host" : "the machine's name", host, HOST_BYTES, line ? "" : ": set host");
	*out = strdup(host);
	return *out ? 0 : reading_out_of_memory(r);
}

/* A user that can write the file could make the keeper run any command. */
static int config_read_on_event(const struct config_reading *r, config_setting_t *words, bool shared, char ***out)
{
	int count, line;

	if (!words)
		return 0;
	count = config_setting_length(words);
	line = config_setting_source_line(words);
	if (shared)
		return reading_fail(r, line,
				    "on_event is a command that the keeper runs; expected a file that only root or "
				    "user %u can write: chown and chmod go-w it",
				    (unsigned)geteuid());
	if (config_setting_get_string_elem(words, 0)[0] != '/')
		return reading_fail(r, line, "on_event begins with \"%.100s\"; expected the absolute path of a program",
				    config_setting_get_string_elem(words, 0));
	*out = calloc((size_t)count + 1, sizeof(**out));
	for (int i = 0; *out && i < count; i++) {
		(*out)[i] = strdup(config_setting_get_string_elem(words, i));
		if (!(*out)[i])
			return reading_out_of_memory(r);
	}
	return *out ? 0 : reading_out_of_memory(r);
}

int config_log_level(const char *word)
{
	static const int levels[] = {LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG};

	for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++)
		if (strcmp(word, config_log_level_name(levels[i])) == 0)
			return levels[i];
	return -1;
}

const char *config_log_level_name(int level)
{
	return level <= LOG_ERR ? "error" : level == LOG_WARNING ? "warning" : level == LOG_DEBUG ? "debug" : "info";
}

static int config_read_log_level(const struct config_reading *r, int line, const char *word, int *level)
{
	*level = word ? config_log_level(word) : -1;
	if (word && *level < 0)
		return reading_fail(r, line, "log_level is \"%.80s\"; expected " CONFIG_LOG_LEVELS, word);
	return 0;
}

static int config_read_top(const struct config_reading *r, config_setting_t *root, bool shared, struct config *config)
{
	struct top_values values = {.show_jobs = true};
	int ret = settings_read(r, root, "", config_top_rows, &values);

	config->show_jobs = values.show_jobs;
	config->has_store = values.store != NULL;
	config->has_protect = values.protect != NULL;
	config->allow_break = values.allow_break;
	if (ret == 0)
		ret = config_read_host(r, settings_line(root, "host"), values.host, &config->host);
	if (ret == 0)
		ret = config_read_log_level(r, settings_line(root, "log_level"), values.log_level, &config->log_level);
	if (ret == 0)
		ret = config_read_on_event(r, values.on_event, shared, &config->on_event);
	if (ret == 0)
		ret = stores_read(r, values.store, values.stores, config);
	if (ret == 0)
		ret = config_read_lease(r, values.lease, &config->lease);
	if (ret == 0)
		ret = protect_read(r, values.protect, config);
	if (ret == 0 && config->store_count > 1 && !config->has_store)
		ret = reading_fail(r, settings_line(root, "stores"),
				   "stores is there without store; expected store, too, which has the locks of all "
				   "rules that name none, and of `dflock lock`");
	return ret;
}

static int config_parse_text(const struct config_reading *r, bool shared, struct config *config)
{
	config_t *parsed = malloc(sizeof(*parsed));
	const char *error, *expected = "name = value; here, or the end of what stands before";
	int line, comma = 0, ret = scan_text(r, config->text, config->text_len, &comma);

	if (!parsed || !stores_add(config, "")) {
		free(parsed);
		return reading_out_of_memory(r);
	}
	config->stores[0].parsed = parsed;
	config_init(parsed);
	if (ret < 0)
		return ret;
	if (config_read_string(parsed, config->text))
		return config_read_top(r, config_root_setting(parsed), shared, config);
	error = config_error_text(parsed);
	line = config_error_line(parsed);
	if (strstr(error, "duplicate")) {
		expected = "each setting once";
	} else if (comma && comma < line) { /* the first of the mistakes */
		line = comma;
		expected = "no comma behind the last entry of a list";
	}
	return reading_fail(r, line, "%s; expected %s", error, expected);
}

/* Reads id and bytes so that the id is that of these bytes: if the file changes meanwhile, reads it again. */
static int config_read_bytes(const struct config_reading *r, struct config_source *source)
{
	struct stat st;
	int ret = 0;

	for (int tries = 0; tries < LOAD_TRIES; tries++) {
		struct wire_config_id after;

		ret = place_config_id(r->path, &source->id);
		if (ret == 0)
			ret = load_file(AT_FDCWD, r->path, CONFIG_FILE_BYTES, &source->text, &source->len, &st);
		if (ret < 0)
			break;
		ret = place_config_id(r->path, &after);
		if (ret < 0)
			break;
		/* The mode of a file with an access list shows what the list allows at the most. */
		source->shared = (st.st_uid != 0 && st.st_uid != geteuid()) || st.st_mode & (S_IWGRP | S_IWOTH);
		if (memcmp(&source->id, &after, sizeof(after)) == 0)
			return 0;
		free(source->text);
		source->text = NULL;
		ret = -EAGAIN;
	}
	if (ret == -EAGAIN)
		reading_fail(r, 0, "changes while it is read; expected a file at rest: try again");
	else if (ret == -EFBIG)
		reading_fail(r, 0, "larger than %u bytes; expected a smaller file", CONFIG_FILE_BYTES);
	else if (ret == -EINVAL)
		reading_fail(r, 0, "not a regular file; expected the configuration");
	else
		reading_fail(r, 0, "cannot be read: %s", strerror(-ret));
	return ret;
}

static char *config_absolute(const char *path)
{
	char *dir, *out = NULL;

	if (path[0] == '/')
		return strdup(path);
	dir = getcwd(NULL, 0);
	if (dir && asprintf(&out, "%s/%s", dir, path) < 0)
		out = NULL;
	free(dir);
	return out;
}

int config_fetch(const char *path, struct config_source *source, char *why, size_t why_size)
{
	struct config_reading r = {.path = path, .why = why, .why_size = why_size};
	int ret;

	*source = (struct config_source){.path = config_absolute(path)};
	if (!source->path) {
		ret = -errno;
		reading_fail(&r, 0, "its absolute path cannot be found: %s", strerror(-ret));
		return ret;
	}
	r.path = source->path;
	ret = config_read_bytes(&r, source);
	if (ret < 0)
		config_source_free(source);
	return ret;
}

void config_source_free(struct config_source *source)
{
	free(source->path);
	free(source->text);
	*source = (struct config_source){.path = NULL};
}

int config_parse(const struct config_source *source, bool rules_only, struct config **out, char *why, size_t why_size)
{
	struct config_reading r = {.path = source->path, .why = why, .why_size = why_size, .rules_only = rules_only};
	struct config *config = calloc(1, sizeof(*config));
	int ret;

	if (!config)
		return reading_out_of_memory(&r);
	config->id = source->id;
	config->path = strdup(source->path);
	config->text = malloc(source->len + 1);
	if (config->path && config->text) {
		memcpy(config->text, source->text, source->len);
		config->text[source->len] = '\0';
		config->text_len = source->len;
		ret = config_parse_text(&r, source->shared, config);
	} else {
		ret = reading_out_of_memory(&r);
	}
	if (ret < 0) {
		config_free(config);
		return ret;
	}
	*out = config;
	return 0;
}

static int config_load_as(const char *path, bool rules_only, struct config **out, char *why, size_t why_size)
{
	struct config_source source;
	int ret = config_fetch(path, &source, why, why_size);

	if (ret < 0)
		return ret;
	ret = config_parse(&source, rules_only, out, why, why_size);
	config_source_free(&source);
	return ret;
}

int config_can_run(const struct config *config, char *why, size_t why_size)
{
	const char *program = config->on_event ? config->on_event[0] : NULL;
	struct stat st;
	int ret = 0;

	if (!program)
		return 0;
	if (stat(program, &st) != 0)
		ret = -errno;
	else if (!S_ISREG(st.st_mode))
		ret = -EACCES; /* as execve() says */
	else if (faccessat(AT_FDCWD, program, X_OK, AT_EACCESS) != 0)
		ret = -errno;
	if (ret < 0)
		snprintf(why, why_size, "%s: on_event %.200s cannot be run: %s", config->path, program, strerror(-ret));
	return ret;
}

int config_load(const char *path, struct config **out, char *why, size_t why_size)
{
	return config_load_as(path, false, out, why, why_size);
}

int config_load_rules(const char *path, struct config **out, char *why, size_t why_size)
{
	return config_load_as(path, true, out, why, why_size);
}

void config_free(struct config *config)
{
	if (!config)
		return;
	for (size_t i = 0; i < config->rule_count; i++) {
		free(config->rules[i].pattern);
		free(config->rules[i].name);
		free(config->rules[i].redis_key);
	}
	free(config->rules);
	for (size_t i = 0; config->on_event && config->on_event[i]; i++)
		free(config->on_event[i]);
	free(config->on_event);
	free(config->names.pattern);
	free(config->names.name);
	stores_free(config);
	free(config->host);
	free(config->path);
	free(config->text);
	free(config);
}
