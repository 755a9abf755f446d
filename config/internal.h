/*
 * What the files of config/ share. Each file calls only files above it in this list:
 *
 *   reading.c  what a reading says when it fails; refuses text that libconfig would misread
 *   load.c     the bytes of a file (load.h)
 *   settings.c one group of settings against its table
 *   resolve.c  the path by which the kernel knows a file
 *   server.c   the group `store`, or one of `stores`
 *   engine.c   which engine the store is of, and where that lies
 *   stores.c   all stores of a configuration, and how they go together
 *   protect.c  the list of rules
 *   config.c   the life of a configuration; `host` and the group `lease`
 *   rules.c    from a path to its rule and its lock name (pure)
 *   follow.c   may a configuration take another one's place?
 *   ruleset.c  the rules as text, and from such a text to rules (ruleset.h)
 *   differ.c   what two hosts name or protect differently (differ.h; pure)
 *
 * Functions return 0 or -errno. Those that get a reading have filled its `why` then; their own complaints are -EINVAL.
 */
#ifndef DFLOCK_CONFIG_INTERNAL_H
#define DFLOCK_CONFIG_INTERNAL_H

#include <libconfig.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "config/config.h"
#include "config/load.h"

#define CONFIG_FILE_BYTES (1u << 20)
#define CONFIG_DAY_MS     INT64_C(86400000)

struct config_reading {
	const char *path; /* of the configuration file, for messages */
	char *why;
	size_t why_size;
	bool rules_only;   /* the passwords are left out */
	const char *store; /* "store." or "stores.NAME.": what stands before the settings of the store that is read */
};

/* Writes "FILE:LINE: ..." (line 0: "FILE: ...") into `why`, as one line, and returns -EINVAL. */
int reading_fail(const struct config_reading *r, int line, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * Goes over the text before libconfig does, and refuses what libconfig accepts but reads in another way than a person
 * would: NUL bytes, @include, comments and strings that never end, numbers that need more than 32 bits (libconfig 1.5
 * cuts them to 32 bits silently). *comma: the line of the first comma behind the last entry of a list, 0 if there is none; libconfig 1.5
 * takes it for a syntax error in the line of the bracket, 1.7 allows it.
 */
int scan_text(const struct config_reading *r, const char *text, size_t len, int *comma);

enum setting_type {
	SETTING_NUMBER, /* int64_t, from min to max */
	SETTING_FLAG,   /* bool: true or false */
	SETTING_WORD,   /* an enum: one of `words`, whose places are its values */
	SETTING_STRING, /* const char *: not empty, no control characters; lives as long as the config_setting_t */
	SETTING_PATH,   /* ditto, and an absolute path */
	SETTING_GROUP,  /* config_setting_t * */
	SETTING_LIST,   /* config_setting_t * */
	SETTING_TEXTS,  /* config_setting_t *: a list or an array of such strings, at least one */
};

struct setting_row {
	const char *name;
	enum setting_type type;
	size_t offset;            /* where in the struct the value goes */
	int64_t min, max;         /* SETTING_NUMBER */
	const char *const *words; /* SETTING_WORD; ends with NULL */
	const char *with;         /* the setting makes no sense without this one; NULL: it does */
};

/* All settings that exist; a test checks that each is documented. Each table ends with a NULL name. */
extern const struct setting_row config_top_rows[], config_store_rows[], config_lease_rows[], config_rule_rows[];

/* The words of an on_lost and of an on_refused. */
extern const char *const settings_on_lost[], *const settings_on_refused[];

/*
 * Reads a group into `values` by a table. `prefix` ("lease.") stands before the names in messages. Refuses unknown
 * settings, wrong types and numbers out of range. The value of a setting that is not in the file stays as it is.
 */
int settings_read(const struct config_reading *r, config_setting_t *group, const char *prefix,
		  const struct setting_row *rows, void *values);

/* The line of a setting of the group; if it is not there, that of the group. `group` NULL: 0. */
int settings_line(config_setting_t *group, const char *name);

/* Says so in `why`, and returns -ENOMEM. */
int reading_out_of_memory(const struct config_reading *r);

/* Fills *store from the group (NULL: all defaults), which is a part of what libconfig parsed. */
int server_read(const struct config_reading *r, config_setting_t *group, struct config_store *store);
/* Is the address one of the sentinels, or of the nodes? Pure. */
bool server_is_listed(const struct config_store *store, const struct config_address *address);
/* Frees what server_read() allocated, also if it failed. */
void server_free(struct config_store *store);

/* Fills config->stores, of which [0] is there, empty, from the two groups (NULL: there is none). */
int stores_read(const struct config_reading *r, config_setting_t *group, config_setting_t *named,
		struct config *config);
/* One more store of this name, which the caller keeps, with nothing else in it. NULL: no memory left. */
struct config_store *stores_add(struct config *config, const char *name);
/* Each may be NULL, which only NULL is the same as. Pure. */
bool stores_same_text(const char *a, const char *b);
/* The index of the store of this name; config->store_count: there is none. Pure. */
size_t stores_find(const struct config *config, const char *name);
/* Frees the stores, also if a function above failed. */
void stores_free(struct config *config);

/*
 * Removes superfluous slashes, since two hosts may write one path in different ways. 0; -EINVAL: not absolute, or with
 * . or .. in it; -ENAMETOOLONG. `out` must not be `path`.
 */
int resolve_normalise(const char *path, char out[PATH_MAX]);

/*
 * The path by which the kernel knows the file at the absolute `path`. Follows links as far as they exist, also a link
 * whose target does not exist, and appends the rest. 0 or -errno. Blocks on the file system.
 */
int resolve_path(const char *path, char out[PATH_MAX]);

/* The fixed part of the paths that a rule matches: fixed_len bytes, without the backslashes of a glob's pattern. */
void rules_fixed_path(const struct rule *rule, char out[PATH_MAX]);
/* A rule that gives other files the lock names of this one, in another store. NULL: none, as far as rules tell it; what a wildcard matches is not
 * known. */
const struct rule *rules_in_two_stores(const struct config *config, const struct rule *rule);

/* Fills config->rules from the list (NULL: none). config->lease and config->stores must be complete. config_free() frees the rules, also
 * after a failure. */
int protect_read(const struct config_reading *r, config_setting_t *list, struct config *config);

#endif
