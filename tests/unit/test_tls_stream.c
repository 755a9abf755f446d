/*
 * tls/tls_stream.c against OpenSSL's own server in memory: bytes that come one at a time or all at once, connections that end at
 * each byte of the handshake. Certificates: test_tls_certificates.c; hostile servers: test_tls_hostile.c.
 */
#include "tests/unit/tls_fixture.h"

#define BIG_BYTES 200000

static char *big_text(void)
{
	char *text = malloc(BIG_BYTES);

	for (size_t i = 0; i < BIG_BYTES; i++)
		text[i] = (char)(i * 31 + i / 997);
	return text;
}

static const size_t chunks[] = {1, 2, 3, 5, 100, 4096, 65536};

FIXTURE(setup, teardown)

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

TEST_EACH(cut_at_each_byte_of_the_handshake, 2)
{
	size_t all;

	start(&leaf, NULL, NULL, versions[_i], HOST);
	shake_hands(65536);
	all = BIO_number_written(server.out);
	stop();
	for (size_t most = 0; most + 300 < all; most += 5) { /* 300: the tickets, which need not come */
		start(&leaf, NULL, NULL, versions[_i], HOST);
		ck_assert_int_ne(shake(65536, most), -EPROTO);
		char byte;
		if (tls_stream_shake(t) == 0) {
			ck_assert_int_eq(tls_stream_read(t, &byte, 1), 0);
			ck_assert_int_eq(tls_stream_write(t, "x", 1), -EPROTO);
		}
		stop();
	}
	ck_assert_uint_gt(all, 600);
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
