/* Receives and checks what a program sends: nothing of a message counts before it was through here. */
#ifndef DFLOCK_KEEPER_QUESTION_H
#define DFLOCK_KEEPER_QUESTION_H

#include <stdbool.h>
#include <sys/types.h>

#include "wire/msg.h"

/*
 * Receives one message without blocking. Its length, also if that is more than fits into *request (a later version
 * may be longer); 0 if the peer has gone or sent an empty one. *fd is the one descriptor that came with it (the caller
 * closes it), or -1. On failure, and with 0, what came is closed: -EAGAIN, -EINTR: nothing yet; -EBADMSG: more than one
 * descriptor; -EMFILE: our own table is full.
 */
ssize_t question_receive(int socket, struct wire_request *request, int *fd);

enum question_kind {
	QUESTION_MALFORMED,     /* disconnect */
	QUESTION_OTHER_VERSION, /* refuse, and say so */
	QUESTION_LOCK,          /* every field is in range; a descriptor came with it */
	QUESTION_BEFORE,        /* `from` is in range */
	QUESTION_CONTROL,
};

/* What is this message of n bytes? has_fd: a descriptor came along. Pure. */
enum question_kind question_check(const struct wire_request *request, ssize_t n, bool has_fd);

#endif
