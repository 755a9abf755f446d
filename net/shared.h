/*
 * The memory that both supervisors have: the calls that were received and have no answer so far. The kernel writes a call there
 * in the same step in which it counts as received, so no call gets lost with the supervisor that received it.
 *
 * Its mutexes are robust: when the thread that has one ends, however that happens, the kernel gives it to the next thread that
 * wants it. supervisor.h says how the second supervisor takes over by them.
 */
#ifndef DFLOCK_NET_SHARED_H
#define DFLOCK_NET_SHARED_H

#include <fcntl.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* More calls than this wait unreceived, in the order in which they came. */
#define SHARED_CALLS 16384
/* Of one user, where root's supervisors serve several. */
#define SHARED_EACH (SHARED_CALLS / 4)

/* A call that was received. */
struct caught {
	/* Of the thread that receives or decides the call. What follows may be read and written with it only. */
	pthread_mutex_t mine;
	struct seccomp_notif notif; /* notif.data.arch 0: there is no call */
	/* Of F_GETLK: the question, before its place in the program's memory gets the answer. */
	struct flock64 question;
	bool has_question;
	uid_t uid; /* shared_count() */
};

struct shared {
	pthread_mutex_t first;  /* of the first supervisor's main thread, until it ends */
	pthread_mutex_t places; /* of the thread that looks at all places */
	/* Descriptor 2 of the job at its start. Lines go there, and not to what a program may have opened under that number. */
	bool has_stderr;
	dev_t stderr_dev;
	ino_t stderr_ino;
	unsigned used; /* so many of these have been used; written with `places` */
	struct caught calls[SHARED_CALLS];
};

_Static_assert(sizeof(struct shared) < 3000000, "net/main.c says how large it is");

/* The memory of this process, NULL before shared_make() or shared_map(). */
extern struct shared *shared;

/* Makes it, and maps it: a new descriptor or -errno. */
int shared_make(void);
/* Maps what another process has made. 0 or -errno. */
int shared_map(int fd);

/* Waits for a mutex of this memory, or for the end of the thread that has it. */
void shared_lock(pthread_mutex_t *mutex);

/* A free place, filled with zeros, whose mutex this thread has from now on; NULL: there is none, or no memory for it. */
struct caught *shared_find(void);
/* Counts a call that was received as this user's. False: the user has more than its share. */
bool shared_count(struct caught *caught, uid_t uid);
/* The call has its answer, or has ended, or there is none: its place is free, and the mutex is given up. */
void shared_free(struct caught *caught);
/* The next place from *at on with a call that a thread left when it ended, or, if `busy`, that a thread has; NULL: no more. Begin with 0.
 * Its mutex is not taken. */
struct caught *shared_next(unsigned *at, bool busy);
/* Waits for the end of the thread that has the place, and takes its mutex. False: there is no call any more, and no mutex was taken. */
bool shared_inherit(struct caught *caught);

#endif
