/*
 * A front: a process that touches descriptors of another user in the keeper's place. Closing a descriptor, opening its
 * file anew and locking it can wait for ever, in a state that SIGKILL does not end (a FUSE server that does not answer
 * FLUSH); then the front hangs, and neither the keeper nor another user waits for it. It may be left behind: it has
 * nothing of the keeper's but its end of one socket.
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
 *
 * The door starts fronts: a process that the keeper forks while it has one thread. It also has a copy of the listening
 * socket, so that the keeper's is never the last one: what closes that last closes what waits in connections that
 * nobody has accepted. Door and fronts end when the keeper does.
 */
#ifndef DFLOCK_KEEPER_FRONT_H
#define DFLOCK_KEEPER_FRONT_H

#include <stdbool.h>
#include <stdint.h>

#include "keeper/kernel/inspect.h"
#include "keeper/kernel/probe.h"
#include "store/store.h"
#include "wire/msg.h"

#define FRONT_MAX_HUNG 4
#define FRONT_LIMIT_S  6 /* what can be ended by a signal is ended after this time: a front works on one question */

enum front_op {
	FRONT_RECEIVE, /* a connection comes with it */
	FRONT_BURY,    /* ditto: close it */
	FRONT_GIVE, /* after FRONT_QUESTION with `away`: a keeping front's socket; `id`: the description's name there */
	FRONT_DROP, /* ditto: close it */
	FRONT_SETTLE, /* from now on this front keeps descriptions */
	FRONT_KEEP,   /* from another front: a description, as `id` */
	FRONT_FORGET, /* close `id` */
	FRONT_PROBE,  /* a probe of `id`, called `probe` */
	FRONT_STOP,   /* `probe` */
	FRONT_SHARED, /* inspect.h, test_shared, of `id`; `probe` names the question */
	FRONT_WAY,    /* inquiry_look() of `id` and `range`; ditto */
};

struct front_ask {
	enum front_op op;
	unsigned hung_count;
	uint64_t hung[FRONT_MAX_HUNG]; /* devices that fronts of this user hang on: refuse, and only close */
	uint64_t id, probe;
	struct probe_want want;
	struct store_range range;
};

enum front_said {
	FRONT_QUESTION,
	FRONT_LOOKING, /* `dev`, which is not local: the question follows, or never comes */
	FRONT_READING, /* what the caller's process holds, of many descriptors: the question follows, maybe much later
			*/
	FRONT_READY,   /* it can be asked again */
	FRONT_GIVEN,   /* `error`: 0, or why not */
	FRONT_PROBED,  /* `probe`, `answer`, `error` */
	FRONT_TESTED,  /* `probe`, `shared` */
	FRONT_LOOKED,  /* `probe`, `found`, `range` */
	FRONT_FORGOT,
};

/* Before `path` only is what FRONT_QUESTION has set; the caller's record locks (struct held) follow in the message. */
struct front_answer {
	enum front_said said;
	uint64_t probe;
	enum probe_answer answer;
	int error;
	bool shared;
	int found;
	struct store_range range;
	/* FRONT_QUESTION */
	bool ready;          /* FRONT_READY does not come */
	bool has_fd;         /* a descriptor came with the question */
	bool looked;         /* it was one about a lock: the rest is valid */
	bool local;          /* if not refused: the file's new descriptor comes with this */
	bool away;           /* not local, and not refused: the front has it, and waits for FRONT_GIVE or FRONT_DROP */
	ssize_t n;           /* of question_receive() */
	int64_t received_ns; /* CLOCK_BOOTTIME after it was received */
	uint64_t dev;
	struct wire_request request;
	struct stat st;
	struct identity id;
	bool nameless, named_late;
	struct caller_holds holds;
	uint32_t before_count;
	char refused[256];
	char path[PATH_MAX];
};

#define FRONT_ANSWER_MAX (sizeof(struct front_answer) + BEFORE_MAX * sizeof(struct held))

/* Sends with one descriptor or none (-1). 0 or -errno; flags as of sendmsg(). */
int front_send(int socket, const struct iovec *parts, size_t count, int fd, int flags);
/* Receives; *fd is what came along, or -1. The length; 0: the other side has ended; -errno. */
ssize_t front_recv(int socket, void *message, size_t size, int *fd, int flags);

/* Forks the door. To be called before there are threads. Its socket (close-on-exec, non-blocking), or -errno. */
int front_start_door(void);
/* A new front: its socket (ditto), or -errno. */
int front_start(int door);
/* The door keeps a copy until it ends. 0 or -errno. */
int front_leave_with_door(int door, int fd);

/* --- inside a front --- */

#define FRONT_CONTROL 3 /* its end of the socket */

/* The keeper reads what it is sent; if it has ended, so does the front. before: answer->before_count of them. */
void front_say(const struct front_answer *answer, const struct held *before, int fd);
/* Keeps descriptions until the keeper has ended, or does not need it any more. */
__attribute__((noreturn)) void front_settle(void);

#endif
