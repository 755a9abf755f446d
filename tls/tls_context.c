/* See tls_context.h. */
#include "tls/tls_context.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "config/load.h"

#define FILE_BYTES (1u << 20)
#define CA_BYTES   (8u << 20) /* of all files of a directory */
#define CHAIN_MAX  9          /* certificates between the server's and an authority's */

struct tls_context {
	SSL_CTX *ssl;
};

/* ---- the files ---- */

static int files_fail(char why[TLS_LINE_BYTES], const char *setting, const char *path, int ret)
{
	if (ret == -EFBIG)
		snprintf(why, TLS_LINE_BYTES, "%s %.300s is too large; expected certificates in PEM", setting, path);
	else if (ret == -EINVAL)
		snprintf(why, TLS_LINE_BYTES, "%s %.300s is not a regular file", setting, path);
	else
		snprintf(why, TLS_LINE_BYTES, "%s %.300s cannot be read: %s", setting, path, strerror(-ret));
	return ret;
}

static int files_load(const char *setting, const char *path, char **bytes, size_t *len, struct stat *st,
		      char why[TLS_LINE_BYTES])
{
	int ret = load_file(AT_FDCWD, path, FILE_BYTES, bytes, len, st);

	return ret < 0 ? files_fail(why, setting, path, ret) : 0;
}

static bool files_is_certificate(const char *name)
{
	static const char *const endings[] = {".pem", ".crt", ".cer"};
	size_t len = strlen(name);

	for (size_t i = 0; i < sizeof(endings) / sizeof(*endings); i++)
		if (len > 4 && strcmp(name + len - 4, endings[i]) == 0)
			return true;
	return false;
}

/* Appends one file of the directory, and a newline. */
static int files_append(struct tls_files *files, const char *path)
{
	char *bytes = NULL, *more;
	size_t len = 0;
	struct stat st;
	int ret = load_file(AT_FDCWD, path, FILE_BYTES, &bytes, &len, &st);

	if (ret == -ENOENT || ret == -EINVAL) /* a link whose target has gone, or a directory */
		return 0;
	if (ret < 0)
		return ret;
	ret = -EFBIG;
	if (files->ca_len + len + 2 > CA_BYTES)
		goto out;
	ret = -ENOMEM;
	more = realloc(files->ca, files->ca_len + len + 2);
	if (!more)
		goto out;
	files->ca = more;
	memcpy(more + files->ca_len, bytes, len);
	files->ca_len += len;
	memcpy(more + files->ca_len++, "\n", 2);
	ret = 0;
out:
	free(bytes);
	return ret;
}

static int files_pick(const struct dirent *entry)
{
	return files_is_certificate(entry->d_name);
}

static int files_read_directory(const char *directory, struct tls_files *files, char why[TLS_LINE_BYTES])
{
	struct dirent **entries = NULL;
	char path[PATH_MAX];
	int count = scandir(directory, &entries, files_pick, alphasort), ret = count < 0 ? -errno : 0;

	if (ret < 0)
		return files_fail(why, "tls_ca", directory, ret);
	for (int i = 0; i < count; i++) {
		if (ret == 0 && snprintf(path, sizeof(path), "%s/%s", directory, entries[i]->d_name) >= PATH_MAX)
			ret = files_fail(why, "tls_ca", directory, -ENAMETOOLONG);
		else if (ret == 0 && (ret = files_append(files, path)) < 0)
			files_fail(why, "tls_ca", path, ret);
		free(entries[i]);
	}
	free(entries);
	if (ret == 0 && !files->ca) {
		snprintf(why, TLS_LINE_BYTES,
			 "tls_ca %.300s has no file NAME.pem, NAME.crt or NAME.cer with an authority's certificate",
			 directory);
		ret = -EINVAL;
	}
	return ret;
}

static int files_read_ca(const char *ca, struct tls_files *files, char why[TLS_LINE_BYTES])
{
	const char *path = ca ? ca : X509_get_default_cert_dir();
	struct stat st;

	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		return files_read_directory(path, files, why);
	return files_load("tls_ca", path, &files->ca, &files->ca_len, &st, why);
}

static int files_read_key(const char *path, struct tls_files *files, char why[TLS_LINE_BYTES])
{
	struct stat st;
	int ret = files_load("tls_key_file", path, &files->key, &files->key_len, &st, why);

	if (ret == 0 && load_is_exposed(&st)) {
		snprintf(why, TLS_LINE_BYTES,
			 "tls_key_file %.300s can be read or written by everybody; run chmod o-rw on it", path);
		ret = -EINVAL;
	}
	return ret;
}

/* Wipes the key. */
static void files_free(struct tls_files *files)
{
	free(files->ca);
	free(files->certificate);
	if (files->key)
		explicit_bzero(files->key, files->key_len);
	free(files->key);
	*files = (struct tls_files){.ca = NULL};
}

/* Without tls_ca, the authorities that the system trusts. Of a directory, the files whose names end in .pem, .crt or .cer. */
static int files_read(const struct config_tls *config, struct tls_files *files, char why[TLS_LINE_BYTES])
{
	struct stat st;
	int ret;

	*files = (struct tls_files){.ca = NULL};
	ret = files_read_ca(config->ca, files, why);
	if (ret == 0 && config->certificate)
		ret = files_load("tls_certificate_file", config->certificate, &files->certificate,
				 &files->certificate_len, &st, why);
	if (ret == 0 && config->key)
		ret = files_read_key(config->key, files, why);
	if (ret < 0)
		files_free(files);
	return ret;
}

/* ---- their contents ---- */

/* OpenSSL would ask the terminal. */
static int context_no_password(char *buf, int size, int rwflag, void *arg)
{
	(void)buf, (void)size, (void)rwflag, (void)arg;
	return -1;
}

static const char *context_reason(void)
{
	const char *reason = ERR_reason_error_string(ERR_peek_last_error());

	return reason ? reason : "no memory left, or an error without a name";
}

/* Reads certificates until there are no more; each is given to `take`. Returns how many; -1: one is damaged, or was not
 * taken. */
static int context_certificates(const char *pem, size_t len, SSL_CTX *ssl, int (*take)(SSL_CTX *ssl, X509 *certificate))
{
	BIO *bio = BIO_new_mem_buf(pem, (int)len);
	int count = 0;
	X509 *certificate;

	if (!bio)
		return -1;
	ERR_clear_error();
	while (count >= 0 && (certificate = PEM_read_bio_X509(bio, NULL, context_no_password, NULL))) {
		count = take(ssl, certificate) == 1 ? count + 1 : -1;
		X509_free(certificate);
	}
	if (count > 0 && ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE)
		count = -1;
	BIO_free(bio);
	return count;
}

static int context_trust(SSL_CTX *ssl, X509 *certificate)
{
	return X509_STORE_add_cert(SSL_CTX_get_cert_store(ssl), certificate);
}

static bool context_add_ca(SSL_CTX *ssl, const struct config_tls *config, const struct tls_files *files,
			   char why[TLS_LINE_BYTES])
{
	const char *where = config->ca ? config->ca : X509_get_default_cert_dir();
	int count = context_certificates(files->ca, files->ca_len, ssl, context_trust);

	if (count > 0)
		return true;
	if (count == 0)
		snprintf(why, TLS_LINE_BYTES, "tls_ca %.300s has no certificate in PEM; expected the authority's",
			 where);
	else
		snprintf(why, TLS_LINE_BYTES, "tls_ca %.300s has a certificate that cannot be read (%.100s)", where,
			 context_reason());
	return false;
}

/* The first one is this host's, the others lead to the authority. */
static int context_present(SSL_CTX *ssl, X509 *certificate)
{
	if (!SSL_CTX_get0_certificate(ssl))
		return SSL_CTX_use_certificate(ssl, certificate);
	return SSL_CTX_add1_chain_cert(ssl, certificate) == 1;
}

static EVP_PKEY *context_key(const struct tls_files *files)
{
	BIO *bio = BIO_new_mem_buf(files->key, (int)files->key_len);
	EVP_PKEY *key;

	ERR_clear_error();
	key = bio ? PEM_read_bio_PrivateKey(bio, NULL, context_no_password, NULL) : NULL;
	BIO_free(bio);
	return key;
}

static bool context_is_encrypted(const struct tls_files *files)
{
	return strstr(files->key, "ENCRYPTED") != NULL;
}

static bool context_add_key(SSL_CTX *ssl, const struct config_tls *config, const struct tls_files *files,
			    char why[TLS_LINE_BYTES])
{
	EVP_PKEY *key = context_key(files);
	bool ok = key && SSL_CTX_use_PrivateKey(ssl, key) == 1 && SSL_CTX_check_private_key(ssl) == 1;

	if (!key && context_is_encrypted(files))
		snprintf(
			why, TLS_LINE_BYTES,
			"tls_key_file %.300s is encrypted, and a keeper cannot ask for its password; expected a key without one "
			"(openssl pkey)",
			config->key);
	else if (!key)
		snprintf(why, TLS_LINE_BYTES, "tls_key_file %.300s has no private key in PEM (%.100s)", config->key,
			 context_reason());
	else if (!ok)
		snprintf(
			why, TLS_LINE_BYTES,
			"tls_key_file %.160s is not the key of tls_certificate_file %.160s (%.80s); renew both together",
			config->key, config->certificate, context_reason());
	EVP_PKEY_free(key);
	return ok;
}

static bool context_add_certificate(SSL_CTX *ssl, const struct config_tls *config, const struct tls_files *files,
				    char why[TLS_LINE_BYTES])
{
	int count;

	if (!files->certificate)
		return true;
	count = context_certificates(files->certificate, files->certificate_len, ssl, context_present);
	if (count > 0)
		return context_add_key(ssl, config, files, why);
	snprintf(why, TLS_LINE_BYTES, "tls_certificate_file %.300s has no certificate in PEM that is of use (%.100s)",
		 config->certificate, count == 0 ? "there is none" : context_reason());
	return false;
}

/* ---- the whole ---- */

static SSL_CTX *context_rules(void)
{
	SSL_CTX *ssl;

	/* No atexit(): a worker may run when the process exits. */
	OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, NULL);
	ssl = SSL_CTX_new(TLS_client_method());
	if (!ssl)
		return NULL;
	/* The system's policy (openssl.cnf) may ask for more. */
	if (SSL_CTX_get_min_proto_version(ssl) < TLS1_2_VERSION)
		SSL_CTX_set_min_proto_version(ssl, TLS1_2_VERSION);
	/* So a write never waits for a read, and a server cannot make this host begin one handshake after the other. */
	SSL_CTX_set_options(ssl, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_NO_TICKET);
	SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_verify(ssl, SSL_VERIFY_PEER, NULL);
	SSL_CTX_set_verify_depth(ssl, CHAIN_MAX);
	/* Whatever tls_ca has is trusted, also the certificate of the server alone. */
	X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(ssl), X509_V_FLAG_PARTIAL_CHAIN);
	return ssl;
}

struct tls_context *tls_context_new(const struct config_tls *config, const struct tls_files *files,
				    char why[TLS_LINE_BYTES])
{
	struct tls_context *context = calloc(1, sizeof(*context));

	ERR_clear_error();
	if (context)
		context->ssl = context_rules();
	if (!context || !context->ssl) {
		snprintf(why, TLS_LINE_BYTES, "OpenSSL cannot be used: %s", context_reason());
		goto failed;
	}
	if (!context_add_ca(context->ssl, config, files, why) ||
	    !context_add_certificate(context->ssl, config, files, why))
		goto failed;
	ERR_clear_error();
	return context;
failed:
	ERR_clear_error();
	tls_context_free(context);
	return NULL;
}

int tls_context_load(const struct config_tls *config, struct tls_context **context, char why[TLS_LINE_BYTES])
{
	struct tls_files files;
	int ret = files_read(config, &files, why);

	if (ret < 0)
		return ret;
	*context = tls_context_new(config, &files, why);
	files_free(&files);
	return *context ? 0 : -EINVAL;
}

void tls_context_free(struct tls_context *context)
{
	if (context)
		SSL_CTX_free(context->ssl);
	free(context);
}

bool tls_context_left_s(const struct tls_context *context, int64_t *left_s)
{
	const X509 *certificate = SSL_CTX_get0_certificate(context->ssl);
	int days, seconds;

	if (!certificate || !ASN1_TIME_diff(&days, &seconds, NULL, X509_get0_notAfter(certificate)))
		return false;
	*left_s = (int64_t)days * 86400 + seconds;
	return true;
}

struct ssl_ctx_st *tls_context_ssl(struct tls_context *context)
{
	return context->ssl;
}
