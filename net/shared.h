/*
 * The memory that both supervisors have: the calls that were received and have no answer so far. The kernel writes a call there
 * in the same step in which it counts as received, so no call gets lost with the supervisor that received it.
 *
 * The first supervisor writes here; the second one only reads, until the first one has ended.
 */
#ifndef DFLOCK_NET_SHARED_H
#define DFLOCK_NET_SHARED_H

#include <fcntl.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* More calls than this wait unreceived, in the order in which they came. */
#define SHARED_CALLS 16384

/* A call that was received. notif.pid 0: free. */
struct caught {
	struct seccomp_notif notif;
	/* Of F_GETLK: the question, before its place in the program's memory gets the answer. */
	struct flock64 question;
	bool has_question;
};

struct shared {
	/* Descriptor 2 of the job at its start. Lines go there, and not to what a program may have opened under that number. */
	bool has_stderr;
	dev_t stderr_dev;
	ino_t stderr_ino;
	struct caught calls[SHARED_CALLS];
};

/* The memory of this process, NULL before shared_make() or shared_map(). */
extern struct shared *shared;

/* Makes it, and maps it: a new descriptor or -errno. */
int shared_make(void);
/* Maps what another process has made. 0 or -errno. */
int shared_map(int fd);

/* A free place, filled with zeros; NULL: there is none. One thread at a time. */
struct caught *shared_find(void);
/* The call has its answer, or has ended. Any thread. */
void shared_free(struct caught *caught);
/* The next call from *at on that has no answer, or NULL. Begin with 0. */
struct caught *shared_next(unsigned *at);

#endif
