/*
 * One question to one sentinel, or to one node of a cluster (sentinel.c): where is the master? Everything is called from the event loop, and the answer comes
 * from it, within connect_ms divided by the number of sentinels (but at least 100 ms).
 *
 * A sentinel that is cut off from the others says what it knew last. So the caller must check the server that was named
 * (it says that it is a master, and enough replicas acknowledge), and ask another sentinel next time.
 */
#ifndef DFLOCK_STORE_SENTINEL_H
#define DFLOCK_STORE_SENTINEL_H

#include <hiredis.h>
#include <stddef.h>
#include <uv.h>

#include "config/config.h"
#include "tls/tls_context.h"

#define SENTINEL_HOST_BYTES 256

struct sentinel_question;
/* `host` and `port` of the master, where `host` was checked to be a name or a number; or NULL and `why`, one line with
 * the sentinel's address. Valid during the call. Comes once, unless the question was cancelled; the question is over
 * then. */
typedef void sentinel_cb(void *arg, const char *host, int port, const char *why);

/* Asks config->sentinels[index]. `config` must live as long as the question, and so must `tls`, which may be NULL: no TLS.
 * NULL: out of memory. */
struct sentinel_question *sentinel_ask(uv_loop_t *loop, const struct config_store *config, struct tls_context *tls,
				       size_t index, sentinel_cb *cb, void *arg);
/* cb will not be called. Must not be called once cb was. */
void sentinel_cancel(struct sentinel_question *q);

/* ---- the answer of a node of a cluster (the argument is in sentinel.c). Pure ---- */

#define STORE_SLOT 13907 /* of the hash tag {0}: CRC16("0") modulo 16384 */

enum slots_verdict {
	SLOTS_FOUND,
	SLOTS_NOBODY,   /* no node has the slot */
	SLOTS_NONSENSE, /* this is no answer of a Redis Cluster */
};

/*
 * The address of the slot's master. A node that does not know its own address, or was told to leave it out
 * (cluster-preferred-endpoint-type unknown-endpoint), leaves the host empty: then it is `asked`, the host that was asked.
 */
enum slots_verdict slots_master(const redisReply *reply, const char *asked, char *host, size_t size, int *port);

#endif
