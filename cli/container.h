/*
 * The end of a container. When the first process of a pid namespace ends, the kernel kills all others at once, keepers
 * too, and what these had stays taken for other hosts for ttl_ms. So `dflock run` as the first process, or with --init,
 * stays while its job runs; when the job has ended, it ends the processes that are left and has the keepers give
 * everything back.
 */
#ifndef DFLOCK_CLI_CONTAINER_H
#define DFLOCK_CLI_CONTAINER_H

#include <stdbool.h>

#define CONTAINER_PATIENCE_S  5 /* for processes that the job left; the default */
#define CONTAINER_KILL_S      2 /* for the end of those that were killed */
#define CONTAINER_GIVE_BACK_S 5 /* for keepers */

/* Is this process the first one of its pid namespace? */
bool container_is_first(void);

/* Before the job is started: from here on orphans of the job become children of this process. 0 or -errno. */
int container_begin(void);

/*
 * When the job has ended. Concerns all processes of the pid namespace, or, if this process is not the first one, those
 * that descend from it. If there is no keeper among them, nothing happens. Else all but keepers, and what keepers
 * started, get SIGTERM, and SIGKILL after patience_s seconds; then the keepers get SIGTERM and are waited for. Takes up
 * to patience_s + CONTAINER_KILL_S + CONTAINER_GIVE_BACK_S. One line says so if locks may not have been given back.
 * Reaps all children. The caller has blocked the signals that would end it.
 */
void container_end(int patience_s);

/*
 * Runs argv, found in PATH, and waits for its end. Signals that other processes send to this one are passed on to the
 * job; those of a terminal reach it anyway. Other children of this process, which may have been there before, are reaped.
 * 0 with *status as waitpid(2) gives it, or -errno: it could not be executed. stay_blocked: afterwards the signals stay
 * blocked, so that none ends this process before it has done what is left to do; it is to end then.
 */
int job_run(char *const argv[], bool stay_blocked, int *status);

/* The exit status of a job that exited. If a signal ended it, that signal ends this process too, without a core; the
 * first process of a pid namespace gets 128 and the signal's number, as in a shell. */
int job_exit(int status);

#endif
