/* tls/tls_stream.c: a server that speaks no TLS, sends nonsense or wrong bits, or never stops. */
#include "tests/unit/tls_fixture.h"

FIXTURE(setup, teardown)

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

/* Feeds nonsense in pieces until the client has had enough; returns how much that was. */
static size_t feed_nonsense(unsigned seed, bool records)
{
	size_t all = 0;
	int ret = 0;

	srand(seed);
	while (ret == 0 && all < 2 * TLS_STREAM_IDLE_BYTES) {
		unsigned char bytes[700];
		size_t len = 6 + (size_t)rand() % (sizeof(bytes) - 6);
		char plain[64];

		for (size_t i = 0; i < len; i++)
			bytes[i] = (unsigned char)rand();
		if (records) { /* with a proper beginning, so that what is inside is looked at */
			bytes[0] = (unsigned char)(20 + rand() % 4);
			bytes[1] = bytes[2] = 3;
			bytes[3] = (unsigned char)((len - 5) >> 8);
			bytes[4] = (unsigned char)(len - 5);
		}
		if (all == 0)
			bytes[0] = 22;
		ret = tls_stream_feed(t, (const char *)bytes, len);
		if (ret == 0)
			ret = tls_stream_shake(t);
		ret = ret == 1 ? 0 : ret;
		if (ret == 0 && (ret = (int)tls_stream_read(t, plain, sizeof(plain))) > 0)
			ck_abort_msg("nonsense was taken for an answer");
		all += len;
	}
	ck_assert_int_eq(ret, -EPROTO);
	ck_assert_int_ne(*tls_stream_why(t), '\0');
	return all;
}

TEST(nonsense)
{
	for (unsigned seed = 1; seed <= 120; seed++) {
		start(&leaf, NULL, NULL, 0, HOST);
		tls_stream_shake(t);
		if (seed % 3 == 0) /* after the handshake */
			shake_hands(65536);
		ck_assert_uint_le(feed_nonsense(seed, seed % 2), TLS_STREAM_IDLE_BYTES + 700);
		stop();
	}
}

/* One wrong bit at each place of the server's part of the handshake: never a connection that is taken for good, but where the
 * bit does not count (a version that is not looked at). */
TEST_EACH(wrong_bits, 2)
{
	unsigned good = 0, bad = 0;

	for (size_t at = 0; at < 1200; at += 7) {
		char bytes[65536];
		int n, ret;

		start(&leaf, NULL, NULL, versions[_i], HOST);
		tls_stream_shake(t);
		to_server(65536);
		SSL_do_handshake(server.ssl);
		n = BIO_read(server.out, bytes, sizeof(bytes));
		ck_assert_int_gt(n, 400);
		if (at < (size_t)n)
			bytes[at] ^= (char)(1 << (at % 8));
		ret = tls_stream_feed(t, bytes, (size_t)n);
		if (ret == 0)
			ret = shake(65536, SIZE_MAX);
		*(ret == 1 && at < (size_t)n ? &good : &bad) += 1;
		stop();
	}
	ck_assert_uint_le(good, 2);
	ck_assert_uint_gt(bad, 50);
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
