/*
 * The rows of the JSON documents with which the keeper answers operators: docs/state.md has them all. What another user
 * may see is decided where a row is made. Each function that makes a row returns a new reference, or NULL without memory
 * (jansson then leaves the row out). picture_keeper(), picture_lease(), picture_lost() and picture_ages() read the
 * keeper, and picture_answer() a session: loop only. Any thread may call the others.
 */
#ifndef DFLOCK_KEEPER_PICTURE_H
#define DFLOCK_KEEPER_PICTURE_H

#include <jansson.h>
#include <stdbool.h>

#include "store/store.h"

#define PICTURE_SCHEMA 1 /* one more when a field goes or means something else; new fields leave it */

struct config;
struct elsewhere;
struct keeper;
struct lease;
struct lock;
struct lost_lease;
struct session;
struct store_rules;

/* What may be any bytes: if it is no UTF-8, with \xNN for its bytes above 0x7f. An operator's program compares with that (field_is()). */
json_t *picture_text(const char *text);

/* "flock", "record". */
const char *picture_space(enum wire_space space);
/* Adds "space", "mode", "from" and "to" to a row; null: there is no end. */
void picture_add_range(json_t *row, const struct store_range *range);
/* {"pid","command","since"}. */
json_t *picture_job(const struct store_job *job);
/* The range of such a row. */
struct store_range picture_read_range(const json_t *row);
/* A lease that the store knows, or a host that waits. told: with the file and token. */
json_t *picture_entry(const struct store_entry *e, bool told);
/* {SPACE: ms}, the spaces that rest. */
json_t *picture_rests(const struct store_aside *aside);
/* The Redis client that has the key: {"token","left_ms"}; null: none has it. */
json_t *picture_client(const struct store_aside *aside);

/* All of the keeper but its leases; one lease, and one that was lost, both with "holders" [] to be filled. all: also what
 * is no other user's business. */
json_t *picture_keeper(struct keeper *k);
json_t *picture_lease(const struct lease *lease, bool all);
json_t *picture_lost(const struct lost_lease *lost);
/* A process that holds a lock, and nothing else is known of it. */
json_t *picture_holder(pid_t pid, const char *command, const struct store_range *range, int64_t started);

/*
 * Since when a process has its lock:
 *
 *   "granted"  the keeper knows the moment: the process that took the lock asked, and this was its last grant (files whose
 *              rule has warn_after_ms or kill_after_ms: ages.h)
 *   "after"    the lock was taken at this time or later: since then this host has had a lease (leases.h: programs take locks
 *              under an open lease without a question)
 *   "unknown"  an earlier keeper may have granted it; 0
 *
 * picture_ages() remembers in the loop, for a worker, what is known of one lock (NULL: nothing); picture_add_since() adds
 * "since" and "since_is" to a holder. locker: as the lock line has it.
 */
json_t *picture_ages(const struct lock *lock);
void picture_add_since(const json_t *grants, pid_t locker, json_t *holder);

/* The part about the cluster: what all stores have, one after the other, as each tells it: its record first, then the names.
 * picture_close() when all have come. store: its name in the configuration. fence: the record's. */
void picture_add_record(json_t *cluster, const struct store_picture *record);
void picture_add_name(json_t *cluster, const char *store, int64_t fence, const char *name,
		      const struct store_entry *entries, size_t count, const struct store_aside *aside);
void picture_close(json_t *cluster);

/* A memfd with this text, which nobody can change; the caller closes it. -1 with errno. */
int picture_to_memfd(const json_t *doc);
/* Answers the session with the memfd, which stays the caller's. fd < 0: refuses, since `what` could not be written. */
void picture_answer(struct session *s, int fd, const char *what, int error);

/*
 * --- elsewhere.c: what other hosts name or protect differently, for status. Asked from the store, then compared in a worker ---
 */

/* Remembers the rules in force. NULL: no memory left. */
struct elsewhere *elsewhere_new(const struct config *config);
void elsewhere_free(struct elsewhere *e);
/* The digest of the rules in force, for store_read_rules(). */
const char *elsewhere_digest(const struct elsewhere *e);
/* Takes the answer of store_read_rules(). */
void elsewhere_take(struct elsewhere *e, const struct store_rules *rules, const char *error);
/*
 * Compares; in a worker, since it may take a tenth of a second. NULL without memory. Else an object:
 *   same        other keepers with these rules
 *   unknown     hosts and keepers whose rules are not known (another version, too long, or too many different ones)
 *   differences [{what, hosts, others, age_ms, here, here_as, there, there_as}]. what: "renamed" (one path has two lock
 *               names, or one lock name two stores) or "keyed" (one lock name has two redis_keys, or one and none). hosts: [text], some of those for
 *               which it is true; others: how many more. here, there: "path /run/app.lock"; here_as, there_as: the lock
 *               names of that rule, "app", or "app (store payroll)"
 *   left_out    how many more differences
 *   alone       how many rules give a lock name that only one of two hosts has, of hosts that have others in common
 *   error       "", or why nothing is known
 */
json_t *elsewhere_json(const struct elsewhere *e);

#endif
