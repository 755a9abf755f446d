#include "shim/call.h"

#include <errno.h>

#include "shim/note.h"
#include "wire/text.h"

/* How many keepers one call may outlive. A call that waits for weeks outlives some; a question that makes each keeper
 * die must come to an end. */
#define MAX_KEEPERS 100

/* How often the keeper is asked again when it says that a file is not protected and the page says that it is. */
#define MAX_DISPUTES 5

/* Asks, and waits for the final answer. */
static int call_question(struct call *c, struct wire_reply *reply)
{
	int ret = ask_send(&c->ask, &c->look->by, ask_request(c->taking ? WIRE_LOCK : WIRE_TEST, c->want, c->have),
			   c->fd);

	while (ret == 0) {
		ret = ask_receive(&c->ask, reply);
		c->answered |= ret == 0;
		/* Only a grant makes the kernel say this by itself, and at once. */
		if (ret == 0 && reply->verdict != WIRE_GRANTED && c->taking && protect_kernel_refuses(c->fd))
			ret = -EBADF;
		if (ret < 0 || reply->verdict != WIRE_WAITING)
			break;
		if (!c->want->nonblock && reply->reason[0]) {
			/* The caller waits for the store, and stands in no queue. It keeps a lock that it had before. */
			note_line(c->fd, reply->reason);
			ret = c->have ? c->taking->let_go(c) : 0;
		} else if (c->want->nonblock) {
			note_refused(c->fd, "the keeper waits for a call that does not; end it with `dflock stop`");
			ret = -ENOLCK;
		} else {
			note_debug(c->fd, "waiting for another host");
			ret = c->taking->let_go(c);
			if (ret == 0)
				ret = blocker_tell(c);
		}
	}
	return ret;
}

/*
 * The keeper says that the file is not protected. That counts only if the page does not say the opposite of the path
 * that the file has now: the keeper may see the file under another path (a chroot or mount namespace), and the kernel
 * lock alone would exclude no other host. A file that was renamed after the first look at the page is no such case,
 * since the path is read again after the keeper's answer. If it is renamed back meanwhile, the keeper is asked again.
 */
static int call_unprotected(struct call *c, const struct wire_reply *reply)
{
	switch (protect_again(c->fd, c->look)) {
	case PROTECT_NO:
		return c->answer(c, reply);
	case PROTECT_REFUSED:
		return -ENOLCK;
	case PROTECT_ASK:
		break;
	}
	if (c->disputed++ < MAX_DISPUTES)
		return CALL_AGAIN;
	note_refused(c->fd,
		     "this path is protected, but the keeper has no rule for the path under which it sees the file "
		     "(another root directory or mount namespace): give that path a rule with the same name, or run a "
		     "keeper there%s%s",
		     *reply->reason ? ": " : "", reply->reason);
	return -ENOLCK;
}

static int call_refused(struct call *c, const struct wire_reply *reply)
{
	char line[WIRE_REASON_BYTES];

	c->on_refused = reply->on_refused;
	c->ask.patient |= reply->on_refused == WIRE_ON_REFUSED_WAIT;
	if (!reply->may_mend || !ask_is_patient(&c->ask)) {
		note_line(c->fd, reply->reason);
		return -ENOLCK;
	}
	text_print(line, sizeof(line), "waiting: %s", reply->reason);
	if (!c->ask.told)
		note_line(c->fd, line);
	c->ask.told = true;
	c->ask.absent = false;
	return ASK_LATER;
}

static int call_converse(struct call *c)
{
	struct wire_reply reply;
	int ret;

	do {
		ret = call_question(c, &reply);
		if (ret < 0)
			return ret;
		if (reply.verdict == WIRE_REFUSED)
			return call_refused(c, &reply);
		ret = reply.verdict == WIRE_NOT_PROTECTED ? call_unprotected(c, &reply) : c->answer(c, &reply);
	} while (ret == CALL_AGAIN);
	return ret;
}

int call_run(struct call *c)
{
	int ret = -ECONNRESET;

	for (int keepers = 0, attempt = 0; ret == -ECONNRESET && keepers < MAX_KEEPERS && attempt < ASK_ATTEMPTS;
	     keepers++) {
		c->answered = false;
		ret = ask_open(&c->ask, &c->look->by, c->want, c->fd, attempt);
		if (ret == 0) {
			ret = call_converse(c);
			ask_close(&c->ask);
		}
		attempt = c->answered ? 0 : attempt + 1;
	}
	if (ret == -EPROTO) {
		note_refused(c->fd, "the keeper's answer makes no sense here; end it with `dflock stop`");
		ret = -ENOLCK;
	} else if (ret == -ECONNRESET) {
		ret = ask_unserved(&c->ask, "keepers end before they answer; run dflockd --foreground to see why",
				   false);
	}
	return ret;
}
