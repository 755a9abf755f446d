/*
 * Why two hosts cannot both succeed (promise 1 of docs/design.md). A call returns success in these places only:
 *
 * 1. After a grant, the kernel lock was taken, and then the clock was still before the grant's end. The
 *    keeper promises that its host's lease does not end before that: it neither gives it back (the pin) nor
 *    lets it expire. So the lease was there at a moment when the caller had the kernel lock.
 * 2. The keeper answered "granted" to a question that was sent with the kernel lock held, and it was not let go
 *    in between. The lease was there when the keeper answered, and the caller had the kernel lock then.
 * 3. The keeper answered that the file is not protected.
 *
 * From that moment on the keeper does not give the lease back without asking the kernel first, which says that
 * the lock is held (promise 2), or loses it and stops the caller (promise 3). Nothing is concluded from time alone: if
 * the process was stopped after its last look at the clock, the moment had already been.
 *
 * Why nobody waits for himself: while it waits for another host, a caller holds no kernel lock that this call
 * took, and none that the call converts; it let go of them before it went on waiting. So the keeper can always
 * test this host's locks free and give its lease back to whom the caller waits for. While a caller waits
 * in the kernel for a local holder, its pin may run out and the lease may go: then it asks again, place 2.
 *
 * A local EWOULDBLOCK is believed only within a pin: outside, it may be the keeper's own test of the lock.
 */
#include "shim/acquire.h"

#include <stdbool.h>
#include <sys/file.h>

#include "shim/ask.h"
#include "shim/note.h"
#include "shim/real.h"
#include "shim/sys.h"

/* How often a grant may be over before the kernel was asked. */
#define LATE_GRANTS 5

/* How many keepers one call may outlive. One that waits for weeks sees some; a question that each keeper dies of
 * must come to an end. */
#define MAX_KEEPERS 100

struct call {
	int fd, op;
	const struct intent *want;
	const struct protect_by *by;
	bool have;     /* the kernel lock, taken by this call */
	bool answered; /* this keeper did answer something */
	int late;      /* grants that came to nothing */
	struct ask ask;
};

static int64_t now_ns(void)
{
	return sys_clock_ns(CLOCK_BOOTTIME);
}

static void let_go(struct call *c)
{
	real_flock(c->fd, LOCK_UN);
	c->have = false;
}

static int take(struct call *c)
{
	if (real_flock(c->fd, c->op) < 0)
		return -errno;
	c->have = true;
	return 0;
}

/* Asks, and waits for the final answer. */
static int question(struct call *c, struct wire_reply *reply)
{
	int rc = ask_send(&c->ask, c->by, c->want, c->have);

	while (rc == 0) {
		rc = ask_receive(&c->ask, reply);
		c->answered |= rc == 0;
		if (rc < 0 || reply->verdict != WIRE_WAITING)
			break;
		if (c->want->nonblock) {
			note_refused(c->fd, "the keeper waits for a call that does not; end it with `dflock stop`",
				     NULL);
			rc = -ENOLCK;
		} else {
			note_debug(c->fd, "waiting for another host");
			let_go(c);
		}
	}
	return rc;
}

/* Not an errno: the question must be asked again. */
#define ASK_AGAIN 1

/* A grant that runs until until_ns. */
static int use_grant(struct call *c, int64_t until_ns)
{
	int rc;

	/* Place 2. */
	if (c->have)
		return 0;
	rc = take(c);
	if (now_ns() < until_ns)
		return rc; /* Place 1. */
	if (rc < 0 && rc != -EWOULDBLOCK)
		return rc;
	note_debug(c->fd, "the grant was over before the kernel lock was there");
	return rc == 0 || c->late++ < LATE_GRANTS ? ASK_AGAIN : rc;
}

static int converse(struct call *c)
{
	struct wire_reply reply;
	int rc;

	do {
		rc = question(c, &reply);
		if (rc < 0)
			return rc;
		switch (reply.verdict) {
		case WIRE_GRANTED:
			rc = use_grant(c, reply.until_ns);
			break;
		case WIRE_NOT_PROTECTED:
			/* Place 3. */
			return c->have ? 0 : take(c);
		case WIRE_WOULD_BLOCK:
			if (!c->want->nonblock)
				return -EPROTO;
			/* A conversion that fails loses the old lock in the kernel, too. */
			let_go(c);
			return -EWOULDBLOCK;
		case WIRE_REFUSED:
			note_line(c->fd, reply.reason);
			return -ENOLCK;
		default:
			return -EPROTO;
		}
	} while (rc == ASK_AGAIN);
	return rc;
}

/* One keeper after the other, until one says how it ends. */
static int ask_keepers(struct call *c)
{
	int rc = -ECONNRESET;

	for (int keepers = 0, attempt = 0; rc == -ECONNRESET && keepers < MAX_KEEPERS && attempt < ASK_ATTEMPTS;
	     keepers++) {
		c->answered = false;
		rc = ask_open(&c->ask, c->by, c->want, c->fd, attempt);
		if (rc == 0) {
			rc = converse(c);
			ask_close(&c->ask);
		}
		attempt = c->answered ? 0 : attempt + 1;
	}
	return rc;
}

int acquire_flock(int fd, int op, const struct intent *want, const struct protect_by *by)
{
	struct call c = {.fd = fd, .op = op, .want = want, .by = by};
	int rc = ask_keepers(&c);

	if (rc < 0 && c.have)
		let_go(&c);
	if (rc == -EPROTO) {
		note_refused(fd, "the keeper's answer makes no sense here; end it with `dflock stop`", NULL);
		rc = -ENOLCK;
	} else if (rc == -ECONNRESET) {
		note_refused(fd, "keepers end before they answer; run dflockd --foreground to see why", NULL);
		rc = -ENOLCK;
	}
	return rc;
}
