/*
 * The starter: the process between a program and the keeper that it starts (start.c has the picture).
 */
#ifndef DFLOCK_SHIM_STARTER_H
#define DFLOCK_SHIM_STARTER_H

#include <stdbool.h>
#include <sys/types.h>

/* What the new processes need; filled before the clone. */
struct start_plan {
	const char *config, *library;
	const char *dir; /* DFLOCK_RUNTIME_DIR; NULL: the keeper finds or makes one by the rule of rundir.h */
	bool debug;
	uid_t uid;
	gid_t gid;
};

/* A fork with these flags; no handler of pthread_atfork() runs. Its result, or -errno. */
long starter_fork(unsigned long flags);

/* The starter's whole life, in the process that starter_fork() made with all signals blocked. `report`: the connection
 * to the program, which gets one line if no keeper serves. */
_Noreturn void starter_run(const struct start_plan *plan, int report);

#endif
