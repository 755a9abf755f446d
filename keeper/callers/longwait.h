/*
 * Callers that wait for longer than wait_warn_ms of their file's rule: an event for each, once. Both those that wait for
 * another host or the store, and those that have a grant and wait in the kernel for a process of this host. Loop only.
 */
#ifndef DFLOCK_KEEPER_LONGWAIT_H
#define DFLOCK_KEEPER_LONGWAIT_H

#include <stdint.h>

struct keeper;

#define LONGWAIT_LOOK_MS 500 /* between two looks at all callers */

/* Sets k->longwait. 0 or -ENOMEM. */
int longwait_start(struct keeper *k);
/* Closes its handle; longwait_free() when the loop has run. */
void longwait_stop(struct keeper *k);
void longwait_free(struct keeper *k);
/* How many such callers there were since the start. */
uint64_t longwait_count(const struct keeper *k);

#endif
