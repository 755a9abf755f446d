/*
 * A lock call on a protected file: the kernel lock and the lease, both or neither.
 *
 * All return 0: the caller has the kernel lock, and had it while its host had an unexpired lease. ACQUIRE_KERNEL: the
 * call is the kernel's alone, and must be made as it came. Else -errno as the manual page of the call gives it, or
 * -ENOLCK after a line that says why. errno changes. *look is what protect_look() said, with PROTECT_ASK.
 */
#ifndef DFLOCK_SHIM_ACQUIRE_H
#define DFLOCK_SHIM_ACQUIRE_H

#include "shim/call.h"
#include "shim/intent.h"
#include "shim/protect.h"

/* Not an errno. */
#define ACQUIRE_KERNEL 2

/*
 * flock(fd, op), whose intent is *want. The lock that fd had before is kept if the
 * call was refused at once, and is gone as flock(2) says if it had to wait, would have had to wait, or was refused
 * later. No cancellation point.
 */
int acquire_flock(int fd, int op, const struct intent *want, struct protect_look *look);

/* A record lock. If the call fails, or its thread is cancelled in it, the owner has exactly the locks that it had
 * before. A cancellation point if the caller waits. */
int acquire_record(int fd, const struct intent *want, struct protect_look *look);

/*
 * What the two have in common, call_kind.answer and the whole. c->kind->taking says how the kernel lock is taken:
 * try     takes it without waiting, though nobody was asked, as the page shows the lease; sets c->have. 0, -errno, or
 *         CALL_AGAIN: ask
 * check   before the keeper is asked: 0, or ACQUIRE_KERNEL if the kernel would refuse the call at once
 * learn   before the first take: what must be known for let_go. 0, -errno, or CALL_AGAIN if the grant is over with it
 * take    takes it; sets c->have. 0 or -errno
 * let_go  before the caller waits for another host, if a call that does not wait would have to, and if the call fails
 *         with the lock taken: back to what the kernel would leave. 0 or -errno after a line
 * finish  the call succeeds; what must not be done before that. 0 or -errno: then it fails
 */
int acquire_answer(struct call *c, const struct wire_reply *reply);
int acquire(struct call *c);

#endif
