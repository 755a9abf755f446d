/* See tls_stream.h. */
#include "tls/tls_stream.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "tls/tls_explain.h"

#define HOST_BYTES 256

struct tls_stream {
	SSL *ssl;
	BIO *in, *out; /* the SSL's */
	bool heard, done, failed;
	size_t idle; /* bytes that came since the last plain text */
	char host[HOST_BYTES];
	char why[TLS_LINE_BYTES];
};

/* ---- beginning and end ---- */

/* A number is verified as such, and a name also said to the server. */
static bool stream_expect(struct tls_stream *t, const char *host)
{
	unsigned char number[sizeof(struct in6_addr)];
	size_t len = strcspn(host, "%"); /* the interface of a link-local address */

	snprintf(t->host, sizeof(t->host), "%.*s", (int)len, host);
	if (inet_pton(AF_INET, t->host, number) == 1 || inet_pton(AF_INET6, t->host, number) == 1)
		return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(t->ssl), t->host) == 1;
	if (len > 1 && t->host[len - 1] == '.')
		t->host[len - 1] = '\0';
	SSL_set_hostflags(t->ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
	return SSL_set1_host(t->ssl, t->host) == 1 && SSL_set_tlsext_host_name(t->ssl, t->host) == 1;
}

static int stream_on_verify(int good, X509_STORE_CTX *chain)
{
	SSL *ssl = X509_STORE_CTX_get_ex_data(chain, SSL_get_ex_data_X509_STORE_CTX_idx());
	struct tls_stream *t = SSL_get_app_data(ssl);

	if (!good) /* what it returns ends the verification: there is one line */
		tls_explain_certificate(chain, t->host, t->why);
	return good;
}

struct tls_stream *tls_stream_new(struct tls_context *context, const char *host)
{
	struct tls_stream *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->ssl = SSL_new(tls_context_ssl(context));
	t->in = BIO_new(BIO_s_mem());
	t->out = BIO_new(BIO_s_mem());
	if (!t->ssl || !t->in || !t->out || !stream_expect(t, host)) {
		BIO_free(t->in);
		BIO_free(t->out);
		SSL_free(t->ssl);
		free(t);
		return NULL;
	}
	SSL_set_bio(t->ssl, t->in, t->out);
	SSL_set_app_data(t->ssl, t);
	SSL_set_verify(t->ssl, SSL_VERIFY_PEER, stream_on_verify);
	SSL_set_connect_state(t->ssl);
	return t;
}

void tls_stream_free(struct tls_stream *t)
{
	if (!t)
		return;
	SSL_free(t->ssl);
	free(t);
}

void tls_stream_end(struct tls_stream *t)
{
	if (!t->done || t->failed)
		return;
	t->failed = true;
	ERR_clear_error();
	SSL_shutdown(t->ssl); /* what it returns concerns the answer, for which nothing waits */
}

/* ---- failures ---- */

static int stream_fail(struct tls_stream *t, const char *why)
{
	if (!t->failed && !*t->why)
		snprintf(t->why, sizeof(t->why), "%s", why);
	t->failed = true;
	return -EPROTO;
}

/* What a call of OpenSSL that did not succeed means: 0: bytes are missing. */
static int stream_result(struct tls_stream *t, int said)
{
	char why[TLS_LINE_BYTES];

	switch (SSL_get_error(t->ssl, said)) {
	case SSL_ERROR_WANT_READ:
		return 0;
	case SSL_ERROR_ZERO_RETURN:
		stream_fail(t, "the server ended the connection");
		return -EPIPE;
	default:
		tls_explain_error(ERR_peek_error(), SSL_get_certificate(t->ssl) != NULL, t->host, why);
		ERR_clear_error();
		return stream_fail(t, why);
	}
}

/* ---- bytes ---- */

int tls_stream_feed(struct tls_stream *t, const char *bytes, size_t len)
{
	if (t->failed)
		return -EPROTO;
	if (len == 0)
		return 0;
	/* Every record begins with its type; a server's first one is part of a handshake (22), or an alert (21). */
	if (!t->heard && bytes[0] != 22 && bytes[0] != 21)
		return stream_fail(t, "what the server sends is no TLS: correct its port, or write redis:// instead of "
				      "rediss:// if it has none");
	t->heard = true;
	t->idle += len;
	if (t->idle > TLS_STREAM_IDLE_BYTES)
		return stream_fail(t, t->done ? "the server sends TLS records without an answer in them"
					      : "the server's TLS handshake does not end");
	if (len > INT_MAX || BIO_write(t->in, bytes, (int)len) != (int)len)
		return stream_fail(t, "no memory left");
	return 0;
}

int tls_stream_shake(struct tls_stream *t)
{
	int said;

	if (t->failed)
		return -EPROTO;
	if (t->done)
		return 1;
	ERR_clear_error();
	said = SSL_do_handshake(t->ssl);
	if (said == 1) {
		t->done = true;
		t->idle = 0;
		return 1;
	}
	said = stream_result(t, said);
	return said == -EPIPE ? -EPROTO : said;
}

ssize_t tls_stream_read(struct tls_stream *t, char *bytes, size_t size)
{
	int said;

	if (t->failed || !t->done)
		return t->failed ? -EPROTO : 0;
	ERR_clear_error();
	said = SSL_read(t->ssl, bytes, size > INT_MAX ? INT_MAX : (int)size);
	if (said <= 0)
		return stream_result(t, said);
	t->idle = 0;
	return said;
}

int tls_stream_write(struct tls_stream *t, const char *bytes, size_t len)
{
	size_t written;

	if (t->failed || !t->done)
		return -EPROTO;
	if (len == 0)
		return 0;
	ERR_clear_error();
	/* The whole of it or nothing: the memory that it goes to takes all. */
	if (SSL_write_ex(t->ssl, bytes, len, &written) == 1)
		return 0;
	if (stream_result(t, 0) == 0)
		stream_fail(t, "TLS wants to read before it writes");
	return -EPROTO;
}

size_t tls_stream_pending(const struct tls_stream *t)
{
	return BIO_ctrl_pending(t->out);
}

size_t tls_stream_take(struct tls_stream *t, char *bytes, size_t size)
{
	int n = BIO_read(t->out, bytes, size > INT_MAX ? INT_MAX : (int)size);

	return n > 0 ? (size_t)n : 0;
}

/* ---- for people ---- */

const char *tls_stream_why(const struct tls_stream *t)
{
	return t->why;
}

const char *tls_stream_version(const struct tls_stream *t)
{
	return SSL_get_version(t->ssl);
}

int64_t tls_stream_left_s(const struct tls_stream *t)
{
	const X509 *certificate = SSL_get0_peer_certificate(t->ssl);
	int days = 0, seconds = 0;

	if (certificate)
		ASN1_TIME_diff(&days, &seconds, NULL, X509_get0_notAfter(certificate));
	return (int64_t)days * 86400 + seconds;
}
