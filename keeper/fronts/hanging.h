/*
 * Which fronts of a user hang, and what follows: the limits that keep one user's hanging file systems from delaying
 * another user. Internal to this room. Pure but for the user's notes: memory alone, the time is an argument.
 *
 * A front hangs if it has worked on one thing for FRONTS_SLOW_MS. A user has a bounded number of fronts that read
 * questions, and a front that hangs counts until it has ended. The second front is started when the first does not
 * answer at once; more only when it is known that all hang, and so on which devices: files on these devices are
 * refused. So a mount that hangs takes two fronts and not all, unless even a close of its files hangs.
 */
#ifndef DFLOCK_KEEPER_HANGING_H
#define DFLOCK_KEEPER_HANGING_H

#include <stdbool.h>
#include <stdint.h>

#include "keeper/fronts/crew.h"

#define FRONTS_PER_USER 4     /* that read questions; one more may be started to close connections */
#define FRONTS_SLOW_MS  5000  /* a caller is told that its file's mount hangs */
#define FRONTS_BUSY_MS  20    /* a front that takes longer is not waited for if another can be started */
#define FRONTS_HUNG_MS  10000 /* after that long a device that hung is tried again */

bool hanging_is_slow(const struct front *front, int64_t now_ns);
/* A front of the user that may be given work; NULL. */
struct front *hanging_find_idle(const struct front_user *user);
/* None is idle: is another one to be started? limit: how many there may be that read questions. */
bool hanging_needs_another(const struct front_user *user, unsigned limit, int64_t now_ns);
/* Do all of the user's fronts hang, and may it have no other, so that nobody will read a question? */
bool hanging_all(const struct front_user *user, int64_t now_ns);

/* If the front hangs, its user's notes get the device that it hangs on; the oldest note goes. */
void hanging_note(struct front *front, int64_t now_ns);
/* Tells a front on which devices fronts of its user hang. */
void hanging_tell(const struct front_user *user, struct front_ask *ask, int64_t now_ns);

#endif
