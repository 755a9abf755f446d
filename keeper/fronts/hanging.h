/*
 * Which fronts of a user hang, and what follows: the limits that keep one user's hanging file systems from delaying
 * another user. Internal to this room. Pure but for the user's notes: memory alone, the time is an argument.
 *
 * A front hangs if it has worked on one thing for FRONTS_SLOW_MS. A user has a bounded number of fronts that read
 * questions, and a front that hangs counts until it has ended. The second front is started when the first does not
 * answer at once. More are started only when all hang, because then it is known on which devices, and files on these
 * devices are refused. So a mount that hangs takes two fronts and not all, unless even closing its files hangs.
 */
#ifndef DFLOCK_KEEPER_HANGING_H
#define DFLOCK_KEEPER_HANGING_H

#include <stdbool.h>
#include <stdint.h>

#include "keeper/fronts/crew.h"

#define FRONTS_PER_USER 4     /* fronts that read questions; one more may be started to close connections */
#define FRONTS_SLOW_MS  5000  /* a caller is told that its file's mount hangs */
#define FRONTS_BUSY_MS  20    /* a front that takes longer is not waited for if another can be started */
#define FRONTS_HUNG_MS  10000 /* after that time a device that hung is tried again */

bool hanging_is_slow(const struct front *front, int64_t now_ns);
/* An idle front of the user, which may be given work; NULL: none. */
struct front *hanging_find_idle(const struct front_user *user);
/* No front is idle: should another one be started? limit: how many fronts that read questions the user may have. */
bool hanging_needs_another(const struct front_user *user, unsigned limit, int64_t now_ns);
/* Do all of the user's fronts hang, and may it have no more, so that no front will read a question? */
bool hanging_all(const struct front_user *user, int64_t now_ns);

/* If the front hangs, notes the device that it hangs on for its user; drops the oldest note. */
void hanging_note(struct front *front, int64_t now_ns);
/* Fills in, for a front, on which devices fronts of its user hang. */
void hanging_tell(const struct front_user *user, struct front_ask *ask, int64_t now_ns);

#endif
