/*
 * For the tests of tls/tls_stream.c: a client (`t`) and OpenSSL's own server, both in memory. The test moves the bytes between them.
 */
#ifndef DFLOCK_TESTS_UNIT_TLS_FIXTURE_H
#define DFLOCK_TESTS_UNIT_TLS_FIXTURE_H

#include "tests/unit/suite.h"
#include "tests/unit/tls_server.h"

#define HOST "redis.example"

static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
static struct tls_identity ca, leaf;
static struct tls_server server;
static struct tls_stream *t;

static inline void start(const struct tls_identity *id, const struct tls_identity *clients,
			 const struct tls_identity *own, int version, const char *host)
{
	struct tls_context *context = tls_client(&ca, own);

	tls_server_start(&server, id, clients, version);
	t = tls_stream_new(context, host);
	ck_assert_ptr_nonnull(t);
	tls_context_free(context); /* before its connections */
}

static inline void stop(void)
{
	tls_stream_free(t);
	tls_server_stop(&server);
}

static inline void setup(void)
{
	ca = tls_identify(NULL, "The test's authority", NULL, -DAY_S, DAY_S);
	leaf = tls_identify(&ca, HOST, "DNS:" HOST, -DAY_S, DAY_S);
}

static inline void teardown(void)
{
	tls_forget(&ca);
	tls_forget(&leaf);
}

/* Moves what the client has for the server. */
static inline size_t to_server(size_t chunk)
{
	char bytes[65536];
	size_t n, all = 0;

	while ((n = tls_stream_take(t, bytes, chunk < sizeof(bytes) ? chunk : sizeof(bytes))) > 0) {
		ck_assert_int_eq(BIO_write(server.in, bytes, (int)n), (int)n);
		all += n;
	}
	ck_assert_uint_eq(tls_stream_pending(t), 0);
	return all;
}

/* Moves up to `chunk` bytes of the server's to the client. */
static inline int to_client(size_t chunk, size_t *moved)
{
	char bytes[65536];
	int n = BIO_read(server.out, bytes, (int)(chunk < sizeof(bytes) ? chunk : sizeof(bytes)));

	*moved = n > 0 ? (size_t)n : 0;
	return *moved ? tls_stream_feed(t, bytes, *moved) : 0;
}

/* Shakes hands with `chunk` bytes at a time, until nothing moves, or the server has sent `most`. As tls_stream_shake(). */
static inline int shake(size_t chunk, size_t most)
{
	size_t moved = 0, sent = 0;
	int done;

	for (;;) {
		done = tls_stream_shake(t);
		moved = to_server(chunk);
		if (!SSL_is_init_finished(server.ssl))
			SSL_do_handshake(server.ssl);
		if (done != 0 && BIO_ctrl_pending(server.out) == 0)
			return done;
		if (done < 0 || sent >= most)
			return done;
		size_t got;
		int ret = to_client(most - sent < chunk ? most - sent : chunk, &got);
		if (ret < 0)
			return ret;
		sent += got;
		if (got + moved == 0)
			return tls_stream_shake(t);
	}
}

static inline void shake_hands(size_t chunk) { ck_assert_msg(shake(chunk, SIZE_MAX) == 1, "%s", tls_stream_why(t)); }

/* The server's bytes, until the client has read `len` of plain text. */
static inline void receive(const char *expected, size_t len, size_t chunk)
{
	char *text = malloc(len + 1);
	size_t used = 0, moved = 1;

	while (used < len) {
		ssize_t n = tls_stream_read(t, text + used, len - used);

		ck_assert_msg(n >= 0, "%zd: %s", n, tls_stream_why(t));
		used += (size_t)n;
		if (n > 0)
			continue;
		ck_assert_uint_gt(moved, 0);
		ck_assert_int_eq(to_client(chunk, &moved), 0);
	}
	ck_assert_mem_eq(text, expected, len);
	free(text);
}

static inline void send_to_server(const char *text, size_t len)
{
	char *got = malloc(len);
	size_t used = 0;

	ck_assert_int_eq(tls_stream_write(t, text, len), 0);
	to_server(1000);
	while (used < len) {
		int n = SSL_read(server.ssl, got + used, (int)(len - used));

		ck_assert_int_gt(n, 0);
		used += (size_t)n;
	}
	ck_assert_mem_eq(got, text, len);
	free(got);
}

#endif
