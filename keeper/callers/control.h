/*
 * The operator's questions: status, reload, the level of the log, stop (control_stop.h), init, break (control_break.h), and whether a job
 * may start (WIRE_FIT): is the program's configuration in force here, and does the store grant new leases? Loop only.
 */
#ifndef DFLOCK_KEEPER_CONTROL_H
#define DFLOCK_KEEPER_CONTROL_H

struct keeper;
struct session;

/* A session has asked something other than for a lock: answers now or later. text: what followed the question; "" */
void control_question(struct session *s, const char *text);

/* News for sessions that wait for `dflock init`: the store is reachable for the first time since the start, or is not. */
void control_store_tried(struct keeper *k);

#endif
