/*
 * Tries everything that the net needs on a child that is thrown away, so that a job is not started where its lock calls would
 * fail: the filter, its listener, and what is read of a thread. Two processes take part: the one that will become the job makes the child,
 * and the future supervisor answers the child's call.
 */
#ifndef DFLOCK_NET_CHAIN_H
#define DFLOCK_NET_CHAIN_H

/* The child's end with another error than one of the filter: chain_try(). Not an errno. */
#define CHAIN_FAILED 255

/* Makes the child, which sends its listener to the socket, and waits for its end. 0, the error of filter_install() as a positive number, or
 * CHAIN_FAILED: the supervisor knows why. */
int chain_try(int socket);

/* Answers the child's call. NULL, or why the net cannot be, in one line. */
const char *chain_answer(int listener);

/* A listener goes from one process to another over a socket. 0 or -errno; and the listener, which is closed by exec, or -1. */
int chain_send(int socket, int listener);
int chain_receive(int socket);

#endif
