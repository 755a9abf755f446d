/*
 * Which processes hold a lock, on all hosts? Loop only.
 *
 *   this host    a search of its /proc (survey.h)
 *   the store    which hosts have a lease of the name, and which program asked for it (STORE_MSG_WHO goes to each host)
 *   their keepers look through their /proc, and tell (STORE_MSG_HOLDER for each process, then STORE_MSG_HOLDERS)
 *
 * After WHO_MS the question is answered with what has come. Messages may be lost, and every client that may publish in the
 * store can send false ones: all that depends on an answer is what people read. No lease and no caller waits for any of this.
 */
#ifndef DFLOCK_KEEPER_WHO_H
#define DFLOCK_KEEPER_WHO_H

#include <jansson.h>
#include <stddef.h>

#include "store/store.h"

struct file;
struct keeper;
struct member;
struct session;
struct store_message;

#define WHO_MS  2000
#define WHO_MAX 256 /* questions of sessions under way */

/* WIRE_WHO: text is a lock name, or the path of a file. */
void who_start(struct session *s, const char *text);
/* WIRE_HELD, about this file. */
void who_blocks(struct session *s, const struct file *file);

/* A connection to the store stands, or failed, for the first time. */
void who_store_tried(struct member *m);
/* STORE_MSG_WHO, STORE_MSG_HOLDER, STORE_MSG_HOLDERS. */
void who_message(struct member *member, const struct store_message *message);

/*
 * --- whoreport.c: one line from what is known of the processes that hold a lock on all hosts. Pure, but for the time of day ---
 *
 * A name that may be old is never shown as a holder: the program that asked for a lease may have ended, and another one
 * may have got the lock from this host's kernel since. It is "last known".
 */

/* "PATH: held by host web3, pid 4711 (nightly), since 03:00:01": what is in the way of a lock that `but` wants. report:
 * docs/state.md, "One lock". */
void whoreport_line(const json_t *report, const char *path, const struct store_range *wanted, pid_t but, char *out,
		    size_t size);

#endif
