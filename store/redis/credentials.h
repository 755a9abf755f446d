/*
 * The certificates and the key for TLS to the store, as the files are now: read by a thread, because a file may be on a file
 * system that does not answer, and many authorities take milliseconds. One reading at a time. Everything is called from the
 * event loop, which does not wait for the thread when it ends.
 */
#ifndef DFLOCK_STORE_CREDENTIALS_H
#define DFLOCK_STORE_CREDENTIALS_H

#include <uv.h>

#include "config/config.h"
#include "tls/tls_context.h"

struct credentials;

/* why NULL: credentials_context() is that of the files as they were read now. Comes from the loop, once, unless it was
 * cancelled. */
typedef void credentials_cb(void *arg, const char *why);

/* The configuration is copied. NULL: no memory. */
struct credentials *credentials_new(uv_loop_t *loop, const struct config_tls *config);
/* cb will not be called. Frees it, in the loop. NULL is allowed. */
void credentials_free(struct credentials *c);

/* Reads the files. If a reading is under way, `cb` (may be NULL) waits for that one; then no other cb may wait. 0; or -errno:
 * there is no thread, and cb will not be called. */
int credentials_read(struct credentials *c, credentials_cb *cb, void *arg);
/* The cb that waits will not be called. */
void credentials_cancel(struct credentials *c);

/* As last read without an error; NULL: never. Valid until the next reading ends. */
struct tls_context *credentials_context(const struct credentials *c);

#endif
