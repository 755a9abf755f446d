/* A question that makes sense, for tests to spoil. */
#ifndef DFLOCK_TESTS_UNIT_GOOD_QUESTION_H
#define DFLOCK_TESTS_UNIT_GOOD_QUESTION_H

#include "wire/msg.h"

static inline struct wire_request good(enum wire_op op)
{
	return (struct wire_request){.magic = WIRE_MAGIC,
				     .version = WIRE_VERSION,
				     .size = sizeof(struct wire_request),
				     .op = op,
				     .space = WIRE_FLOCK,
				     .mode = WIRE_EXCLUSIVE,
				     .to = WIRE_EOF,
				     .sent_ns = 1};
}

#endif
