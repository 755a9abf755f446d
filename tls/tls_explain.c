/* See tls_explain.h. */
#include "tls/tls_explain.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#define NAMES_BYTES 160
#define DATE_BYTES  40

/* ---- what stands in certificates: anybody may have written it ---- */

static void explain_quote(char *to, size_t size, const char *from, size_t len)
{
	size_t n = 0;

	for (; n < len && n + 1 < size; n++)
		to[n] = from[n] >= ' ' && from[n] <= '~' ? from[n] : '?';
	to[n] = '\0';
}

static void explain_x509_name(const X509_NAME *name, char out[NAMES_BYTES])
{
	BIO *bio = BIO_new(BIO_s_mem());
	char *text = NULL;
	long len = 0;

	if (bio && X509_NAME_print_ex(bio, name, 0, XN_FLAG_RFC2253) >= 0)
		len = BIO_get_mem_data(bio, &text);
	explain_quote(out, NAMES_BYTES, text ? text : "", len > 0 ? (size_t)len : 0);
	BIO_free(bio);
	if (!*out)
		snprintf(out, NAMES_BYTES, "no name");
}

/* False: it is no name of a server. */
static bool explain_one_name(const GENERAL_NAME *name, char out[NAMES_BYTES])
{
	const ASN1_STRING *text = name->type == GEN_DNS     ? name->d.dNSName
				  : name->type == GEN_IPADD ? name->d.iPAddress
							    : NULL;
	const unsigned char *bytes = text ? ASN1_STRING_get0_data(text) : NULL;
	int len = text ? ASN1_STRING_length(text) : 0;

	if (name->type == GEN_DNS)
		explain_quote(out, NAMES_BYTES, (const char *)bytes, (size_t)len);
	return name->type == GEN_DNS ||
	       ((len == 4 || len == 16) && inet_ntop(len == 4 ? AF_INET : AF_INET6, bytes, out, NAMES_BYTES));
}

/* The names of servers in it, as many as there is room for; else its subject. */
static void explain_names(const X509 *certificate, char out[NAMES_BYTES])
{
	GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
	char one[NAMES_BYTES];
	size_t used = 0;

	out[0] = '\0';
	for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
		if (!explain_one_name(sk_GENERAL_NAME_value(names, i), one))
			continue;
		if (used + strlen(one) + 3 > NAMES_BYTES)
			break;
		used += (size_t)snprintf(out + used, NAMES_BYTES - used, "%s%s", used ? ", " : "", one);
	}
	GENERAL_NAMES_free(names);
	if (!used)
		explain_x509_name(X509_get_subject_name(certificate), out);
}

static void explain_date(const ASN1_TIME *at, char out[DATE_BYTES])
{
	struct tm tm;

	if (!ASN1_TIME_to_tm(at, &tm) || !strftime(out, DATE_BYTES, "%Y-%m-%d %H:%M UTC", &tm))
		snprintf(out, DATE_BYTES, "an unreadable date");
}

/* ---- certificates that are refused here ---- */

/* Whose certificate: the server's, or one above it. */
static void explain_whose(X509_STORE_CTX *chain, char out[NAMES_BYTES + 48])
{
	char name[NAMES_BYTES];

	if (X509_STORE_CTX_get_error_depth(chain) == 0) {
		snprintf(out, NAMES_BYTES + 48, "the server's certificate");
		return;
	}
	explain_x509_name(X509_get_subject_name(X509_STORE_CTX_get_current_cert(chain)), name);
	snprintf(out, NAMES_BYTES + 48, "the certificate of its authority (%s)", name);
}

void tls_explain_certificate(X509_STORE_CTX *chain, const char *host, char why[TLS_LINE_BYTES])
{
	const X509 *certificate = X509_STORE_CTX_get_current_cert(chain);
	char whose[NAMES_BYTES + 48] = "", names[NAMES_BYTES] = "", date[DATE_BYTES];
	int error = X509_STORE_CTX_get_error(chain);

	if (certificate)
		explain_whose(chain, whose);
	switch (certificate ? error : X509_V_ERR_UNSPECIFIED) {
	case X509_V_ERR_CERT_HAS_EXPIRED:
		explain_date(X509_get0_notAfter(certificate), date);
		snprintf(why, TLS_LINE_BYTES, "%s expired on %s: renew it, or correct the clock of this machine", whose,
			 date);
		break;
	case X509_V_ERR_CERT_NOT_YET_VALID:
		explain_date(X509_get0_notBefore(certificate), date);
		snprintf(why, TLS_LINE_BYTES, "%s is not valid before %s: is the clock of this machine right?", whose,
			 date);
		break;
	case X509_V_ERR_HOSTNAME_MISMATCH:
	case X509_V_ERR_IP_ADDRESS_MISMATCH:
		explain_names(certificate, names);
		snprintf(
			why, TLS_LINE_BYTES,
			"the server's certificate is for %s, not for %.100s: correct the address, set tls_server_name, or "
			"give the server a certificate with this name",
			names, host);
		break;
	case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
	case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
	case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
	case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
	case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
		explain_x509_name(X509_get_issuer_name(certificate), names);
		snprintf(
			why, TLS_LINE_BYTES,
			"the server's certificate is from an authority that is not trusted here (%s): set tls_ca to that "
			"authority's certificate",
			names);
		break;
	default:
		snprintf(why, TLS_LINE_BYTES,
			 "%s cannot be accepted (%s): give the server another one, or correct tls_ca",
			 *whose ? whose : "the server's certificate", X509_verify_cert_error_string(error));
	}
}

/* ---- what the server refuses ---- */

#define CLIENT_CERTIFICATE "set tls_certificate_file and tls_key_file"

static void explain_alert(int alert, bool presented, const char *host, char why[TLS_LINE_BYTES])
{
	const char *said = SSL_alert_desc_string_long(alert);

	switch (alert) {
	case TLS13_AD_CERTIFICATE_REQUIRED:
		snprintf(why, TLS_LINE_BYTES, "the server wants a certificate of this host: " CLIENT_CERTIFICATE);
		break;
	case SSL_AD_HANDSHAKE_FAILURE:
		snprintf(why, TLS_LINE_BYTES, "the server refuses the TLS handshake: %s",
			 presented ? "has it an algorithm in common with this host? Its log says more"
				   : "it may want a certificate of this host (" CLIENT_CERTIFICATE
				     "), or have no algorithm in common with it");
		break;
	case SSL_AD_UNKNOWN_CA:
	case SSL_AD_BAD_CERTIFICATE:
	case SSL_AD_UNSUPPORTED_CERTIFICATE:
	case SSL_AD_CERTIFICATE_REVOKED:
	case SSL_AD_CERTIFICATE_EXPIRED:
	case SSL_AD_CERTIFICATE_UNKNOWN:
	case SSL_AD_ACCESS_DENIED:
	case SSL_AD_DECRYPT_ERROR:
		snprintf(why, TLS_LINE_BYTES,
			 "the server does not accept the certificate of this host (%s): %s; its log says more", said,
			 presented ? "renew tls_certificate_file, or have the server trust its authority"
				   : CLIENT_CERTIFICATE);
		break;
	case SSL_AD_PROTOCOL_VERSION:
		snprintf(why, TLS_LINE_BYTES,
			 "the server has no version of TLS in common with this host, which needs 1.2 or newer");
		break;
	case TLS1_AD_UNRECOGNIZED_NAME:
		snprintf(why, TLS_LINE_BYTES,
			 "the server does not know the name %.100s: correct its address, or tls_server_name", host);
		break;
	default:
		snprintf(why, TLS_LINE_BYTES, "the server ended TLS (%s): look at its log", said);
	}
}

void tls_explain_error(unsigned long error, bool presented, const char *host, char why[TLS_LINE_BYTES])
{
	int reason = ERR_GET_REASON(error);
	const char *said = ERR_reason_error_string(error);

	if (ERR_GET_LIB(error) == ERR_LIB_SSL && reason > SSL_AD_REASON_OFFSET) {
		explain_alert(reason - SSL_AD_REASON_OFFSET, presented, host, why);
		return;
	}
	switch (ERR_GET_LIB(error) == ERR_LIB_SSL ? reason : 0) {
	case SSL_R_UNSUPPORTED_PROTOCOL:
	case SSL_R_VERSION_TOO_LOW:
	case SSL_R_WRONG_SSL_VERSION:
		explain_alert(SSL_AD_PROTOCOL_VERSION, presented, host, why);
		break;
	default:
		snprintf(why, TLS_LINE_BYTES, "what the server sends is not proper TLS (%s): look at its log",
			 said ? said : "no reason is known");
	}
}
