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

struct file;
struct keeper;
struct session;
struct store_message;

#define WHO_MS  2000
#define WHO_MAX 256 /* questions of sessions under way */

/* WIRE_WHO: text is a lock name, or the path of a file. */
void who_start(struct session *s, const char *text);
/* WIRE_HELD, about this file. */
void who_blocks(struct session *s, const struct file *file);

/* A connection to the store stands, or failed, for the first time. */
void who_store_tried(struct keeper *k);
/* STORE_MSG_WHO, STORE_MSG_HOLDER, STORE_MSG_HOLDERS. */
void who_message(struct keeper *k, const struct store_message *message);

#endif
