/*
 * Bytes to and from a server: libuv's stream, and TLS (tls/tls_stream.h) if the target says so. link.c is the only user, and
 * knows no difference between the two.
 *
 * Order of calls: channel_open(); then the event `connected`, after which channel_write() may be used, or `broken`;
 * channel_close() once in every case. Everything but channel_send_now() is called from the event loop, and events come from it,
 * none from inside of a call. No time limit: the owner has one. The process must ignore SIGPIPE.
 */
#ifndef DFLOCK_STORE_CHANNEL_H
#define DFLOCK_STORE_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <uv.h>

#include "tls/tls_context.h"

struct channel;

struct channel_events {
	/* With TLS: the server has shown a certificate for `name` of an authority that is trusted. */
	void (*connected)(void *arg);
	/* Bytes came, at most 64 KB at a time; valid during the call. */
	void (*bytes)(void *arg, const char *bytes, size_t len);
	/* The channel is of no use any more. Comes at most once; `why` is one line. */
	void (*broken)(void *arg, const char *why);
};

/*
 * Where to: `path`, if not NULL, is a socket's; else `address` counts. link.c sets that from host and port, unless it has a family:
 * of several addresses of the host, the one of this attempt. tls NULL: none; else the server's certificate must be for `name`. The
 * pointers must live as long as the call of channel_open().
 */
struct channel_target {
	const char *path, *host;
	int port;
	unsigned attempt;
	struct sockaddr_storage address;
	struct tls_context *tls;
	const char *name;
};

/* Starts connecting. `events` are copied; `arg` is for them. 0, or what libuv says. */
int channel_open(uv_loop_t *loop, const struct channel_target *target, const struct channel_events *events, void *arg,
		 struct channel **out);

/* Takes `bytes` over and frees them with `release`, also if it fails. 0 or -errno: then the channel is of no use. */
int channel_write(struct channel *ch, char *bytes, size_t len, void (*release)(void *bytes));

/*
 * Sends these bytes at once, from any thread, while its caller keeps the loop from calling channel_write() and
 * channel_close(). Never waits. 0: the socket has all of them. Else -errno, and the server will not execute them: -EAGAIN
 * if the loop has to send them (TLS; something else waits to be written; no room), or the channel is of no use.
 */
int channel_send_now(struct channel *ch, const char *bytes, size_t len);

/* For a time limit that has passed before `connected`: what has not come about. */
const char *channel_awaits(const struct channel *ch);

/* No event comes after this. Frees it, in the loop. */
void channel_close(struct channel *ch);

#endif
