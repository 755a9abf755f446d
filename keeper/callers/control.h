/*
 * The operator's questions: status, reload, the level of the log, stop (control_stop.c), init, break (control_break.c), and whether a job
 * may start (WIRE_FIT): is the program's configuration in force here, and does the store grant new leases? Loop only.
 */
#ifndef DFLOCK_KEEPER_CONTROL_H
#define DFLOCK_KEEPER_CONTROL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "store/store.h"

struct keeper;
struct member;
struct lease;
struct session;

/* A session has asked something other than for a lock: answers now or later. text: what followed the question; "" */
void control_question(struct session *s, const char *text);

/* News for sessions that wait for `dflock init`: the store is reachable for the first time since the start, or is not. */
void control_store_tried(struct member *m);

/*
 * --- control_stop.c ---
 *
 * `dflock stop`: gives back every lease that no program uses, and ends the keeper when all have gone. Refused when one is
 * in use, may be in use, or cannot be given back in time; then the keeper goes on. Programs that have asked, and for which
 * there is no lease so far, get CONTROL_STOP_RELEASE_MS to have their answer.
 */
#define CONTROL_STOP_WAIT_MS    5000 /* less than the command line waits for an answer */
#define CONTROL_STOP_RELEASE_MS 2000 /* for the store's answers, and for programs that have none */

/* A session has asked for it: answers now or later. */
void control_stop(struct session *s);

/* News for sessions that wait for it: a program uses this lease; a lease has ended; the store is not reachable any
 * more. */
void control_stop_in_use(const struct lease *lease);
void control_stop_leases_ended(struct keeper *k);
void control_stop_store_down(struct keeper *k);

/* The decision after waited_ms, while a lease has not gone. in_use: a lease may be in use. Pure. */
enum control_stop_step { CONTROL_STOP_GOES_ON, CONTROL_STOP_REFUSED, CONTROL_STOP_ENDS };
enum control_stop_step control_stop_decide(int64_t waited_ms, bool in_use);

/* --- control_break.c: `dflock break` takes leases away here or on another host, ends rests, and gives up a silent host --- */

/* Answers an operator's question of this session, now or later. text: the lock name, or the host. */
void control_break(struct session *s, const char *text);

/* News: queue_news.broken. */
void control_break_told(struct keeper *k, const struct store_message *m);

/*
 * --- status.c: JSON for `dflock status`. This host's leases, the processes that hold them or wait for them, and the whole store
 * (docs/state.md) ---
 */

/* Answers the session with WIRE_OK and a memfd, or a refusal. Takes a search of /proc (a worker) and some store
 * commands. */
void status_start(struct session *s);

#endif
