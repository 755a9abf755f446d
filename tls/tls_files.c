/* See tls_files.h. */
#include "tls/tls_files.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <openssl/evp.h>
#include <openssl/x509.h>

#include "config/load.h"

#define FILE_BYTES (1u << 20)
#define CA_BYTES   (8u << 20) /* of all files of a directory */

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
	int ret = load_file(path, FILE_BYTES, bytes, len, st);

	return ret < 0 ? files_fail(why, setting, path, ret) : 0;
}

/* ---- authorities ---- */

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
	int ret = load_file(path, FILE_BYTES, &bytes, &len, &st);

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

static int files_by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int files_pick(const struct dirent *entry)
{
	return files_is_certificate(entry->d_name);
}

/* In the order of names, so that the digest stays the same. */
static int files_read_directory(const char *directory, struct tls_files *files, char why[TLS_LINE_BYTES])
{
	struct dirent **entries = NULL;
	char path[PATH_MAX];
	int count = scandir(directory, &entries, files_pick, files_by_name), ret = count < 0 ? -errno : 0;

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

/* ---- all of them ---- */

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

static int files_digest(struct tls_files *files)
{
	const char *const bytes[] = {files->ca, files->certificate, files->key};
	const size_t lens[] = {files->ca_len, files->certificate_len, files->key_len};
	EVP_MD_CTX *digest = EVP_MD_CTX_new();
	bool ok = digest && EVP_DigestInit_ex(digest, EVP_sha256(), NULL);

	for (size_t i = 0; ok && i < sizeof(lens) / sizeof(*lens); i++)
		ok = EVP_DigestUpdate(digest, &lens[i], sizeof(lens[i])) &&
		     (!bytes[i] || EVP_DigestUpdate(digest, bytes[i], lens[i]));
	ok = ok && EVP_DigestFinal_ex(digest, files->digest, NULL);
	EVP_MD_CTX_free(digest);
	return ok ? 0 : -ENOMEM;
}

int tls_files_read(const struct config_tls *config, struct tls_files *files, char why[TLS_LINE_BYTES])
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
	if (ret == 0) {
		ret = files_digest(files);
		if (ret < 0)
			snprintf(why, TLS_LINE_BYTES, "no memory left to read the files of TLS");
	}
	if (ret < 0)
		tls_files_free(files);
	return ret;
}

void tls_files_free(struct tls_files *files)
{
	free(files->ca);
	free(files->certificate);
	if (files->key)
		explicit_bzero(files->key, files->key_len);
	free(files->key);
	*files = (struct tls_files){.ca = NULL};
}
