/*
 * WIRE_FIT: may a job that starts now rely on its locks? Loop only.
 */
#ifndef DFLOCK_KEEPER_CONTROL_FIT_H
#define DFLOCK_KEEPER_CONTROL_FIT_H

struct session;

/* Answers, now or later: is the program's configuration in force here, and does the store grant new leases? Without a
 * connection to the store the answer is WIRE_WOULD_BLOCK, at once. */
void control_fit(struct session *s);

#endif
