/*
 * The operator's questions: status, reload, stop (control_stop.h), init (control_init.h). Loop only.
 */
#ifndef DFLOCK_KEEPER_CONTROL_H
#define DFLOCK_KEEPER_CONTROL_H

struct keeper;
struct lease;
struct session;

/* A session has asked something other than for a lock. */
void control_question(struct session *s);

/* --- news from leases/ --- */

/* The store is reachable for the first time since the start, or is not. */
void control_store_tried(struct keeper *k);
/* It is not reachable any more. */
void control_store_down(struct keeper *k);
/* For a session that waits until everything is given back: this lease cannot be; some have ended. */
void control_in_use(struct lease *lease);
void control_leases_ended(struct keeper *k);

#endif
