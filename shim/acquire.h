/*
 * A lock call on a protected file: the kernel lock and the lease, both or neither.
 *
 * All return 0: the caller has the kernel lock, and had it while its host had an unexpired lease. ACQUIRE_KERNEL:
 * dflock has no part in this call; make it as it came. Else -errno as the manual page of the call gives it, or -ENOLCK
 * after a line that says why; with on_refused = "busy", -EWOULDBLOCK in its place if the call does not wait. errno changes. *look is what protect_look() filled when it returned PROTECT_ASK.
 */
#ifndef DFLOCK_SHIM_ACQUIRE_H
#define DFLOCK_SHIM_ACQUIRE_H

#include "shim/call.h"
#include "shim/intent.h"
#include "shim/protect.h"

/* Not an errno. */
#define ACQUIRE_KERNEL 2

/*
 * flock(fd, op), whose intent is *want. If the call was refused at once, the lock that fd had before is kept. If it had
 * to wait, would have had to wait, or was refused later, that lock is gone, as flock(2) says. No cancellation point.
 */
int acquire_flock(int fd, int op, const struct intent *want, struct protect_look *look);

/* A record lock. If the call fails, or its thread is cancelled in it, the owner has exactly the locks that it had
 * before. A cancellation point if the caller waits and want->raw is not set. */
int acquire_record(int fd, const struct intent *want, struct protect_look *look);

/*
 * The parts that both have in common: acquire() is the whole call, acquire_answer() its call_kind.answer.
 * c->kind->taking says how the kernel lock is taken:
 * try     the page shows the lease, and the keeper was not asked: takes the lock without waiting and sets c->have. 0,
 *         -errno, or CALL_AGAIN: ask the keeper
 * check   before the keeper is asked. 0, or ACQUIRE_KERNEL if the kernel would refuse the call at once
 * learn   before the first take: finds out what let_go must know. 0, -errno, or CALL_AGAIN: this ended the grant
 * take    takes the lock, waiting if the caller waits, and sets c->have. 0 or -errno
 * let_go  back to the locks that the kernel would leave. Called before the caller waits for another host; when a call
 *         that does not wait would have to; and when the call fails with the lock taken. 0, or -errno after a line
 * finish  the call succeeds: does what must not be done before that. 0, or -errno: then the call fails
 */
int acquire_answer(struct call *c, const struct wire_reply *reply);
int acquire(struct call *c);

#endif
