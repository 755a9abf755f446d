#include "shim/intent.h"

#include <sys/file.h>

bool intent_flock(int op, struct intent *want)
{
	enum wire_mode mode;

	/* The kernel compares the whole word, too: LOCK_SH | LOCK_EX is no lock but EINVAL. */
	switch (op & ~LOCK_NB) {
	case LOCK_SH:
		mode = WIRE_SHARED;
		break;
	case LOCK_EX:
		mode = WIRE_EXCLUSIVE;
		break;
	default:
		return false;
	}
	*want = (struct intent){
		.space = WIRE_FLOCK,
		.mode = mode,
		.owner = WIRE_OWNER_DESCRIPTION,
		.nonblock = (op & LOCK_NB) != 0,
		.from = 0,
		.to = WIRE_EOF,
	};
	return true;
}
