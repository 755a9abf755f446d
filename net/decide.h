/*
 * One caught call on its way to its answer: what it wants, whether the file is protected, and the keeper's word.
 *
 * No lock is ever taken here. A granted call is continued: the kernel takes the lock, and does what the call's manual page
 * says of waiting, errors and signals.
 */
#ifndef DFLOCK_NET_DECIDE_H
#define DFLOCK_NET_DECIDE_H

#include <stdint.h>

#include "net/shared.h"

/* Answers that are neither 0 nor an errno. */
#define DECIDE_CONTINUE 1 /* the kernel makes the call */
#define DECIDE_GONE     2 /* there is no call any more; nothing to answer */

/* The kernel's own errno, which no program sees: EINTR, or the call begins anew, as the handler of the signal says. */
#define DECIDE_RESTARTSYS 512

/*
 * The answer to a call: one of the above; 0: it succeeds, and all is done; or -errno. All copies of T's descriptors are
 * closed. Waits for as long as the call does. *until_ns: if that is not 0, a grant that ends then (CLOCK_BOOTTIME): the call must
 * be continued before, or decided anew.
 */
int decide(struct caught *caught, int listener, int64_t *until_ns);

#endif
