/*
 * What a lock call wants, taken from its arguments alone. Pure: no system call, no state.
 */
#ifndef DFLOCK_SHIM_INTENT_H
#define DFLOCK_SHIM_INTENT_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/msg.h"

struct intent {
	enum wire_space space;
	enum wire_mode mode;
	enum wire_owner owner;
	bool nonblock;    /* the caller does not wait */
	int64_t from, to; /* [from, to) as in struct wire_request */
};

/* Says whether flock(fd, op) takes a lock, and which. false: an unlock, or an op that the kernel turns down
 * or ignores; *want is then untouched. */
bool intent_flock(int op, struct intent *want);

#endif
