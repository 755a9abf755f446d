/*
 * The operator's questions: status, reload, stop (control_stop.h), init (control_init.h), break (control_break.h),
 * and whether a job may start
 * (control_fit.h). Loop only.
 */
#ifndef DFLOCK_KEEPER_CONTROL_H
#define DFLOCK_KEEPER_CONTROL_H

struct keeper;
struct session;

/* A session has asked something other than for a lock. text: what followed the question; "" */
void control_question(struct session *s, const char *text);

#endif
