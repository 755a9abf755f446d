/*
 * SIGHUP: the same as `dflock reload`, for service managers and scripts that know no other way. Whether it was done, and why
 * not, the log says. Loop only.
 */
#ifndef DFLOCK_KEEPER_HANGUP_H
#define DFLOCK_KEEPER_HANGUP_H

struct keeper;

/* Sets k->hangup, and unblocks the signal. 0 or -ENOMEM. */
int hangup_start(struct keeper *k);
/* Before configwatch_close(). The memory is freed by hangup_free(), when the loop has closed the handle. */
void hangup_close(struct keeper *k);
void hangup_free(struct keeper *k);

#endif
