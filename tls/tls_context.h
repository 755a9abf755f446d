/*
 * What all TLS connections to the store share: the authorities that are trusted, this host's certificate and key, and
 * the rules: TLS 1.2 or newer, the server's certificate is always verified, no renegotiation. Blocks on no file but
 * OpenSSL's own configuration (openssl.cnf, at the first call); takes milliseconds where there are many authorities.
 * May be called in any thread, one at a time for each context.
 */
#ifndef DFLOCK_TLS_CONTEXT_H
#define DFLOCK_TLS_CONTEXT_H

#include <stdbool.h>

#include "tls/tls_files.h"

struct tls_context;

/* NULL: `why` has one line. The names in `config` are for messages. */
struct tls_context *tls_context_new(const struct config_tls *config, const struct tls_files *files,
				    char why[TLS_LINE_BYTES]);
/* Reads the files, too, and gives -errno as tls_files_read(). */
int tls_context_load(const struct config_tls *config, struct tls_context **context, char why[TLS_LINE_BYTES]);
/* Connections that were made with it keep what they need. NULL is allowed. */
void tls_context_free(struct tls_context *context);

/* This host's certificate: how long it is still valid by this machine's clock, in seconds; negative: no longer. False: there
 * is none. */
bool tls_context_left_s(const struct tls_context *context, int64_t *left_s);

/* For tls_stream.c. */
struct ssl_ctx_st *tls_context_ssl(struct tls_context *context);

#endif
