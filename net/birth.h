/*
 * How the first supervisor comes to be: forked by the process that will become the job, before that has the filter; then it is
 * nobody's child that the job could wait for, in a session of its own, with none of the job's descriptors.
 *
 * The two speak over a socket of messages: the supervisor gets the listener of chain.h's child, and answers with a
 * line; gets the job's listener, and answers with a line when both supervisors serve. An empty line: all is well. Any other one says why
 * the net cannot be, and the supervisor ends; it may come before the first question.
 */
#ifndef DFLOCK_NET_BIRTH_H
#define DFLOCK_NET_BIRTH_H

#define BIRTH_LINE_BYTES 512

/* program: argv[0] of the supervisors. `socket`: the supervisor's end, which stays open here. 0 or -errno. */
int birth_give(char *program, int socket);

/* The supervisor's next line. False: it has died. */
int birth_hear(int socket, char line[BIRTH_LINE_BYTES]);

#endif
