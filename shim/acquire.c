/*
 * Why two hosts cannot both succeed (promise 1 of docs/design.md). A call returns success in these places only:
 *
 * 1. After a grant, the caller took the kernel lock, and then the clock was still before the grant's end. The keeper
 *    promises that its host's lease does not end before that: it neither gives the lease back (the pin) nor lets it
 *    expire. So the lease was there at a moment when the caller had the kernel lock.
 * 2. The keeper answered "granted" to a question that was sent with the kernel lock held, and the caller did not let go
 *    of that lock in between. The lease was there when the keeper answered, and the caller had the kernel lock then.
 * 3. The keeper answered that the file is not protected, and the page does not say the opposite of the path that the
 *    file had after that answer (shim/call.c, call_unprotected()).
 * 4. The page showed the lease, open and unexpired, after the kernel lock was taken (wire/leases.h).
 *
 * From that moment on the keeper asks the kernel before it gives the lease back, and the kernel says that the lock is
 * held (promise 2); or the keeper loses the lease and stops the caller (promise 3). No conclusion rests on time alone:
 * if the process was stopped after it read the clock, the moment above had already been.
 *
 * Why no caller waits for itself: while it waits for another host, a caller holds no kernel lock that this call took,
 * and with flock() none that the call converts; it let go of them before it went on waiting. So the keeper finds the
 * locks free and can give the lease back to the host that the caller waits for. (A record lock that is being converted
 * stays, as in the kernel; if two callers wait for each other's, the keepers find that: EDEADLK.) While a caller waits
 * in the kernel for a local holder, its pin may run out and the lease may go: then it asks again, place 2.
 *
 * A local EWOULDBLOCK is believed only within a pin: at other times the lock in the way may be the keeper's own probe.
 * A caller that took the kernel lock because of the page, which then said no, is in place 2: it asks, and the keeper
 * sees in the kernel that it holds the lock, so it does not count as a newcomer as long as the lease is there.
 */
#include "shim/call.h"

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/file.h>

#include "shim/ask.h"
#include "shim/note.h"
#include "shim/real.h"
#include "wire/sys.h"

/*
 * How often a lock that is taken is tried again, each time after the other processes had their turn, before the keeper
 * is asked. A question costs both sides some forty system calls; most locks that programs fight for are held for less
 * than that takes. In the kernel, too, a caller that comes in the right moment passes those that wait.
 */
#define PAGE_TRIES 3

/* How often a grant may end before the kernel has answered. */
#define LATE_GRANTS 5

static bool is_conflict(int ret)
{
	return ret == -EWOULDBLOCK || ret == -EACCES;
}

/* An ENOLCK of the kernel's own is passed on, whatever on_refused says. */
static int acquire_in_kernel(struct call *c, int (*how)(struct call *c))
{
	int ret = how(c);

	c->kernels = ret == -ENOLCK;
	return ret;
}

/* A call that is to wait for a local holder, and to say so, first takes the lock as one that does not wait: what it has learnt of the
 * owner's locks stays. */
static int acquire_take(struct call *c)
{
	const struct intent *want = c->want;
	struct intent now = *want;
	int ret;

	if (want->nonblock || !blocker_tells())
		return acquire_in_kernel(c, c->taking->take);
	now.nonblock = true;
	c->want = &now;
	ret = acquire_in_kernel(c, c->taking->take);
	c->want = want;
	if (!is_conflict(ret))
		return ret;
	ret = blocker_tell(c);
	return ret < 0 ? ret : acquire_in_kernel(c, c->taking->take);
}

static int acquire_by_grant(struct call *c, const struct wire_reply *granted)
{
	const struct call_taking *taking = c->taking;
	int ret = 0;

	/* Place 2. */
	if (c->have)
		return 0;
	if (taking->learn)
		ret = taking->learn(c, granted);
	if (ret != 0)
		return ret;
	ret = acquire_take(c);
	if (ask_clock_ns() < granted->until_ns)
		return ret; /* Place 1. */
	if (ret < 0 && !is_conflict(ret))
		return ret;
	note_debug(c->fd, "the grant was over before the kernel lock was there");
	return ret == 0 || c->late++ < LATE_GRANTS ? CALL_AGAIN : ret;
}

int acquire_answer(struct call *c, const struct wire_reply *reply)
{
	const struct call_taking *taking = c->taking;
	int ret;

	switch (reply->verdict) {
	case WIRE_GRANTED:
		ret = acquire_by_grant(c, reply);
		break;
	case WIRE_NOT_PROTECTED:
		/* Place 3. */
		c->look->disclaimed = true;
		ret = c->have ? 0 : CALL_KERNEL;
		break;
	case WIRE_WOULD_BLOCK:
		if (!c->want->nonblock)
			return -EPROTO;
		ret = taking->let_go(c);
		return ret < 0 ? ret : -EWOULDBLOCK;
	case WIRE_DEADLOCK:
		return c->want->space == WIRE_RECORD && !c->want->nonblock ? -EDEADLK : -EPROTO;
	default:
		return -EPROTO;
	}
	return ret == 0 && taking->finish ? taking->finish(c) : ret;
}

/* Without waiting in the kernel. */
static int acquire_try(struct call *c)
{
	int ret = acquire_in_kernel(c, c->taking->try);

	for (int tries = 1; is_conflict(ret) && tries < PAGE_TRIES; tries++) {
		sched_yield();
		ret = acquire_in_kernel(c, c->taking->try);
	}
	return ret;
}

/* Takes the lock without asking if the page shows the lease. Else CALL_AGAIN, perhaps with the kernel lock taken. */
static int acquire_by_page(struct call *c)
{
	const struct call_taking *taking = c->taking;
	const struct leases_range wanted = intent_wanted(c->want);
	const struct protect_look *look = c->look;
	const struct leases_slot *slot = look->page ? leases_find(&look->page->leases, &look->file, &wanted) : NULL;
	int ret;

	if (!slot || !protect_page_is_near(look))
		return CALL_AGAIN;
	ret = acquire_try(c); /* mutant: page-lock */
	if (ret != 0)
		return is_conflict(ret) ? CALL_AGAIN : ret;
	if (!leases_stand(&look->page->leases, slot, &look->file, &wanted)) { /* mutant: page-again */
		note_debug(c->fd, "the lease was recalled while the kernel lock was taken");
		return CALL_AGAIN;
	}
	return taking->finish ? taking->finish(c) : 0; /* Place 4. */
}

static int acquire_ask(struct call *c)
{
	const struct call_taking *taking = c->taking;
	bool shown = c->look->page != NULL;
	int ret;

	ret = taking->check && !c->have ? taking->check(c) : 0;
	if (ret != 0)
		return ret;
	c->look->waits = !c->want->nonblock;
	switch (protect_ask(c->fd, c->look)) {
	case PROTECT_NO:
		if (!c->have)
			return CALL_KERNEL;
		c->look->disclaimed = true;
		return taking->finish ? taking->finish(c) : 0;
	case PROTECT_REFUSED:
		return -ENOLCK;
	case PROTECT_ASK:
		break;
	}
	ret = shown ? CALL_AGAIN : acquire_by_page(c);
	return ret == CALL_AGAIN ? call_run(c) : ret;
}

/* With on_refused = "wait", asks again until a keeper has served the call. Meanwhile the call has taken no kernel lock. */
static int acquire_by_keeper(struct call *c)
{
	unsigned tries = 0;
	int ret;

	while ((ret = acquire_ask(c)) == ASK_LATER) {
		ret = c->have ? c->taking->let_go(c) : 0;
		if (ret == 0)
			ret = await_keeper(&c->ask, &c->look->by, tries++);
		if (ret < 0)
			break;
	}
	return ret;
}

/* With on_refused = "busy", a call that does not wait fails as if another process had the lock: of a flock() that
 * converts one, the earlier lock is gone, too. */
static int acquire_refused(struct call *c)
{
	int ret;

	if (!c->want->nonblock || c->kernels ||
	    (c->on_refused ? c->on_refused : protect_on_refused(c->fd)) != WIRE_ON_REFUSED_BUSY)
		return -ENOLCK;
	c->look->refused = true;
	ret = c->taking->let_go(c);
	return ret < 0 ? ret : -EWOULDBLOCK;
}

int acquire(struct call *c)
{
	int ret = acquire_by_page(c);

	if (ret == CALL_AGAIN)
		ret = acquire_by_keeper(c);
	if (ret < 0 && c->have)
		c->taking->let_go(c);
	if (is_conflict(ret) && c->want->nonblock)
		blocker_tell(c);
	return ret == -ENOLCK ? acquire_refused(c) : ret;
}

/* --- flock --- */

struct flock_call {
	struct call call; /* first: it is what the operations get */
	int op;
};

static int flock_lock(struct call *c, int op)
{
	if (real_flock(c->fd, op) < 0)
		return -errno;
	c->have = true;
	return 0;
}

static int flock_take(struct call *c)
{
	return flock_lock(c, ((struct flock_call *)c)->op | (c->want->nonblock ? LOCK_NB : 0));
}

/* Without waiting, since no process may wait in the kernel unknown to the keeper: the keeper must be able to tell a
 * process that gets the lock after the lease has run out from those that had it before, and not freeze or kill it. A
 * failed conversion loses the old lock here as in the kernel, which gives the old lock up before it waits for the new
 * one. */
static int flock_try(struct call *c)
{
	return flock_lock(c, ((struct flock_call *)c)->op | LOCK_NB);
}

/* This also loses the lock that is being converted, as in the kernel, where a conversion that waits or fails loses
 * it. */
static int flock_let_go(struct call *c)
{
	real_flock(c->fd, LOCK_UN);
	c->have = false;
	return 0;
}

int acquire_flock(int fd, int op, const struct intent *want, struct protect_look *look)
{
	static const struct call_taking flock_taking = {.try = flock_try, .take = flock_take, .let_go = flock_let_go};
	struct flock_call f = {
		.call = {.answer = acquire_answer, .taking = &flock_taking, .fd = fd, .want = want, .look = look},
		.op = op,
	};

	int ret = acquire(&f.call);

	return ret == ASK_NETTED ? (int)sys(flock, fd, op) : ret;
}
