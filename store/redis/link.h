/*
 * One connection to a server: looking its name up, a channel of bytes (channel.h), hiredis's reader and writer of the protocol,
 * answers matched with commands in order, and a time limit for each.
 *
 * Not hiredis's own asynchronous connection: version 0.14 (Debian 12) ends the whole program with assert() when a
 * server sends something unexpected on a subscribed connection, never calls back for a PING there, and looks up host
 * names synchronously.
 *
 * Order of calls: link_open(); then the event `connected`, after which link_send() may be used, or `broken`;
 * link_close() once in every case. Everything is called from the event loop, and events and callbacks come from it; the
 * only callbacks that come from inside a call are those that link_close() ends. The process must ignore SIGPIPE.
 */
#ifndef DFLOCK_STORE_LINK_H
#define DFLOCK_STORE_LINK_H

#include <pthread.h>
#include <stdint.h>
#include <uv.h>

#include "store/redis/channel.h"
#include "store/redis/explain.h"

struct link;
struct link_shot;

/* Comes exactly once for each command that was sent. `reply` is valid during the callback, and may be an error reply.
 * NULL: the link was closed before the answer came. */
typedef void link_reply_cb(void *arg, const redisReply *reply);

struct link_events {
	void (*connected)(void *arg);
	/* A published message came; the texts are valid during the call. NULL: this link does not subscribe. */
	void (*message)(void *arg, const char *channel, const char *text, size_t len);
	/* The link is of no use any more: closed by the server, silent for too long, nonsense received. Comes at most
	 * once; the owner calls link_close(). `why` is one line. */
	void (*broken)(void *arg, const char *why);
};

/*
 * Starts connecting to the target, which must live as long as the link: by target->host and port if it has neither a path nor an
 * address, and then sets its address. `limit_ms`: how long connecting (with the look-up, and with TLS its handshake) and each
 * answer may take. `events` are copied; `arg` is for them. NULL: no memory.
 */
struct link *link_open(uv_loop_t *loop, struct channel_target *target, uint64_t limit_ms,
		       const struct link_events *events, void *arg);

/* Sends a command, whose words are copied. 0, or -errno, and cb will not be called: -ENOTCONN before `connected` and
 * after `broken`, -ENOMEM, or what the system said. */
int link_send(struct link *link, int argc, const char *const *argv, link_reply_cb *cb, void *arg);

/*
 * A command that is prepared by the loop and sent later, perhaps by another thread. What is sent from both sides must
 * be whole, and answers are matched with commands in order. So the loop, too, holds the gate's mutex while it writes to a
 * link that the gate leads to and while it changes what waits for answers, and no longer.
 *
 * link_shot_fire() may be called from any thread, once, between link_gate_init() and link_gate_close() for good; all
 * others in the loop. The gate leads to a link from link_gate_open() to link_gate_close(), which comes before
 * link_close().
 */
struct link_gate {
	pthread_mutex_t mutex;
	struct link *link; /* under the mutex; NULL: closed */
};
void link_gate_init(struct link_gate *gate);
void link_gate_open(struct link_gate *gate, struct link *link);
void link_gate_close(struct link_gate *gate);
void link_gate_destroy(struct link_gate *gate);

/* The words are copied. NULL: no memory. */
struct link_shot *link_shot_new(int argc, const char *const *argv, link_reply_cb *cb, void *arg);
/* 0: it is sent, and `cb` will be called by the loop, as if link_send() had sent it. Else -errno: the server will not
 * execute it, and `cb` will not be called. Never waits, but for the gate. No timer runs for it before the next
 * link_send(). */
int link_shot_fire(struct link_shot *shot, struct link_gate *gate);
/* Not while another thread may be about to fire it. */
void link_shot_free(struct link_shot *shot);

/* Inside a link_reply_cb that got a reply: hands the reply over to the caller, which frees it with freeReplyObject().
 * At most once for each reply. */
redisReply *link_keep_reply(struct link *link);

/* Calls the callbacks that are pending, with NULL, and frees the link (in the loop); no event comes after this. May be
 * called from any callback of the link. */
void link_close(struct link *link);

#endif
