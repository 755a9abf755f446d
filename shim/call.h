/*
 * Lock calls on protected files, and calls that test. All functions are callable wherever the calls of the program are; errno
 * changes. *look is what protect_look() filled when it returned PROTECT_ASK.
 *
 *   call.c            the way to the keeper's final answer: asks one keeper after the other, until one of them gives it
 *   acquire.c         the kernel lock and the lease, both or neither; flock()
 *   acquire_record.c  the same for record locks
 *   blocker.c         which locks are in the way?
 */
#ifndef DFLOCK_SHIM_CALL_H
#define DFLOCK_SHIM_CALL_H

#include <fcntl.h>
#include <stdbool.h>

#include "shim/ask.h"
#include "shim/intent.h"
#include "shim/protect.h"
#include "wire/msg.h"

/* Not an errno: the question must be asked again. */
#define CALL_AGAIN 1

/* Not an errno: dflock has no part in the call; make it as it came. */
#define CALL_KERNEL 2

struct call {
	/* Acts on a final answer that is no refusal: 0 or -errno, which ends the call, or CALL_AGAIN. -EPROTO: such an
	 * answer makes no sense here. */
	int (*answer)(struct call *c, const struct wire_reply *reply);
	/* How a call takes its lock in the kernel. NULL for calls that test. */
	const struct call_taking *taking;
	int fd;
	const struct intent *want;
	struct protect_look *look;
	bool have;          /* this call has taken the kernel lock */
	bool answered;      /* this keeper has answered something */
	int late;           /* how many grants had ended before the kernel lock was taken */
	bool kernels;       /* it was the kernel that said ENOLCK */
	uint8_t on_refused; /* of the file's rule, as a keeper has said; 0: it has not */
	int disputed;       /* how often the keeper said that the file is not protected, and the page that it is */
	struct ask ask;
};

struct call_taking {
	/* The page shows the lease, and the keeper was not asked: takes the lock without waiting and sets c->have. 0,
	 * -errno, or CALL_AGAIN: ask the keeper. */
	int (*try)(struct call *c);
	/* Before the keeper is asked. 0, or CALL_KERNEL if the kernel would refuse the call at once. May be NULL. */
	int (*check)(struct call *c);
	/* Before the first take: finds out what let_go must know. 0, -errno, or CALL_AGAIN: this ended the grant. May be
	 * NULL. */
	int (*learn)(struct call *c, const struct wire_reply *granted);
	/* Takes the lock, waiting if the caller waits, and sets c->have. 0 or -errno. */
	int (*take)(struct call *c);
	/* Back to the locks that the kernel would leave. Called before the caller waits for another host; when a call
	 * that does not wait would have to; and when the call fails with the lock taken. 0, or -errno after a line. */
	int (*let_go)(struct call *c);
	/* The call succeeds: does what must not be done before that. 0, or -errno: then the call fails. May be NULL. */
	int (*finish)(struct call *c);
};

/* Asks (WIRE_LOCK, or WIRE_TEST without taking). 0 or -errno, as `answer` gave it; -ENOLCK after the reason was written; -EINTR and
 * ASK_LATER as in ask.h. A cancellation point where ask.h says so; a cancelled thread leaves c->ask open. */
int call_run(struct call *c);

/*
 * The whole call. 0: the caller has the kernel lock, and had it while its host had an unexpired lease. CALL_KERNEL. Else -errno as
 * the manual page of the call gives it, or -ENOLCK after a line that says why; with on_refused = "busy", -EWOULDBLOCK in its place
 * if the call does not wait.
 */
int acquire(struct call *c);
/* Its call.answer. */
int acquire_answer(struct call *c, const struct wire_reply *reply);

/*
 * The same for flock(fd, op), whose intent is *want. If the call was refused at once, the lock that fd had before is kept. If it had
 * to wait, would have had to wait, or was refused later, that lock is gone, as flock(2) says. No cancellation point.
 */
int acquire_flock(int fd, int op, const struct intent *want, struct protect_look *look);

/* The same for a record lock. If the call fails, or its thread is cancelled in it, the owner has exactly the locks that it had
 * before. A cancellation point if the caller waits and want->raw is not set. */
int acquire_record(int fd, const struct intent *want, struct protect_look *look);

/* Is a lock in the way? want->nonblock must be set: a test never waits. 1: yes, and *found shows the lock as F_GETLK does. 0: no.
 * Else -errno; -ENOLCK after a line. */
int blocker_find(int fd, const struct intent *want, struct protect_look *look, struct flock64 *found);

/* Only the question, on behalf of the thread that behalf->thread, call and command say: look->by is filled. The same results. */
int blocker_ask(const struct ask *behalf, int fd, const struct intent *want, struct protect_look *look,
		struct flock64 *found);

/*
 * DFLOCK_VERBOSE: a line on standard error that says which processes hold the lock that *c wants, on which hosts. A call that does not wait
 * is about to return EWOULDBLOCK or EAGAIN; one that waits begins to, and has taken no kernel lock. The question is asked on behalf of the
 * same thread as the call's. A file for which this was called within the last second gets no line: programs ask again and again.
 *
 * Without DFLOCK_VERBOSE it costs a load and a branch, at a call that is refused or waits. With it, the call returns after a question
 * to the keeper, which takes two seconds at most, and five if the keeper hangs. 0, or -EINTR, which ends a call that waits.
 */
int blocker_tell(const struct call *c);

/* With DFLOCK_VERBOSE. */
bool blocker_tells(void);

#endif
