/*
 * A connection of `dflock doctor` to a server or a sentinel of its own, with TLS if the configuration says so: one question, one
 * answer. Blocks, for at most connect_ms for the connection and for each answer (looking a name up takes what it takes).
 */
#ifndef DFLOCK_CLI_DIAL_H
#define DFLOCK_CLI_DIAL_H

#include <hiredis.h>

#include "config/config.h"
#include "tls/tls_context.h"

#define DIAL_WHY_BYTES TLS_LINE_BYTES

struct dial;

/* host NULL: the configuration's socket. tls NULL: none. NULL: why says what was wrong. */
struct dial *dial_open(const struct config_store *store, const char *host, int port, struct tls_context *tls,
		       char why[DIAL_WHY_BYTES]);
/* One question, in hiredis's format. The caller frees the reply. NULL, also after an error reply: why says what was wrong. */
redisReply *dial_ask(struct dial *d, char why[DIAL_WHY_BYTES], const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Of the connection, for its life. NULL: no TLS. */
const struct tls_stream *dial_tls(const struct dial *d);
/* NULL is allowed. */
void dial_close(struct dial *d);

#endif
