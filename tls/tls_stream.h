/*
 * One TLS connection to a server, without a socket: bytes from the server go in, bytes for the server come out, and plain
 * text on the other side. Nothing here blocks or knows a loop; the owner moves the bytes (store/redis/link.c, cli/doctor_dial.c).
 *
 * Order of calls: tls_stream_new(); tls_stream_shake() once, and after each tls_stream_feed() until it returns 1; from then on
 * tls_stream_write(), and tls_stream_read() after each feed until it returns 0. After each of these calls
 * tls_stream_take() may have bytes for the server, also after a failure (an alert, so that the server's log says why).
 * After -EPROTO or -EPIPE nothing but take, why and free.
 *
 * No call waits for the opposite direction: what is written is encrypted at once, since the peer cannot renegotiate, and an update of
 * keys is answered inside of tls_stream_read(). Memory is bounded: one record, and what was fed since the last read (feed
 * 64 KB at a time). A peer that sends and sends without a byte of plain text is given up (TLS_STREAM_IDLE_BYTES).
 */
#ifndef DFLOCK_TLS_STREAM_H
#define DFLOCK_TLS_STREAM_H

#include <stddef.h>
#include <sys/types.h>

#include "tls/tls_context.h"

/* So much may come in a handshake, and later between two bytes of plain text. A handshake is some 5 kB; OpenSSL accepts
 * 100 kB of certificates. */
#define TLS_STREAM_IDLE_BYTES (256u << 10)

struct tls_stream;

/* host: the server's name or number, which its certificate must have. The context may be freed at any time after this. NULL:
 * no memory left. */
struct tls_stream *tls_stream_new(struct tls_context *context, const char *host);
void tls_stream_free(struct tls_stream *t);

/* Bytes from the server, copied. 0; -EPROTO: they are no TLS, or too many. */
int tls_stream_feed(struct tls_stream *t, const char *bytes, size_t len);
/* Goes on with the handshake. 1: it is done, and the server is the one that was meant. 0: it needs bytes of the server.
 * -EPROTO. */
int tls_stream_shake(struct tls_stream *t);
/* Plain text: how many bytes. 0: there are none now. -EPIPE: the server said that no more will come. -EPROTO. */
ssize_t tls_stream_read(struct tls_stream *t, char *bytes, size_t size);
/* Encrypts all of it. 0 or -EPROTO. */
int tls_stream_write(struct tls_stream *t, const char *bytes, size_t len);
/* How many bytes wait for the server, and taking them: at most `size`. */
size_t tls_stream_pending(const struct tls_stream *t);
size_t tls_stream_take(struct tls_stream *t, char *bytes, size_t size);
/* Tells the server that no more will come; take once more. Nothing happens before the handshake is done. */
void tls_stream_end(struct tls_stream *t);

/* What was wrong, after -EPROTO: one printable line, with what to do. */
const char *tls_stream_why(const struct tls_stream *t);
/* For people, after the handshake: "TLSv1.3". */
const char *tls_stream_version(const struct tls_stream *t);
/* For how long the server's certificate is still valid, in seconds, by this machine's clock. */
int64_t tls_stream_left_s(const struct tls_stream *t);

#endif
