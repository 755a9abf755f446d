/*
 * The keeper's parent: restarts a keeper that died, kills a keeper that hangs (pulse.c), and does not wait
 * for the end of a killed keeper that cannot end (leftover.c). It is locked into memory, and its only I/O while the keeper lives is
 * a look at /proc/PID/stat once a second. If it is killed, the keeper starts a new one (orphan.c).
 *
 * The parent looks at the table of leases (freeze.h) at least once a second, and at once when table_notify() tells it
 * to.
 */
#ifndef DFLOCK_KEEPER_SUPERVISE_H
#define DFLOCK_KEEPER_SUPERVISE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "procfs/procfs.h"

/* How a keeper ends. */
enum keeper_exit {
	KEEPER_EXIT_IDLE = 0,   /* no program needs it, or it was told to end */
	KEEPER_EXIT_CONFIG = 1, /* it cannot start, and a further attempt would fail, too */
	/* As IDLE, but the store has not confirmed that all leases were given back. dflock reads it (cli/container.c). */
	KEEPER_EXIT_UNCONFIRMED = 3,
	KEEPER_EXIT_TWICE = 4, /* another keeper uses the host's id: the next keeper is another host */
};

/* A second signal to end counts as a second one only if it comes later than this. */
#define KEEPER_AGAIN_MS 500

struct manager;
struct table;

/* What a keeper's process gets. */
struct supervised {
	struct table *table; /* of leases, shared with the parent; the process's own view of it */
	int parent_fd;       /* ends when the parent has died */
	int ready_fd;        /* as below; -1 for all keepers but the first */
	uint32_t *serves;    /* shared with the parent: supervise_serves() */
};

struct supervise {
	const char *runtime_dir;
	int dir_fd;              /* the same, open; keeper.lock is held */
	struct manager *manager; /* is told of the parent and the first keeper; NULL: none */
	int ready_fd; /* gets an error, if there is one; closed when the first keeper has started; -1: none */
	/* Runs a keeper until it ends, in a process of its own; returns an enum keeper_exit. SIGTERM and SIGINT are
	 * blocked when it is called. */
	int (*run)(void *arg, const struct supervised *keeper);
	void *arg;
};

/*
 * Runs keepers until one ends by itself; returns its enum keeper_exit. Where no process can be made, it tries again while there are leases,
 * whose holders it stops in time. SIGTERM and SIGINT are passed on. A keeper
 * that dies after the first such signal is started again, since it may have been waiting for locks to end; a keeper
 * that dies after the second is not. SIGQUIT comes from a service manager that starts the next keeper at once: it
 * counts as the second signal, and the keeper leaves its socket, so that programs wait for the next one. SIGHUP is passed on.
 */
int supervise(const struct supervise *options);

/* In the keeper's process: programs are served. The service manager hears of it. */
void supervise_serves(const struct table *table, uint32_t *serves);

/* Must this part of the parent's memory stay resident, so that it can stop processes? program: the path of the program's file. Pure. */
bool supervise_needs(const struct procfs_map *map, const char *program);

/* --- pulse.c: does the keeper's loop turn, as far as the parent can see? Pure: time and counter are arguments. --- */

#define PULSE_CHECK_MS 1000
#define PULSE_QUICK_MS 100 /* where leases run out soon */
/* A loop that did not turn once in this time hangs, even if it may only wait for a processor. */
#define PULSE_HUNG_MS 5000

struct pulse {
	int64_t alive;     /* the keeper's counter, when it was looked at last; -1: not yet */
	int64_t looked_ns; /* and when that was */
	int64_t since_ns;  /* the loop was seen to turn last */
	int64_t still_ns;  /* time since then in which the parent ran (not on a suspended machine) */
};

/* A keeper was started. */
void pulse_start(struct pulse *pulse, int64_t now_ns);
/* How often to look, in ms: a loop that stands still is noticed two periods later than it might be. patience_ns:
 * table_patience_ns() since pulse->since_ns. */
int pulse_period_ms(int64_t patience_ns);
/*
 * Looks: does the loop hang? alive: the counter now. patience_ns: as before this look. waits: the loop only waits for a
 * processor. It then gets more time than the leases may have: killing it would not help, since the next keeper would
 * have no processor either.
 */
bool pulse_hangs(struct pulse *pulse, int64_t alive, int64_t now_ns, int64_t patience_ns, bool waits);

/*
 * --- leftover.c ---
 *
 * A keeper that was killed and does not end: one of its threads waits in the kernel (state D) for a file system that does not
 * answer, and SIGKILL takes effect only when that wait is over. The keeper never runs another instruction of its own,
 * so the next keeper need not wait for it. But all that it had open stays open until the wait is over:
 *
 *   its connections to programs   a program that waits for an answer would wait as long
 *   its listening socket          so would a program whose connection was not accepted
 *   kernel locks of its probes    no program of this host would get such a lock
 *
 * The parent ends these from outside, with copies of the descriptors (pidfd_getfd). It cannot end two things:
 * descriptors that programs had passed, whose locks live on as long, and locks of probes on file systems that are not
 * local. It also shuts down connections to the store; what the keeper sent before may arrive at any time.
 */

/*
 * Stops waiting for the end of such a process, a child of the caller, and cuts it off. Nothing of it runs any more, so
 * the next keeper may start: this one cannot write to the table of leases, and what it sent to the store may arrive
 * late, as from every keeper that died. Does not block: it touches only files of local file systems. Logs that it
 * does so, or that the process cannot be cut off (the kernel is older than Linux 6.9).
 */
void leftover_leave(pid_t pid);

/* Reaps the processes that have ended meanwhile. */
void leftover_reap(void);

#endif
