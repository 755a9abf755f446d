/* The short name of a process (/proc/PID/comm): 15 bytes of its choice, never its arguments. Waits for nothing: the kernel
 * reads it from the task itself, and not from the memory of the process. */
#ifndef DFLOCK_KEEPER_COMM_H
#define DFLOCK_KEEPER_COMM_H

#include <sys/types.h>

#define COMM_BYTES 16

/* Printable (text_make_printable()); "" if the process is gone. */
void comm_read(pid_t pid, char out[COMM_BYTES]);

#endif
