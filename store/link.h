/*
 * One connection to the server: libuv's stream, hiredis's reader and writer of the protocol, answers matched with
 * questions in order, and a time limit for each.
 *
 * Not hiredis's own asynchronous connection, because 0.14 (Debian 12) ends the whole program with assert() when a
 * server sends something unexpected on a subscribed connection, never calls back for a PING there, and looks up host
 * names synchronously.
 *
 * Everything is called from the event loop, and events and callbacks come from it. The process must ignore SIGPIPE.
 */
#ifndef DFLOCK_STORE_LINK_H
#define DFLOCK_STORE_LINK_H

#include <stdint.h>
#include <sys/socket.h>
#include <uv.h>

#include "store/reply.h"

struct link;

/* reply NULL: the link was closed before the answer came. It may be an error reply. Valid during the callback. */
typedef void link_reply_cb(void *arg, const redisReply *reply);

struct link_events {
	void (*connected)(void *arg);
	/* A published message; NULL: there are none on this link. */
	void (*message)(void *arg, const char *text, size_t len);
	/* It is of no use any more: closed by the server, silent for too long, nonsense received. Comes at most once;
	 * the owner calls link_close(). why is one line. */
	void (*broken)(void *arg, const char *why);
};

/* Where to: path, if not NULL, is a socket; else address. */
struct link_target {
	const char *path;
	struct sockaddr_storage address;
};

/* Starts connecting. limit_ms: how long connecting and each answer may take. NULL: why says what failed. */
struct link *link_open(uv_loop_t *loop, const struct link_target *target, uint64_t limit_ms,
		       const struct link_events *events, void *arg, char *why, size_t why_size);

/* Sends a command, once `connected` came. 0, or -errno and cb will not be called. */
int link_send(struct link *link, int argc, const char *const *argv, link_reply_cb *cb, void *arg);

/* Inside a link_reply_cb that got a reply: it is the caller's now, to be freed with freeReplyObject(). Once. */
redisReply *link_keep_reply(struct link *link);

/* Calls the callbacks that are still pending, with NULL, and gives the link up; no event comes after this. May be
 * called from any callback of the link. */
void link_close(struct link *link);

#endif
