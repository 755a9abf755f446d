#include "shim/call.h"

#include <errno.h>

#include "shim/note.h"

/* How many keepers one call may outlive. One that waits for weeks sees some; a question that each keeper dies of
 * must come to an end. */
#define MAX_KEEPERS 100

/* How often the keeper is asked again when it calls a file not protected that the page calls protected. */
#define MAX_DISPUTES 5

/* Asks, and waits for the final answer. */
static int question(struct call *c, struct wire_reply *reply)
{
	int rc = ask_send(&c->ask, &c->look->by, c->kind->op, c->want, c->have);

	while (rc == 0) {
		rc = ask_receive(&c->ask, reply);
		c->answered |= rc == 0;
		if (rc < 0 || reply->verdict != WIRE_WAITING)
			break;
		if (!c->want->nonblock && reply->reason[0]) {
			note_line(c->fd, reply->reason); /* it waits for the store, and stands in no queue */
		} else if (c->want->nonblock) {
			note_refused(c->fd, "the keeper waits for a call that does not; end it with `dflock stop`",
				     NULL);
			rc = -ENOLCK;
		} else {
			note_debug(c->fd, "waiting for another host");
			rc = c->kind->taking->let_go(c);
		}
	}
	return rc;
}

/*
 * The keeper says that the file is not protected. That counts only if the page does not say the opposite of the path
 * that the file has now: the keeper may see the file under another path (a chroot or mount namespace), and the kernel
 * lock alone would exclude nobody on other hosts. A file that was renamed after the page was looked at is no dispute:
 * the path is read again after the keeper's answer. If it is renamed back meanwhile, the keeper is asked again.
 */
static int unprotected(struct call *c, const struct wire_reply *reply)
{
	switch (protect_again(c->fd, c->look)) {
	case PROTECT_NO:
		return c->kind->answer(c, reply);
	case PROTECT_REFUSED:
		return -ENOLCK;
	case PROTECT_ASK:
		break;
	}
	if (c->disputed++ < MAX_DISPUTES)
		return CALL_AGAIN;
	note_refused(
		c->fd,
		"this path is protected, but the keeper has no rule for the path under which it sees the file (another "
		"root directory or mount namespace): give that path a rule with the same name, or run a keeper there",
		*reply->reason ? reply->reason : NULL);
	return -ENOLCK;
}

static int converse(struct call *c)
{
	struct wire_reply reply;
	int rc;

	do {
		rc = question(c, &reply);
		if (rc < 0)
			return rc;
		if (reply.verdict == WIRE_REFUSED) {
			note_line(c->fd, reply.reason);
			return -ENOLCK;
		}
		rc = reply.verdict == WIRE_NOT_PROTECTED ? unprotected(c, &reply) : c->kind->answer(c, &reply);
	} while (rc == CALL_AGAIN);
	return rc;
}

int call_run(struct call *c)
{
	int rc = -ECONNRESET;

	for (int keepers = 0, attempt = 0; rc == -ECONNRESET && keepers < MAX_KEEPERS && attempt < ASK_ATTEMPTS;
	     keepers++) {
		c->answered = false;
		rc = ask_open(&c->ask, &c->look->by, c->want, c->fd, attempt);
		if (rc == 0) {
			rc = converse(c);
			ask_close(&c->ask);
		}
		attempt = c->answered ? 0 : attempt + 1;
	}
	if (rc == -EPROTO) {
		note_refused(c->fd, "the keeper's answer makes no sense here; end it with `dflock stop`", NULL);
		rc = -ENOLCK;
	} else if (rc == -ECONNRESET) {
		note_refused(c->fd, "keepers end before they answer; run dflockd --foreground to see why", NULL);
		rc = -ENOLCK;
	}
	return rc;
}
