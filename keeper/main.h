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

/* orphan.c: from now on makes sure that there is a parent. 0 or -errno. */
int orphan_watch(struct keeper *k);
/* Closes its handles. */
void orphan_close(struct keeper *k);

#endif
