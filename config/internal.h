/*
 * Between the files of config/: a reading in progress, and what each file does for it.
 *
 *   load.c     the bytes of a file
 *   scan.c     what libconfig lets pass and must not
 *   settings.c one group of settings against its table
 *   config.c   config_load(); host and lease
 *   server.c   store
 *   protect.c  the list of rules
 *   resolve.c  what the kernel calls a path
 *   rules.c    path to lock name (pure)
 *   follow.c   may a configuration take another's place? (pure)
 *
 * Functions return 0 or -errno; -EINVAL with `why` filled.
 */
#ifndef DFLOCK_CONFIG_INTERNAL_H
#define DFLOCK_CONFIG_INTERNAL_H

#include <libconfig.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include "config/config.h"

#define CONFIG_FILE_BYTES (1u << 20)

struct config_reading {
	const char *path; /* for messages */
	char *why;
	size_t why_size;
};

/* Writes "FILE:LINE: ..." (line 0: "FILE: ...") as one line and returns -EINVAL. */
int reading_fail(const struct config_reading *r, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));

/*
 * The bytes of a regular file, with a NUL behind them that is not counted in *len; the caller frees them.
 * *mode (may be NULL) is that of what was read. -EFBIG: more than `max`. -EINVAL: not a regular file. Else -errno.
 */
int load_file(const char *path, size_t max, char **bytes, size_t *len, unsigned *mode);

/*
 * Goes over the text before libconfig does, and refuses what libconfig accepts but does not mean what it
 * says: NUL bytes, @include, comments and strings that never end, numbers that need more than 32 bits
 * (libconfig 1.5 cuts them to 32 without a word).
 */
int scan_text(const struct config_reading *r, const char *text, size_t len);

enum setting_type {
	SETTING_NUMBER, /* int64_t, from min to max */
	SETTING_STRING, /* const char *, not empty, no control characters; lives as long as the config_setting_t */
	SETTING_GROUP,  /* config_setting_t * */
	SETTING_LIST,   /* config_setting_t * */
	SETTING_TEXTS,  /* config_setting_t *: a list or an array of strings as above, at least one */
};

struct setting_row {
	const char *name;
	enum setting_type type;
	size_t offset; /* where in the struct the value goes */
	int64_t min, max;
};

/* All settings there are, for those who check that each is documented. Each table ends with a NULL name. */
extern const struct setting_row config_top_rows[], config_store_rows[], config_lease_rows[], config_rule_rows[];

/*
 * Reads a group into `values` by a table. `prefix` ("lease.") stands before the names in messages. Refuses
 * unknown settings, wrong types and numbers out of range; what is not there leaves its value alone.
 */
int settings_read(const struct config_reading *r, config_setting_t *group, const char *prefix, const struct setting_row *rows,
		  void *values);

/* The line of a setting of the group, or of the group if it is not there. NULL group: 0. */
int settings_line(config_setting_t *group, const char *name);

/* -ENOMEM, with `why` saying so. */
int reading_out_of_memory(const struct config_reading *r);

/* Fills config->store from the group (NULL: all defaults). */
int server_read(const struct config_reading *r, config_setting_t *group, struct config_store *store);
/* Frees what server_read() allocated, also if it failed. */
void server_free(struct config_store *store);

/*
 * Two hosts may write one path in different ways: takes out slashes too many. 0, or -EINVAL: not absolute, or with
 * . or .. in it; -ENAMETOOLONG. out may not be path.
 */
int resolve_normalise(const char *path, char out[PATH_MAX]);

/*
 * What the kernel calls the absolute `path`: links are followed as far as they exist, also one whose target
 * does not exist yet, and the rest is appended. 0 or -errno. Blocks on the file system.
 */
int resolve_path(const char *path, char out[PATH_MAX]);

/* The value of on_lost, in the group that the prefix names in messages. */
int settings_on_lost(const struct config_reading *r, int line, const char *prefix, const char *text, enum on_lost *on_lost);

/* Fills config->rules from the list (NULL: none). config->lease is complete. */
int protect_read(const struct config_reading *r, config_setting_t *list, struct config *config);

#endif
