/*
 * tls/tls_stream.c and tls_explain.c: a client (`t`) and OpenSSL's own server, both in memory; the test moves the bytes between them. Bytes
 * that come one at a time or all at once, which certificates are refused and what is said then, servers that never stop. Nonsense and wrong
 * bits: tests/fuzz/fuzz_tls.c. Handshakes that end: cluster/test_tls.py.
 */
#include "tests/unit/suite.h"
#include "tests/unit/tls_server.h"

#define HOST "redis.example"

static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
static struct tls_identity ca, leaf;
static struct tls_server server;
static struct tls_stream *t;

static void start(const struct tls_identity *id, const struct tls_identity *clients, const struct tls_identity *own,
		  int version, const char *host)
{
	struct tls_context *context = tls_client(&ca, own);

	tls_server_start(&server, id, clients, version);
	t = tls_stream_new(context, host);
	ck_assert_ptr_nonnull(t);
	tls_context_free(context); /* before its connections */
}

static void stop(void)
{
	tls_stream_free(t);
	tls_server_stop(&server);
}

static void setup(void)
{
	ca = tls_identify(NULL, "The test's authority", NULL, -DAY_S, DAY_S);
	leaf = tls_identify(&ca, HOST, "DNS:" HOST, -DAY_S, DAY_S);
}

static void teardown(void)
{
	tls_forget(&ca);
	tls_forget(&leaf);
}
FIXTURE(setup, teardown)

/* Moves what the client has for the server. */
static size_t to_server(size_t chunk)
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
static int to_client(size_t chunk, size_t *moved)
{
	char bytes[65536];
	int n = BIO_read(server.out, bytes, (int)(chunk < sizeof(bytes) ? chunk : sizeof(bytes)));

	*moved = n > 0 ? (size_t)n : 0;
	return *moved ? tls_stream_feed(t, bytes, *moved) : 0;
}

/* Shakes hands with `chunk` bytes at a time, until nothing moves. As tls_stream_shake(). */
static int shake(size_t chunk)
{
	for (size_t got = 1, moved = 0; got + moved > 0;) {
		int done = tls_stream_shake(t);

		moved = to_server(chunk);
		if (!SSL_is_init_finished(server.ssl))
			SSL_do_handshake(server.ssl);
		if (done < 0 || (done && BIO_ctrl_pending(server.out) == 0))
			return done;
		int ret = to_client(chunk, &got);
		if (ret < 0)
			return ret;
	}
	return tls_stream_shake(t);
}

static void shake_hands(size_t chunk) { ck_assert_msg(shake(chunk) == 1, "%s", tls_stream_why(t)); }

/* The server's bytes, until the client has read `len` of plain text. */
static void receive(const char *expected, size_t len, size_t chunk)
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

static void send_to_server(const char *text, size_t len)
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

/* ---- bytes ---- */

#define BIG_BYTES 200000

static char *big_text(void)
{
	char *text = malloc(BIG_BYTES);

	for (size_t i = 0; i < BIG_BYTES; i++)
		text[i] = (char)(i * 31 + i / 997);
	return text;
}

static const size_t chunks[] = {1, 2, 3, 5, 100, 4096, 65536};

TEST_EACH(bytes_in_pieces_of_any_size, 14)
{
	size_t chunk = chunks[_i % 7];
	char *text = big_text();

	start(&leaf, NULL, NULL, versions[_i / 7], HOST);
	shake_hands(chunk);
	ck_assert_str_eq(tls_stream_version(t), _i < 7 ? "TLSv1.2" : "TLSv1.3");
	ck_assert_int_lt(llabs(tls_stream_left_s(t) - DAY_S), 600);
	ck_assert_int_eq(SSL_write(server.ssl, text, BIG_BYTES), BIG_BYTES);
	receive(text, BIG_BYTES, chunk);
	send_to_server(text, BIG_BYTES);
	send_to_server("x", 1);
	ck_assert_int_eq(tls_stream_write(t, "", 0), 0);
	ck_assert_uint_eq(tls_stream_pending(t), 0);
	free(text);
	stop();
}

TEST(keys_are_updated)
{
	start(&leaf, NULL, NULL, TLS1_3_VERSION, HOST);
	shake_hands(65536);
	for (int i = 0; i < 20; i++) {
		ck_assert_int_eq(SSL_key_update(server.ssl, SSL_KEY_UPDATE_REQUESTED), 1);
		ck_assert_int_eq(SSL_write(server.ssl, "abc", 3), 3);
		receive("abc", 3, 1);
		send_to_server("question", 8); /* the server reads the answer to the update first */
	}
	stop();
}

TEST_EACH(both_sides_end, 2)
{
	char byte;
	size_t moved;

	start(&leaf, NULL, NULL, versions[_i], HOST);
	shake_hands(65536);
	SSL_write(server.ssl, "a", 1);
	SSL_shutdown(server.ssl);
	receive("a", 1, 65536);
	while (to_client(65536, &moved), moved)
		;
	ck_assert_int_eq(tls_stream_read(t, &byte, 1), -EPIPE);
	ck_assert_int_eq(tls_stream_read(t, &byte, 1), -EPROTO);
	stop();

	start(&leaf, NULL, NULL, versions[_i], HOST);
	tls_stream_end(t); /* nothing yet */
	ck_assert_uint_eq(tls_stream_pending(t), 0);
	shake_hands(65536);
	tls_stream_end(t);
	to_server(65536);
	ck_assert_int_le(SSL_read(server.ssl, &byte, 1), 0);
	ck_assert_int_eq(SSL_get_shutdown(server.ssl) & SSL_RECEIVED_SHUTDOWN, SSL_RECEIVED_SHUTDOWN);
	ck_assert_int_eq(tls_stream_write(t, "x", 1), -EPROTO);
	stop();
}

/* ---- certificates ---- */

static const struct {
	const char *names, *host, *why; /* why NULL: accepted */
} named[] = {
	{"DNS:redis.example", "redis.example", NULL},
	{"DNS:redis.example", "REDIS.example.", NULL},
	{"DNS:*.test.example", "redis.test.example", NULL},
	{"DNS:a.example,IP:10.0.0.1", "10.0.0.1", NULL},
	{"IP:fe80::1", "fe80::1%eth0", NULL},
	{NULL, "redis.example", NULL}, /* the subject, if there are no names */
	{"DNS:*.test.example", "a.b.test.example",
	 "is for *.test.example, not for a.b.test.example: correct the address, set tls_server_name"},
	{"DNS:r*.example", "redis.example", "not for redis.example"},
	{"DNS:a.example,IP:10.0.0.1,email:a@b", "redis.example", "is for a.example, 10.0.0.1, not for redis.example"},
	{"IP:10.0.0.1", "10.0.0.2", "is for 10.0.0.1, not for 10.0.0.2"},
	{"DNS:10.0.0.2", "10.0.0.2", "is for 10.0.0.2, not for 10.0.0.2"}, /* a number must stand there as one */
	{"DNS:a\x1b[31m.example", HOST, "is for a?[31m.example, not for"},
	{NULL, "other.example", "is for CN=redis.example, not for other.example"},
};

TEST_EACH(names_of_certificates, ROWS(named))
{
	struct tls_identity id = tls_identify(&ca, HOST, named[_i].names, -DAY_S, DAY_S);

	start(&id, NULL, NULL, 0, named[_i].host);
	if (named[_i].why) {
		ck_assert_int_eq(shake(65536), -EPROTO);
		ck_assert_msg(strstr(tls_stream_why(t), named[_i].why) != NULL, "%s", tls_stream_why(t));
	} else {
		shake_hands(65536);
	}
	stop();
	tls_forget(&id);
}

static void refuse(const struct tls_identity *id, int version, const char *why)
{
	start(id, NULL, NULL, version, HOST);
	ck_assert_int_eq(shake(65536), -EPROTO);
	ck_assert_msg(strstr(tls_stream_why(t), why) != NULL, "%s", tls_stream_why(t));
	ck_assert_ptr_null(strchr(tls_stream_why(t), '\n'));
	ck_assert_int_eq(tls_stream_shake(t), -EPROTO);
	ck_assert_int_eq(tls_stream_feed(t, "x", 1), -EPROTO);
	/* The server hears why: the last thing that it got is an alert. */
	SSL_do_handshake(server.ssl);
	ck_assert(!SSL_is_init_finished(server.ssl));
	stop();
}

static void refuse_new(const struct tls_identity *by, const char *names, long from_s, long to_s, int version,
		       const char *why)
{
	struct tls_identity id = tls_identify(by, HOST, names, from_s, to_s);

	refuse(&id, version, why);
	tls_forget(&id);
}

TEST_EACH(certificates_that_are_refused, 2)
{
	struct tls_identity other = tls_identify(NULL, "Another, \xc3\xa4\x1b[2J", NULL, -DAY_S, DAY_S);
	const char *names = "DNS:" HOST;
	int version = versions[_i];

	refuse_new(&ca, names, -3 * DAY_S, -DAY_S, version, "the server's certificate expired on 20");
	refuse_new(&ca, names, DAY_S, 2 * DAY_S, version, "the server's certificate is not valid before 20");
	refuse_new(&other, names, -DAY_S, DAY_S, version,
		   "is from an authority that is not trusted here (CN=Another\\, ");
	refuse_new(NULL, names, -DAY_S, DAY_S, version, "not trusted here (CN=redis.example): set tls_ca");
	tls_forget(&other);
	tls_forget(&ca);
	ca = tls_identify(NULL, "Old", NULL, -3 * DAY_S, -DAY_S);
	refuse_new(&ca, names, -DAY_S, DAY_S, version, "the certificate of its authority (CN=Old) expired on 20");
}

/* The server alone, without an authority: an ordinary certificate that tls_ca names. */
TEST(a_pinned_certificate)
{
	struct tls_identity authority = ca, pinned = leaf;

	ca = pinned;
	start(&pinned, NULL, NULL, 0, HOST);
	shake_hands(65536);
	stop();
	ca = authority;
}

static void refused_by_server(const struct tls_identity *own, int version, const char *why)
{
	char byte;

	start(&leaf, &ca, own, version, HOST);
	int ret = shake(65536);
	if (ret == 1) /* TLS 1.3: it comes after the client has taken the handshake for done */
		ret = (int)tls_stream_read(t, &byte, 1);
	ck_assert_int_eq(ret, -EPROTO);
	ck_assert_msg(strstr(tls_stream_why(t), why) != NULL, "%s", tls_stream_why(t));
	stop();
}

TEST_EACH(certificates_of_this_host, 2)
{
	struct tls_identity own = tls_identify(&ca, "me", NULL, -DAY_S, DAY_S),
			    expired = tls_identify(&ca, "me", NULL, -3 * DAY_S, -DAY_S),
			    foreign = tls_identify(NULL, "me", NULL, -DAY_S, DAY_S);
	int version = versions[_i];

	start(&leaf, &ca, &own, version, HOST);
	shake_hands(65536);
	send_to_server("x", 1);
	stop();
	refused_by_server(NULL, version, "set tls_certificate_file and tls_key_file");
	refused_by_server(&expired, version,
			  "does not accept the certificate of this host (certificate expired): renew");
	refused_by_server(&foreign, version, "does not accept the certificate of this host (unknown CA)");
	tls_forget(&own);
	tls_forget(&expired);
	tls_forget(&foreign);
}

TEST(old_versions)
{
	refuse(&leaf, TLS1_1_VERSION, "no version of TLS in common with this host, which needs 1.2 or newer");
}

/* ---- hostile servers ---- */

TEST_EACH(no_tls, 6)
{
	static const char *const texts[] = {
		"+OK\r\n",     "-ERR Protocol error\r\n", "HTTP/1.1 400 Bad Request\r\n", "SSH-2.0-OpenSSH\r\n", "",
		"\x80\x2e\x01"};
	const char *text = texts[_i];

	start(&leaf, NULL, NULL, 0, HOST);
	tls_stream_shake(t);
	if (!*text) {
		ck_assert_int_eq(tls_stream_feed(t, text, 0), 0);
	} else {
		ck_assert_int_eq(tls_stream_feed(t, text, strlen(text)), -EPROTO);
		ck_assert_ptr_nonnull(strstr(tls_stream_why(t), "is no TLS: correct its port, or write redis://"));
		ck_assert_int_eq(tls_stream_shake(t), -EPROTO);
	}
	stop();
}

TEST(tickets_without_end)
{
	size_t all = 0, moved;
	char byte;
	int ret = 0;

	start(&leaf, NULL, NULL, TLS1_3_VERSION, HOST);
	shake_hands(65536);
	while (ret == 0 && all < 2 * TLS_STREAM_IDLE_BYTES) {
		ck_assert_int_eq(SSL_new_session_ticket(server.ssl), 1);
		ck_assert_int_eq(SSL_do_handshake(server.ssl), 1);
		ret = to_client(65536, &moved);
		all += moved;
		if (ret == 0)
			ret = (int)tls_stream_read(t, &byte, 1);
	}
	ck_assert_int_eq(ret, -EPROTO);
	ck_assert_ptr_nonnull(strstr(tls_stream_why(t), "without an answer"));
	ck_assert_uint_le(all, TLS_STREAM_IDLE_BYTES + 65536);
	stop();
}

/* Any number of them, if answers come between: the count begins anew. */
TEST(tickets_between_answers)
{
	size_t all = 0;

	start(&leaf, NULL, NULL, TLS1_3_VERSION, HOST);
	shake_hands(65536);
	while (all < 2 * TLS_STREAM_IDLE_BYTES) {
		SSL_new_session_ticket(server.ssl);
		SSL_do_handshake(server.ssl);
		SSL_write(server.ssl, "a", 1);
		all += BIO_ctrl_pending(server.out);
		receive("a", 1, 65536);
	}
	stop();
}

/* A handshake that goes on and on: the message's length is honest, and there is always one more. */
TEST(a_handshake_without_end)
{
	char record[5 + 16384] = {22, 3, 3, 0x40, 0};
	size_t all = 0;
	int ret = 0;

	start(&leaf, NULL, NULL, 0, HOST);
	tls_stream_shake(t);
	for (size_t i = 5; i + 4 <= sizeof(record); i += 4) /* HelloRequests: empty, and to be ignored before TLS 1.3 */
		record[i] = record[i + 1] = record[i + 2] = record[i + 3] = 0;
	while (ret == 0 && all < 2 * TLS_STREAM_IDLE_BYTES) {
		ret = tls_stream_feed(t, record, sizeof(record));
		if (ret == 0)
			ret = tls_stream_shake(t);
		all += sizeof(record);
	}
	ck_assert_int_eq(ret, -EPROTO);
	ck_assert_uint_le(all, TLS_STREAM_IDLE_BYTES + sizeof(record));
	stop();
}
