/* The keeper's life: what main.c and the modules ask of keeper.c and orphan.c. */
#ifndef DFLOCK_KEEPER_MAIN_H
#define DFLOCK_KEEPER_MAIN_H

#include <stdbool.h>

#include "keeper/guard/supervise.h"
#include "keeper/leases/keeper.h"

struct keeper_options {
	const char *config;      /* absolute path */
	const char *runtime_dir; /* absolute path */
	int dir_fd;              /* the same, open; keeper.lock is held */
	int lock_fd;             /* keeper.lock; parent and keeper have the same description of it */
	int ready_fd;            /* closed when it serves; an error goes there first; -1: none */
	bool foreground;
	struct table *table; /* these are the parent's: supervise.h */
	int parent_fd;
	uint32_t *serves;
};

/* Runs a keeper until it ends; returns an enum keeper_exit. SIGTERM and SIGINT are blocked when it is called. */
int keeper_run(const struct keeper_options *options);

/*
 * names.c: the directory of the files that stand for locks without a file of their own (`dflock lock`): RUNTIME_DIR/names. Made if it is
 * missing. For a system keeper all users make files there, and none removes those of another (mode 1777): a lock name is the same for
 * all users. Returns its path as the kernel has it, which the caller frees; or NULL with errno set: ENOTDIR, EPERM if something else
 * has the name. At the keeper's start.
 */
char *names_make(int dir_fd, bool system);

/* runevent.c: `dflockd --run-event LIMIT_MS COMMAND...`. argv: the limit and the command. Says on descriptor 1, in one line, what went
 * wrong, if anything did; returns the exit status. It becomes the reaper of its descendants, so it needs a process of its own. */
int runevent_main(int argc, char **argv);

/* orphan.c: from now on makes sure that there is a parent. 0 or -errno. */
int orphan_watch(struct keeper *k);
/* Closes its handles. */
void orphan_close(struct keeper *k);

#endif
