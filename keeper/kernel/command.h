/*
 * The command line of a process, for people. The kernel reads it from the memory of the process, which may wait for a
 * file server; so an errand reads it, and the short name takes its place if the errand is too slow.
 */
#ifndef DFLOCK_KEEPER_COMMAND_H
#define DFLOCK_KEEPER_COMMAND_H

#include <sys/types.h>

#define COMMAND_BYTES   256
#define COMMAND_WAIT_MS 100

/* procfd: /proc/PID. out: cut off after COMMAND_BYTES; UTF-8 without control characters; "" if there is nothing. */
void command_read(int procfd, char out[COMMAND_BYTES]);

#define COMM_BYTES 16

/* The short name of a process (/proc/PID/comm): 15 bytes of its choice, never its arguments. Waits for nothing: the kernel
 * reads it from the task itself, and not from the memory of the process. Printable (text_make_printable()); "" if the process is
 * gone. */
void comm_read(pid_t pid, char out[COMM_BYTES]);

#endif
