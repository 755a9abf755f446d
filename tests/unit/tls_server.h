/*
 * Certificates that a test makes, and the server's side of a TLS connection in memory. Include check.h before it, or have these
 * macros of your own (tests/fuzz).
 */
#ifndef DFLOCK_TESTS_UNIT_TLS_SERVER_H
#define DFLOCK_TESTS_UNIT_TLS_SERVER_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "tls/tls_context.h"
#include "tls/tls_stream.h"

#define DAY_S 86400

struct tls_identity {
	EVP_PKEY *key;
	X509 *certificate;
};

static inline void tls_extend(X509 *certificate, X509 *issuer, int nid, const char *value)
{
	X509V3_CTX ctx;
	X509_EXTENSION *extension;

	X509V3_set_ctx(&ctx, issuer, certificate, NULL, NULL, 0);
	extension = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
	ck_assert_ptr_nonnull(extension);
	ck_assert_int_eq(X509_add_ext(certificate, extension, -1), 1);
	X509_EXTENSION_free(extension);
}

/* by NULL: an authority, which signs itself. names: "DNS:a,IP:10.0.0.1", NULL: none. Valid from `from_s` to `to_s` from now. */
static inline struct tls_identity tls_identify(const struct tls_identity *by, const char *cn, const char *names,
					       long from_s, long to_s)
{
	static long serial;
	struct tls_identity id = {.key = EVP_EC_gen("P-256"), .certificate = X509_new()};
	X509_NAME *name = X509_get_subject_name(id.certificate);
	X509 *issuer = by ? by->certificate : id.certificate;

	X509_set_version(id.certificate, 2);
	ASN1_INTEGER_set(X509_get_serialNumber(id.certificate), ++serial);
	X509_gmtime_adj(X509_getm_notBefore(id.certificate), from_s);
	X509_gmtime_adj(X509_getm_notAfter(id.certificate), to_s);
	X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, (const unsigned char *)cn, -1, -1, 0);
	X509_set_issuer_name(id.certificate, X509_get_subject_name(issuer));
	X509_set_pubkey(id.certificate, id.key);
	if (!by)
		tls_extend(id.certificate, issuer, NID_basic_constraints, "critical,CA:TRUE");
	if (names)
		tls_extend(id.certificate, issuer, NID_subject_alt_name, names);
	ck_assert_int_gt(X509_sign(id.certificate, by ? by->key : id.key, EVP_sha256()), 0);
	return id;
}

static inline void tls_forget(struct tls_identity *id)
{
	EVP_PKEY_free(id->key);
	X509_free(id->certificate);
}

static inline char *tls_pem(BIO *bio, size_t *len)
{
	char *text, *out;
	long n = BIO_get_mem_data(bio, &text);

	out = malloc((size_t)n + 1);
	memcpy(out, text, (size_t)n);
	out[n] = '\0';
	*len = (size_t)n;
	BIO_free(bio);
	return out;
}

static inline char *tls_certificate_pem(const struct tls_identity *id, size_t *len)
{
	BIO *bio = BIO_new(BIO_s_mem());

	PEM_write_bio_X509(bio, id->certificate);
	return tls_pem(bio, len);
}

static inline char *tls_key_pem(const struct tls_identity *id, size_t *len)
{
	BIO *bio = BIO_new(BIO_s_mem());

	PEM_write_bio_PrivateKey(bio, id->key, NULL, NULL, 0, NULL, NULL);
	return tls_pem(bio, len);
}

static inline void tls_free(struct tls_files *files)
{
	free(files->ca);
	free(files->certificate);
	free(files->key);
}

/* own NULL: without a certificate of this host. */
static inline struct tls_context *tls_client(const struct tls_identity *ca, const struct tls_identity *own)
{
	struct config_tls config = {.on = true, .ca = "CA", .certificate = own ? "CERTIFICATE" : NULL};
	struct tls_files files = {0};
	struct tls_context *context;
	char why[TLS_LINE_BYTES] = "";

	files.ca = tls_certificate_pem(ca, &files.ca_len);
	config.key = own ? "KEY" : NULL;
	if (own) {
		files.certificate = tls_certificate_pem(own, &files.certificate_len);
		files.key = tls_key_pem(own, &files.key_len);
	}
	context = tls_context_new(&config, &files, why);
	ck_assert_msg(context != NULL, "%s", why);
	tls_free(&files);
	return context;
}

/* ---- the server's side ---- */

struct tls_server {
	SSL_CTX *ctx;
	SSL *ssl;
	BIO *in, *out;
};

/* clients: whose certificates it wants; NULL: none. version: the only one; 0: any. */
static inline void tls_server_start(struct tls_server *server, const struct tls_identity *id,
				    const struct tls_identity *clients, int version)
{
	server->ctx = SSL_CTX_new(TLS_server_method());
	SSL_CTX_use_certificate(server->ctx, id->certificate);
	SSL_CTX_use_PrivateKey(server->ctx, id->key);
	if (version) {
		SSL_CTX_set_security_level(server->ctx, 0);
		SSL_CTX_set_min_proto_version(server->ctx, version);
		SSL_CTX_set_max_proto_version(server->ctx, version);
	}
	if (clients) {
		X509_STORE_add_cert(SSL_CTX_get_cert_store(server->ctx), clients->certificate);
		SSL_CTX_set_verify(server->ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
	}
	server->ssl = SSL_new(server->ctx);
	server->in = BIO_new(BIO_s_mem());
	server->out = BIO_new(BIO_s_mem());
	SSL_set_bio(server->ssl, server->in, server->out);
	SSL_set_accept_state(server->ssl);
}

static inline void tls_server_stop(struct tls_server *server)
{
	SSL_free(server->ssl);
	SSL_CTX_free(server->ctx);
}

#endif
