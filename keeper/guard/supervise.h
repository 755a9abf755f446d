/*
 * The keeper's parent: restarts a keeper that died, kills one that hangs (pulse.h), and does not wait for the end of
 * one that was killed and cannot end (leftover.h). It is locked into memory, and its only I/O while the keeper lives is
 * a look at /proc/PID/stat once a second. If it is killed, the keeper starts a new one (orphan.c).
 *
 * The parent looks at the table of leases (freezer.h) at least once a second, and at once when table_notify() tells it
 * to.
 */
#ifndef DFLOCK_KEEPER_SUPERVISE_H
#define DFLOCK_KEEPER_SUPERVISE_H

#include <stdbool.h>
#include <stdint.h>

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
 * Runs keepers until one ends by itself; returns its enum keeper_exit. SIGTERM and SIGINT are passed on. A keeper
 * that dies after the first such signal is started again, since it may have been waiting for locks to end; a keeper
 * that dies after the second is not. SIGQUIT comes from a service manager that starts the next keeper at once: it
 * counts as the second signal, and the keeper leaves its socket, so that programs wait for the next one. SIGHUP is passed on.
 */
int supervise(const struct supervise *options);

/* In the keeper's process: programs are served. The service manager hears of it. */
void supervise_serves(const struct table *table, uint32_t *serves);

/* Must this part of the parent's memory stay resident, so that it can stop processes? program: the path of the program's file. Pure. */
bool supervise_needs(const struct procfs_map *map, const char *program);

#endif
