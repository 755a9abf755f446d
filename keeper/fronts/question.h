/* Receives and checks what a program sends: no part of a message counts before it was checked here. */
#ifndef DFLOCK_KEEPER_QUESTION_H
#define DFLOCK_KEEPER_QUESTION_H

#include <stdbool.h>
#include <sys/types.h>

#include "wire/msg.h"
#include "wire/passing.h"

/* A message: the question, and the text that may follow it, ended with NUL. */
struct question {
	struct wire_request request;
	char text[WIRE_TEXT_BYTES];
};

/*
 * Receives one message without blocking. The caller closes all of *came, whatever was returned. Closing one may wait for its file system
 * for ever: use lookup_close(), or a process that may be left behind. Its length, also if that is more than fits into *question (a
 * later version may be longer), with one descriptor or none; 0 if the peer has gone or sent an empty one; -EAGAIN,
 * -EINTR: nothing yet; -EBADMSG: more than one descriptor; -EMFILE: this process's own table is full.
 */
ssize_t question_receive(int socket, struct question *question, struct passing *came);

enum question_kind {
	QUESTION_MALFORMED,     /* disconnect */
	QUESTION_OTHER_VERSION, /* refuse, and say so */
	QUESTION_LOCK,          /* every field is in range; a descriptor came with it */
	QUESTION_BEFORE,        /* `from` is in range */
	/* With a text, if its operation has one. Of another version: WIRE_STOP, and the fields behind `op` mean nothing. */
	QUESTION_CONTROL,
};

/* What is allowed of each operation (wire/msg.h); of one that there is not: QUESTION_MALFORMED. */
struct question_row {
	enum question_kind kind;                        /* QUESTION_LOCK alone carries a descriptor */
	bool text;                                      /* a text follows the struct */
	bool (*ok)(const struct wire_request *request); /* the limits of its fields; NULL: no field counts */
	bool everyone;                                  /* may ask; else root and the keeper's user */
	bool gives_file;                                /* the answer carries a memfd */
};
const struct question_row *question_row(unsigned op);

/* Classifies a message of n bytes. has_fd: a descriptor came along. Pure. */
enum question_kind question_check(const struct wire_request *request, ssize_t n, bool has_fd);

#endif
