/*
 * Ends the processes that have a lock which is held too long (toolong.h), and all that they started: as on_lost = "kill" does,
 * SIGTERM, and SIGKILL after freeze_margin_ms, with a line on their standard errors. Loop only.
 */
#ifndef DFLOCK_KEEPER_TOOLONG_END_H
#define DFLOCK_KEEPER_TOOLONG_END_H

#include <stddef.h>

#include "keeper/leases/toolong.h"

#define TOOLONG_TRIES   3    /* then the holders of a lock are left alone */
#define TOOLONG_GONE_MS 5000 /* from SIGKILL until it is said that a process cannot be ended */

/* Begins: grant->state is GRANT_ENDING until it is done. lines: those of this lock. */
void toolong_end_begin(struct lock *lock, struct grant *grant, const struct toolong_line *const *lines, size_t count);
/* To be called several times a second: what is due. paused: nothing is. */
void toolong_end_tick(struct keeper *k, bool paused);
void toolong_end_free_all(struct keeper *k);

#endif
