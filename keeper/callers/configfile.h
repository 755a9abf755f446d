/*
 * Which rules are in force, and what the configuration file says meanwhile.
 *
 * The rules in force are those that the keeper accepted last. They stay in force until
 *   - the file has other contents, is in the same state for a second, and config_follows(): no file loses its
 *     protection or changes its name. Then the keeper takes the contents over by itself;
 *   - an operator says `dflock reload`, or `dflock stop`: the next keeper reads the file anew.
 * Every other state of the file (changed, invalid, empty, missing, unreadable) is reported once in the log, and by
 * status, and changes nothing: no state of the file makes the keeper refuse a lock that is not protected, or pass a
 * protected one.
 *
 * The next keeper must follow the same rules. So the keeper copies what it accepted to RUNTIME_DIR/config.kept: path
 * and text, mode 0600 (passwords are in files of their own and not copied). The copy goes with the runtime directory,
 * at the latest when the machine restarts. A keeper that starts
 *   - without a copy of this path reads the file, which must be valid: nothing is known of what it should protect.
 * While the file is not valid, every lock is refused (PAGE_INVALID);
 *   - with a copy goes by the copy, and judges the file as if it had changed while the keeper ran. If the file has
 * been at rest for CONFIGFILE_REST_MS and follows the copy, the keeper takes it at once. It does so also if the file
 * names another store and nothing is held: a running keeper would have to end for that.
 *
 * If two configurations share a runtime directory, the copy is of the one that a keeper was started with last. While
 * that keeper runs, it refuses programs that use the other one.
 *
 * Order, when the keeper takes a configuration over: it writes the copy; closes the slots of the shared page, since a
 * path may have another name now; publishes the rules; goes by them. If it is killed in between, the next keeper goes
 * by the copy, and publishes its rules again before it serves.
 *
 * Loop only.
 */
#ifndef DFLOCK_KEEPER_CONFIGFILE_H
#define DFLOCK_KEEPER_CONFIGFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "config/config.h"
#include "wire/msg.h"
#include "wire/place.h"

struct keeper;

#define CONFIGFILE_REST_MS 1000 /* a file that was not changed for so long is at rest */

enum configfile_state {
	CONFIGFILE_SAME,    /* the file has the rules in force */
	CONFIGFILE_CHANGED, /* it has others, and is not at rest */
	CONFIGFILE_WAITS,   /* it is valid, and an operator has to say `dflock reload` */
	CONFIGFILE_STOP,    /* the same, but `dflock stop` */
	CONFIGFILE_INVALID, /* it is invalid, or cannot be read */
	CONFIGFILE_MISSING,
};

/* k->configfile. Others only read it: configfile.c alone sets it. */
struct configfile {
	enum configfile_state state;
	char why[WIRE_REASON_BYTES]; /* why it is not in force; "" with CONFIGFILE_SAME */
	time_t since;                /* that state */
	time_t in_force_since;       /* this keeper started, or took the rules over */
	struct wire_config_id seen;  /* the file when it was looked at last */
	int64_t seen_ns;             /* when it was looked at first in this state */
	bool judged;                 /* it was at rest, and `state` says what becomes of it */
};

/* What a look at the file found. The caller frees `source` and `fresh`; a function that takes `fresh` over sets it
 * to NULL. */
struct configfile_look {
	struct wire_config_id id;    /* all zero: the file is missing or cannot be examined */
	int error;                   /* of stat, positive; 0 */
	int read;                    /* of config_fetch() and config_parse(): 0 or negative, with `why` */
	struct config_source source; /* source.text NULL: it could not be read */
	struct config *fresh;        /* NULL: invalid */
	int command;                 /* of config_can_run(), with `why` */
	char why[WIRE_REASON_BYTES];
};

/* At the start: sets k->config and k->configfile, and publishes the rules. 0; -EINVAL or -ENOMEM with `why`. After -EINVAL
 * all locks are refused, if the file is there. Blocks on the file system. */
int configfile_load(struct keeper *k, const char *path, char *why, size_t why_size);
/* At the end, after configfile_load() has returned 0. Frees k->config, too. */
void configfile_free(struct keeper *k);

/* Reads the file into *look. Any thread; blocks on the file system. */
void configfile_look_now(const char *path, struct configfile_look *look);

/* Is what the file said when it was looked at last known? Then it need not be read again before it changes. */
bool configfile_is_known(const struct configfile *c);

/* Judges what was found. now_ns: clock_now_ns() when the look began. */
void configfile_found(struct keeper *k, struct configfile_look *look, int64_t now_ns);

/* `dflock reload`: takes over what was found, whatever it protects. With `force`, also if a lock is held, or waited for, that then has
 * another name or none. 0, or -EINVAL with `why`. */
int configfile_reload(struct keeper *k, struct configfile_look *look, bool force, char *why, size_t why_size);

/* `dflock stop`: the next keeper reads the file, unless that is invalid. */
void configfile_forget(struct keeper *k);

/* A program names its configuration by a state of a file and the hash of its path (wire_request). Is that the one of
 * the rules in force? Decides as page_ask() does. */
bool configfile_is_ours(const struct keeper *k, const struct wire_config_id *id, uint64_t path_hash);

const char *configfile_state_name(enum configfile_state state);

/* --- kept.c: RUNTIME_DIR/config.kept, the configuration that is in force, for the next keeper --- */

#define KEPT_NAME PLACE_KEPT_NAME

/* Replaces the copy. 0; or -errno, and then there is no copy any more. Call this and the other functions with
 * keeper.lock held. */
int kept_write(int dir_fd, const struct config *config);

/* The copy, if it is of the configuration `path`: 0; config_source_free() frees it, and its id is none. -ENOENT: there
 * is none, or it is of another path. -EINVAL: it is damaged. Else -errno. */
int kept_read(int dir_fd, const char *path, struct config_source *source);

void kept_remove(int dir_fd);

#endif
