/* The process that becomes the job: puts itself under the net, and executes the job. */
#ifndef DFLOCK_NET_LAUNCH_H
#define DFLOCK_NET_LAUNCH_H

/* Exit statuses, as those of `dflock run`. */
enum { LAUNCH_FAILED = 125, LAUNCH_CANNOT_EXECUTE = 126, LAUNCH_NOT_FOUND = 127 };

/* program: argv[0] of the supervisors, the absolute path of this program. preload: LD_PRELOAD for the job, or "". Returns only if
 * the job was not started: the exit status, when a line was written. */
int launch(char *program, const char *preload, char *const job[]);

#endif
