/*
 * What all TLS connections to the store share: the authorities that are trusted, this host's certificate and key, and
 * the rules: TLS 1.2 or newer, the server's certificate is always verified, no renegotiation. Blocks on no file but
 * OpenSSL's own configuration (openssl.cnf, at the first call); takes milliseconds where there are many authorities.
 * May be called in any thread, one at a time for each context.
 */
#ifndef DFLOCK_TLS_CONTEXT_H
#define DFLOCK_TLS_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/config.h"

#define TLS_LINE_BYTES 512 /* what is wrong, for people */

struct tls_context;

/* What the files have: PEM, each len bytes and a NUL; NULL: not configured. */
struct tls_files {
	char *ca, *certificate, *key;
	size_t ca_len, certificate_len, key_len;
};

/* NULL: `why` has one line. The names in `config` are for messages. */
struct tls_context *tls_context_new(const struct config_tls *config, const struct tls_files *files,
				    char why[TLS_LINE_BYTES]);
/*
 * Reads the files that the configuration names, too: anew for new connections, so that renewed ones count without a restart. Blocks on the
 * file system: the keeper calls it in a thread. 0; or -errno with one line in `why`: -EACCES if a file may not be read, -EINVAL for
 * contents, also if every user can read the key.
 */
int tls_context_load(const struct config_tls *config, struct tls_context **context, char why[TLS_LINE_BYTES]);
/* Connections that were made with it keep what they need. NULL is allowed. */
void tls_context_free(struct tls_context *context);

/* This host's certificate: how long it is still valid by this machine's clock, in seconds; negative: no longer. False: there
 * is none. */
bool tls_context_left_s(const struct tls_context *context, int64_t *left_s);

/* For tls_stream.c. */
struct ssl_ctx_st *tls_context_ssl(struct tls_context *context);

#endif
