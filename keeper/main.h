/* The keeper's life: what main.c and the modules ask of keeper.c. */
#ifndef DFLOCK_KEEPER_MAIN_H
#define DFLOCK_KEEPER_MAIN_H

#include <stdbool.h>

#include "keeper/keeper.h"

struct keeper_options {
	const char *config;      /* absolute path */
	const char *runtime_dir; /* absolute path */
	int dir_fd;              /* the same, open; keeper.lock is held */
	int lock_fd;             /* keeper.lock; parent and keeper have the same description of it */
	int ready_fd;            /* closed when it serves; an error goes there first; -1: none */
	bool foreground, debug;
	struct table *table; /* of leases; shared with the parent */
	int parent_fd;       /* ends when the parent has died */
};

enum keeper_exit {
	KEEPER_EXIT_IDLE = 0,   /* nobody needs it, or it was told to end */
	KEEPER_EXIT_CONFIG = 1, /* it cannot start, and would not the next time either */
};

#define KEEPER_AGAIN_MS                                                                                                \
	500 /* a second signal to end means another thing than the first if it comes later than this                   \
	     */

/* Runs a keeper until it ends; returns an enum keeper_exit. SIGTERM and SIGINT are blocked when it is called. */
int keeper_run(const struct keeper_options *options);

/* Ends the loop; leases that are in use stay in the table. */
void keeper_end(struct keeper *k, const char *why);
/* Takes over the configuration and frees the old one. */
void keeper_replace_config(struct keeper *k, struct config *config);

#endif
