/*
 * What the keeper and a front tell each other (front.c): one message at a time over a SOCK_SEQPACKET pair, with one
 * descriptor or none.
 *
 *   keeper -- FRONT_RECEIVE, a program's connection --> front    reads a question, looks at what came with it,
 *          <-- FRONT_QUESTION, the file opened anew --           closes that, and answers
 *
 * A file on a file system that is not local never comes to the keeper: a front of its user that keeps the files of this
 * device (FRONT_SETTLE) has the keeper's description of it, and asks the kernel about locks (probe.h) when it is told
 * to.
 *
 *   keeper -- FRONT_GIVE, the keeping front's socket ----> front  passes the description on (FRONT_KEEP)
 *   keeper -- FRONT_PROBE, FRONT_STOP, FRONT_FORGET, ... -------> keeping front
 */
#ifndef DFLOCK_KEEPER_FRONTMSG_H
#define DFLOCK_KEEPER_FRONTMSG_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "keeper/kernel/getlk.h"
#include "keeper/kernel/inspect.h"
#include "keeper/kernel/probe.h"
#include "wire/msg.h"

#define FRONT_MAX_HUNG 4

enum front_op {
	FRONT_RECEIVE, /* a connection comes with it */
	FRONT_BURY,    /* close the connection that comes with it */
	FRONT_GIVE, /* after FRONT_QUESTION with `away`: a keeping front's socket; `id`: the description's name there */
	FRONT_DROP, /* after FRONT_QUESTION with `away`: close the description */
	FRONT_SETTLE, /* from now on this front keeps descriptions */
	FRONT_KEEP,   /* sent by another front: keep the description that comes with it, as `id` */
	FRONT_FORGET, /* close `id` */
	FRONT_PROBE,  /* a probe of `id`, called `probe` */
	FRONT_STOP,   /* stop `probe` */
	FRONT_SHARED, /* inspect.h, test_shared, of `id`; `probe` names the question */
	FRONT_GETLK,  /* getlk_ask_again() of `id` and `wanted`; `probe` names the question */
};

struct front_ask {
	enum front_op op;
	unsigned hung_count;
	uint64_t hung[FRONT_MAX_HUNG]; /* devices that fronts of this user hang on: refuse, and only close */
	uint64_t id, probe;
	struct probe_want want;
	struct store_range wanted;
};

enum front_said {
	FRONT_QUESTION,
	FRONT_LOOKING, /* `dev`, which is not local: the question follows, or never comes */
	FRONT_READING, /* the caller's process has many descriptors: the question follows, perhaps much later */
	FRONT_READY,   /* it can be asked again */
	FRONT_GIVEN,   /* `error`: 0, or why not */
	FRONT_PROBED,  /* `probe`, `answer`, `error` */
	FRONT_TESTED,  /* `probe`, `shared` */
	FRONT_LOOKED,  /* `probe`, `found`, `in_the_way` */
	FRONT_FORGOT,
};

/* FRONT_QUESTION sets the fields from `ready` on (FRONT_LOOKING: `dev`). The caller's record locks (struct own_lock) follow
 * the struct in the message. */
struct front_answer {
	enum front_said said;
	uint64_t probe;
	enum probe_answer answer;
	int error;
	bool shared;
	int found; /* as getlk_ask_again() */
	struct store_range in_the_way;
	/* FRONT_QUESTION */
	bool ready;          /* FRONT_READY does not come */
	bool has_fd;         /* a descriptor came with the question */
	bool looked;         /* the question was about a lock: the fields that follow are valid */
	bool local;          /* if not refused: the file's new descriptor comes with this */
	bool away;           /* not local, and not refused: the front has it, and waits for FRONT_GIVE or FRONT_DROP */
	ssize_t n;           /* of question_receive() */
	int64_t received_ns; /* CLOCK_BOOTTIME after it was received */
	uint64_t dev;
	struct wire_request request;
	uint32_t before_count;
	struct inspect_result file; /* without `fd` and `before`. If not looked: `path` is the question's text */
};

#define FRONT_ANSWER_MAX (sizeof(struct front_answer) + OWN_LOCKS_MAX * sizeof(struct own_lock))

#define FRONT_CONTROL 3 /* inside a front: its end of the socket */

#endif
