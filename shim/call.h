/*
 * The way of one lock call to its final answer: asks one keeper after the other, until one of them gives it. The caller
 * says in struct call_kind what the answers mean, and how its kernel lock is taken.
 */
#ifndef DFLOCK_SHIM_CALL_H
#define DFLOCK_SHIM_CALL_H

#include <stdbool.h>

#include "shim/ask.h"
#include "shim/intent.h"
#include "shim/protect.h"
#include "wire/msg.h"

/* Not an errno: the question must be asked again. */
#define CALL_AGAIN 1

struct call {
	const struct call_kind *kind;
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

struct call_kind {
	enum wire_op op;
	/* Acts on a final answer that is no refusal: 0 or -errno, which ends the call, or CALL_AGAIN. -EPROTO: such an
	 * answer makes no sense here. */
	int (*answer)(struct call *c, const struct wire_reply *reply);
	/* How a call takes its lock in the kernel; acquire.h says when each function is called. NULL for calls that
	 * test. */
	const struct call_taking *taking;
};

struct call_taking {
	int (*try)(struct call *c);
	int (*check)(struct call *c);                                   /* may be NULL */
	int (*learn)(struct call *c, const struct wire_reply *granted); /* may be NULL */
	int (*take)(struct call *c);
	int (*let_go)(struct call *c);
	int (*finish)(struct call *c); /* may be NULL */
};

/* 0 or -errno, as `answer` gave it; -ENOLCK after the reason was written; -EINTR and ASK_LATER as in ask.h. errno changes. A
 * cancellation point where ask.h says so; a cancelled thread leaves c->ask open. */
int call_run(struct call *c);

#endif
