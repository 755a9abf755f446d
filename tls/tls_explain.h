/* What OpenSSL says, for people: one printable line of what is wrong with the server or its certificate, and what to do. Pure. */
#ifndef DFLOCK_TLS_EXPLAIN_H
#define DFLOCK_TLS_EXPLAIN_H

#include <stdbool.h>

#include <openssl/x509.h>

#include "tls/tls_context.h"

/* In a verify callback: what is wrong with the certificate that it is about. host: the name that was to be in it. */
void tls_explain_certificate(X509_STORE_CTX *chain, const char *host, char why[TLS_LINE_BYTES]);

/* The first error of OpenSSL's queue (0: there is none). presented: this host has a certificate to show. */
void tls_explain_error(unsigned long error, bool presented, const char *host, char why[TLS_LINE_BYTES]);

#endif
