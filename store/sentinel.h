/*
 * One question to one sentinel: where is the master? Everything is called from the event loop, and the answer comes
 * from it, within connect_ms divided by the number of sentinels.
 *
 * A sentinel that is cut off from the others says what it knew last, and cannot know better: who asks must check what
 * it finds there (it says that it is a master, and enough replicas acknowledge), and ask another sentinel next time.
 */
#ifndef DFLOCK_STORE_SENTINEL_H
#define DFLOCK_STORE_SENTINEL_H

#include <stddef.h>
#include <uv.h>

#include "config/config.h"

#define SENTINEL_HOST_BYTES 256

struct sentinel_question;
/* host and port of the master, host checked: a name or a number; or NULL and why, one line with the sentinel's address.
 * Comes once, unless the question was cancelled. */
typedef void sentinel_cb(void *arg, const char *host, int port, const char *why);

/* Asks the sentinel of that index. NULL: out of memory. */
struct sentinel_question *sentinel_ask(uv_loop_t *loop, const struct config_store *config, size_t index,
				       sentinel_cb *cb, void *arg);
/* cb will not be called. Not after it was. */
void sentinel_cancel(struct sentinel_question *q);

#endif
