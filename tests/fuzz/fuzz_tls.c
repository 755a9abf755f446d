/*
 * TLS with a hostile server, and any bytes as certificates and keys. The first byte says what the others are:
 *   0: all that the server sends
 *   1: changes to what a good server sends, in the handshake and after it
 *   2: changes to the server's certificate, which is trusted all the same: its names and dates are anything
 *   3: changes to this host's files: authority, certificate and key
 * The second byte says how many bytes come at a time, and which version of TLS. A change is three bytes: two for the place, and what
 * is flipped there. Whatever comes: no plain text but what the server has sent, and one line that says why.
 * Built by clang -fsanitize=fuzzer,address,undefined with tls/ and tests/unit/tls_server.h.
 */
#include <errno.h>

#include <openssl/err.h>

#include "tests/fuzz/fuzz.h"

/* What tls_server.h takes from Check. */
#define ck_assert_int_eq(a, b)      check((a) == (b), #a)
#define ck_assert_int_gt(a, b)      check((a) > (b), #a)
#define ck_assert_ptr_nonnull(a)    check((a) != NULL, #a)
#define ck_assert_msg(ok, how, why) check(ok, why)
#include "tests/unit/tls_server.h"

#define HOST "redis.example"

static const char answer[] = "+OK\r\n$5\r\nhello\r\n";
static struct tls_identity ca, leaf;
static struct tls_context *trusting;

static void check_line(const char *why)
{
	check(*why && strlen(why) < TLS_LINE_BYTES, "no reason");
	for (const char *p = why; *p; p++)
		check(*p >= ' ' && *p <= '~', "not a printable line");
}

/* --- what comes --- */

struct input {
	const uint8_t *changes;
	size_t count, chunk;
	int version; /* of TLS; 0: any */
};

static struct input input_read(const uint8_t *data, size_t size)
{
	static const size_t chunks[] = {1, 2, 5, 64, 1000, 4096};

	return (struct input){.changes = data + 1,
			      .count = (size - 1) / 3,
			      .chunk = chunks[data[0] / 2 % 6],
			      .version = data[0] % 2 ? TLS1_2_VERSION : 0};
}

/* The bytes are those from the place `at` on. */
static void input_change(const struct input *in, char *bytes, size_t len, size_t at, size_t all)
{
	for (size_t i = 0; i < in->count; i++) {
		const uint8_t *c = in->changes + 3 * i;
		size_t place = (c[0] | (size_t)c[1] << 8) % all;

		if (place >= at && place < at + len)
			bytes[place - at] ^= (char)c[2];
	}
}

/* --- talking --- */

static bool is_over(struct tls_stream *t, ssize_t ret)
{
	if (ret >= 0)
		return false;
	check(ret == -EPROTO || ret == -EPIPE, "another error");
	check_line(tls_stream_why(t));
	check(tls_stream_feed(t, "x", 1) == -EPROTO && tls_stream_shake(t) == -EPROTO, "it goes on after its end");
	return true;
}

/* Reads what there is; `got` counts. */
static bool listen_to(struct tls_stream *t, size_t *got)
{
	char plain[7];
	ssize_t n;

	while ((n = tls_stream_read(t, plain, sizeof(plain))) > 0) {
		check(*got + (size_t)n <= strlen(answer) && memcmp(answer + *got, plain, (size_t)n) == 0,
		      "what the server has not said");
		*got += (size_t)n;
	}
	return !is_over(t, n);
}

static void serve(struct tls_server *server, struct tls_stream *t, bool *answered)
{
	char bytes[4096];
	size_t n;

	while ((n = tls_stream_take(t, bytes, sizeof(bytes))) > 0)
		BIO_write(server->in, bytes, (int)n);
	ERR_clear_error();
	if (!SSL_is_init_finished(server->ssl))
		SSL_do_handshake(server->ssl);
	if (SSL_is_init_finished(server->ssl) && !*answered)
		*answered = SSL_write(server->ssl, answer, (int)strlen(answer)) > 0;
	ERR_clear_error();
}

static void talk(struct tls_context *context, const struct tls_identity *id, const struct input *in)
{
	struct tls_stream *t = tls_stream_new(context, HOST);
	size_t at = 0, got = 0;
	struct tls_server server;
	bool answered = false;
	char bytes[4096];
	int n;

	check(t != NULL, "no connection");
	tls_server_start(&server, id, NULL, in->version);
	while (!is_over(t, tls_stream_shake(t))) {
		serve(&server, t, &answered);
		n = BIO_read(server.out, bytes, (int)in->chunk);
		if (n <= 0)
			break;
		input_change(in, bytes, (size_t)n, at, 4096);
		at += (size_t)n;
		if (is_over(t, tls_stream_feed(t, bytes, (size_t)n)) || is_over(t, tls_stream_shake(t)) ||
		    !listen_to(t, &got))
			break;
	}
	check(in->count || id != &leaf || got == strlen(answer), "a good server is not understood");
	tls_stream_end(t);
	tls_stream_free(t);
	tls_server_stop(&server);
}

/* --- the four kinds --- */

static void hear_anything(const uint8_t *data, size_t size)
{
	const struct input in = input_read(data, size);
	struct tls_stream *t = tls_stream_new(trusting, HOST);
	char plain[64];

	check(t != NULL, "no connection");
	(void)tls_stream_shake(t);
	for (size_t at = 1, n; at < size; at += n) {
		n = size - at < in.chunk ? size - at : in.chunk;
		if (is_over(t, tls_stream_feed(t, (const char *)data + at, n)))
			break;
		int ret = tls_stream_shake(t);
		check(ret != 1, "a server without a key is believed");
		if (is_over(t, ret))
			break;
		check(tls_stream_read(t, plain, sizeof(plain)) == 0, "plain text before the end of the handshake");
	}
	tls_stream_free(t);
}

/* The same key, and a certificate that may be no certificate: then there is nothing to try. */
static void trust_anything(const uint8_t *data, size_t size)
{
	const struct input in = input_read(data, size);
	unsigned char *der = NULL;
	int len = i2d_X509(leaf.certificate, &der);
	const unsigned char *p = der;
	struct tls_identity odd = {.key = leaf.key};

	check(len > 0, "no certificate");
	input_change(&in, (char *)der, (size_t)len, 0, (size_t)len);
	odd.certificate = d2i_X509(NULL, &p, len);
	if (odd.certificate && X509_check_private_key(odd.certificate, odd.key) == 1) {
		struct config_tls config = {.on = true, .ca = "CA"};
		struct tls_files files = {0};
		char why[TLS_LINE_BYTES] = "";
		struct tls_context *context;

		files.ca = tls_certificate_pem(&odd, &files.ca_len);
		context = tls_context_new(&config, &files, why);
		if (context)
			talk(context, &odd, &(struct input){.changes = NULL, .chunk = 4096});
		else
			check_line(why);
		tls_context_free(context);
		tls_free(&files);
	}
	ERR_clear_error();
	X509_free(odd.certificate);
	OPENSSL_free(der);
}

static void read_files(const uint8_t *data, size_t size)
{
	const struct input in = input_read(data, size);
	struct config_tls config = {.on = true, .ca = "CA", .certificate = "CERTIFICATE", .key = "KEY"};
	struct tls_files files = {0};
	char why[TLS_LINE_BYTES] = "";
	struct tls_context *context;
	int64_t left_s;

	files.ca = tls_certificate_pem(&ca, &files.ca_len);
	files.certificate = tls_certificate_pem(&leaf, &files.certificate_len);
	files.key = tls_key_pem(&leaf, &files.key_len);

	char *const bytes[] = {files.ca, files.certificate, files.key};
	const size_t lens[] = {files.ca_len, files.certificate_len, files.key_len};
	size_t all = lens[0] + lens[1] + lens[2], at = 0;

	for (int i = 0; i < 3; at += lens[i++])
		input_change(&in, bytes[i], lens[i], at, all);
	context = tls_context_new(&config, &files, why);
	if (context)
		(void)tls_context_left_s(context, &left_s);
	else
		check_line(why);
	check(in.count || context, "good files are refused");
	tls_context_free(context);
	tls_free(&files);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	ca = tls_identify(NULL, "The fuzzer's authority", NULL, -DAY_S, DAY_S);
	leaf = tls_identify(&ca, HOST, "DNS:" HOST ",IP:10.0.0.1", -DAY_S, DAY_S);
	trusting = tls_client(&ca, NULL);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 2)
		return 0;
	switch (data[0] % 4) {
	case 0:
		hear_anything(data + 1, size - 1);
		break;
	case 1: {
		const struct input in = input_read(data + 1, size - 1);

		talk(trusting, &leaf, &in);
		break;
	}
	case 2:
		trust_anything(data + 1, size - 1);
		break;
	case 3:
		read_files(data + 1, size - 1);
		break;
	}
	return 0;
}
