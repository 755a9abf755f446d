/*
 * One conversation with the keeper, over a connection made for it: ask_open(), then questions and answers, ask_close().
 *
 * Nothing of it stays in the process afterwards. All functions return 0 or -errno:
 * -EINTR       a signal handler without SA_RESTART ran; only if the caller waits (nonblock is false)
 * -ECONNRESET  the keeper ended; ask the next one
 * -ENOLCK      refused, and the reason was written
 * -EBADF       the kernel refuses a lock on the descriptor (protect_kernel_refuses())
 * ASK_NETTED   no keeper listens, and this process must not start one, since it would be under the net, too; or it would have to wait for
 *              one, and is restricted by the net's filter. The net's supervisor can: the caller makes its call without a key (netted.c)
 * ASK_LATER    no keeper can answer now, and the file's rule says that the caller waits: await_keeper(), and ask anew. The
 *              reason was written, once for each call
 * Callable wherever flock() is; errno changes. No cancellation points, except ask_receive() if `cancellable`.
 * abandoned.c ends a conversation that a handler leaves by longjmp(). After a failed ask_open() nothing is to be
 * closed.
 */
#ifndef DFLOCK_SHIM_ASK_H
#define DFLOCK_SHIM_ASK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/un.h>

#include "shim/intent.h"
#include "shim/protect.h"
#include "wire/msg.h"

/* A call that does not wait gives up on a silent keeper after this. */
#define ASK_PATIENCE_NS (30 * INT64_C(1000000000))
/* The same if `fd` is NOTE_JOB: it is asked whether a job may start (WIRE_FIT). */
#define ASK_JOB_PATIENCE_NS (5 * INT64_C(1000000000))

/* Negative, and not errnos. */
#define ASK_LATER  (-4096)
#define ASK_NETTED (-4097)

/* struct ask, `over` */
#define ASK_LOOK_MS 25

struct ask {
	int sock;
	int fd; /* the caller's descriptor, which the questions are about, or NOTE_JOB */
	bool nonblock;
	bool cancellable;    /* waiting for an answer is a cancellation point: record space, if the caller waits */
	int64_t deadline_ns; /* CLOCK_MONOTONIC; nonblock only */
	uint64_t cookie;     /* abandoned.c; 0: the conversation is not noted there */
	uint64_t identity;   /* ask_identity() of sock when it was opened; 0: not looked up */
	/* These stay from one ask_open() to the next; all false before the first. */
	bool patient; /* a keeper has said that the file's rule has on_refused = "wait" */
	bool told;    /* the person was told that this call waits */
	bool absent;  /* ASK_LATER: there is no keeper; else there is one, which cannot serve this call now */
	/* These stay, too. The questions are asked on behalf of this thread (struct wire_request); 0: of the caller itself. */
	int32_t thread;
	uint64_t call;       /* the number of that thread's call */
	const char *command; /* that thread's name, WIRE_COMMAND_BYTES */
	int (*connect)(const struct ask *ask,
		       const struct sockaddr_un *address); /* as connect(), or -errno. NULL: connect() */
	/* Must a caller that waits end its wait, with -EINTR? Asked each ASK_LOOK_MS. NULL: its own signals end it. */
	bool (*over)(const struct ask *ask);
	void *as; /* of these two */
};

/* Connects to the keeper; starts one if there is none. `attempt`: how many keepers have ended without any answer
 * before, less than ASK_ATTEMPTS; from ASK_DOUBTS on, a keeper is started even if something listens. */
#define ASK_ATTEMPTS 5
#define ASK_DOUBTS   2
int ask_open(struct ask *ask, const struct protect_by *by, const struct intent *want, int fd, int attempt);

/* WIRE_LOCK, WIRE_TEST or WIRE_HELD. `have`: the caller holds the kernel lock that it asks about. */
static inline struct wire_request ask_request(enum wire_op op, const struct intent *want, bool have)
{
	return (struct wire_request){
		.op = (uint8_t)op,
		.space = (uint8_t)want->space,
		.mode = (uint8_t)want->mode,
		.flags = (uint8_t)((want->nonblock ? WIRE_F_NONBLOCK : 0) | (have ? WIRE_F_HAVE : 0)),
		.owner = (uint8_t)want->owner,
		.from = want->from,
		.to = want->to,
	};
}

/* Sends a question, with the descriptor `fd` or none (-1). Fills in what is the same in all questions. */
int ask_send(struct ask *ask, const struct protect_by *by, struct wire_request request, int fd);

/* Receives one answer, also WIRE_WAITING, and checks its form. */
int ask_receive(struct ask *ask, struct wire_reply *reply);

/* The clock of sent_ns and until_ns. */
int64_t ask_clock_ns(void);

/* Is on_refused = "wait" for this caller? */
bool ask_is_patient(const struct ask *ask);

/* No keeper can answer now; `what` is the line; `absent` as in struct ask. ASK_LATER or -ENOLCK. */
int ask_unserved(struct ask *ask, const char *what, bool absent);

/* Does something listen where the keeper of this runtime directory does? Waits for nothing. */
bool ask_is_answered(const char *dir);

/* Closes the connection, if it is open: this cancels a wait and ends a pin. */
void ask_close(struct ask *ask);

/* What tells a socket, or a timer of await.c, from all other descriptors that this process has, had or will have. 0: it is neither;
 * `unknown`: that cannot be found out. */
uint64_t ask_identity(int fd, uint64_t unknown);
/* The interval of these timers, 59 years; the rest of it, in ns, is a number of each timer's own. */
#define ASK_TIMER_MARK_S 1876543211
/* Closes `sock`, also for other processes that have a copy, unless it is something else by now. */
void ask_hang_up(int sock, uint64_t identity);

/*
 * await.c: waits until a keeper can answer, for calls of files with on_refused = "wait", after ASK_LATER.
 *
 * Returns when the keeper is to be asked again. If there is none (ask->absent): within a second after one listens, or when
 * the program may try to start one again, which takes longer each time (1, 2, 4, ... 32 s). If there is one that cannot
 * serve the call now: after 1, 2, 4, 8, 8, ... s. `tries`: how often this call has waited here.
 *
 * 0; -EINTR and ASK_NETTED as in ask.h; -ENOLCK after a line: this process cannot wait. Callable wherever flock() is; errno changes. A
 * cancellation point where ask_receive() is one; a cancelled thread leaves `ask` open. Wakes up once a second.
 */
int await_keeper(struct ask *ask, const struct protect_by *by, unsigned tries);

/* A pause for a caller that waits. 0; -EINTR as above; or another -errno: there was none. No cancellation point. */
int await_pause(struct ask *ask, int64_t ns);

/*
 * --- abandoned.c ---
 *
 * Conversations with the keeper that a program left by longjmp() or pthread_exit() out of a signal handler. Their sockets would stay
 * open, and other hosts would wait for a caller that waits no longer. So each conversation is noted while it lasts, and
 * each lock or unlock call ends those that cannot be going on, of its own thread and of threads that have ended. Until the next such call
 * nothing notices.
 *
 * Callable wherever flock() is.
 */

/* How many are noted at a time. More are not noted, and nothing ends them. */
#define ABANDONED_NOTED 64

/* Notes a conversation whose ask->sock is open, a socket or a timer. `ask` must be a variable on the thread's stack, of a function that runs
 * as long as the conversation. Sets ask->identity; and ask->cookie, unless it could not be noted. errno may change. */
void abandoned_note(struct ask *ask);

/* The conversation ends in good order. */
void abandoned_forget(struct ask *ask);

/* For abandoned_end(). */
extern uint32_t abandoned_noted;
__attribute__((noinline)) void abandoned_end_slow(void);

/* Ends the conversations that this thread, or one that has ended, has left; errno is kept. One load if no thread of the process waits for a
 * keeper. */
static inline void abandoned_end(void)
{
	if (__builtin_expect(__atomic_load_n(&abandoned_noted, __ATOMIC_RELAXED) != 0, 0))
		abandoned_end_slow();
}

/*
 * --- start.c ---
 *
 * Starts a keeper so that the program does not notice: no child for its wait(), no SIGCHLD, no descriptor, none of its
 * signal handlers run in another process, no line in a tracer that follows forks.
 */

/* How long a new keeper may take until it serves. */
#define START_PATIENCE_MS 10000

/*
 * Starts a keeper and waits until one serves. `nonblock`: signals do not end the wait. Several threads and processes
 * may do this at the same time, also while a keeper runs. Callable wherever flock() is; errno changes.
 *
 * 0; -EINTR (not with `nonblock`); -EPERM: this process would have to reap the keeper, is restricted by seccomp, or
 * only root can start it;
 * -ENOLCK: the keeper could not be started. With the last two, `why` says in one line what is wrong and what to do.
 */
int start_keeper(const struct protect_by *by, bool nonblock, char *why, size_t why_size);

/* Is this process under seccomp? Then a call that it has not made before may kill it. */
bool start_is_restricted(void);

/* A fork with these flags; no handler of pthread_atfork() runs. Its result, or -errno. */
long start_fork(unsigned long flags);

#endif
