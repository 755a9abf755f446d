/*
 * The files that TLS to the store needs: certificates of authorities, and this host's certificate with its key. Blocks
 * on the file system, and may be called in any thread: the keeper calls it in a worker.
 *
 * They are read anew for new connections, so that renewed ones count without a restart.
 */
#ifndef DFLOCK_TLS_FILES_H
#define DFLOCK_TLS_FILES_H

#include <stddef.h>
#include <stdint.h>

#include "config/config.h"

#define TLS_LINE_BYTES   512 /* what is wrong, for people */
#define TLS_DIGEST_BYTES 32

/* PEM, each len bytes and a NUL; NULL: not configured. */
struct tls_files {
	char *ca, *certificate, *key;
	size_t ca_len, certificate_len, key_len;
	unsigned char digest[TLS_DIGEST_BYTES]; /* of all of them */
};

/*
 * Reads what the configuration names; without tls_ca, the authorities that the system trusts. Of a directory, the files whose
 * names end in .pem, .crt or .cer. 0; or -errno with one line in `why`, and nothing to free: -EACCES if a file may not be read,
 * -EINVAL for contents, also if every user can read the key.
 */
int tls_files_read(const struct config_tls *config, struct tls_files *files, char why[TLS_LINE_BYTES]);
/* Wipes the key. */
void tls_files_free(struct tls_files *files);

#endif
