/* tls/tls_stream.c and tls_explain.c: which certificates are refused, the server's and this host's, and what is said then. */
#include "tests/unit/tls_fixture.h"

static const struct {
	const char *names, *host, *why; /* why NULL: accepted */
} named[] = {
	{"DNS:redis.example", "redis.example", NULL},
	{"DNS:redis.example", "REDIS.example.", NULL},
	{"DNS:*.test.example", "redis.test.example", NULL},
	{"DNS:a.example,IP:10.0.0.1", "10.0.0.1", NULL},
	{"IP:fe80::1", "fe80::1%eth0", NULL},
	{NULL, "redis.example", NULL}, /* the subject, if there are no names */
	{"DNS:*.test.example", "a.b.test.example",
	 "is for *.test.example, not for a.b.test.example: correct the address, set tls_server_name"},
	{"DNS:r*.example", "redis.example", "not for redis.example"},
	{"DNS:a.example,IP:10.0.0.1,email:a@b", "redis.example", "is for a.example, 10.0.0.1, not for redis.example"},
	{"IP:10.0.0.1", "10.0.0.2", "is for 10.0.0.1, not for 10.0.0.2"},
	{"DNS:10.0.0.2", "10.0.0.2", "is for 10.0.0.2, not for 10.0.0.2"}, /* a number must stand there as one */
	{"DNS:a\x1b[31m.example", HOST, "is for a?[31m.example, not for"},
	{NULL, "other.example", "is for CN=redis.example, not for other.example"},
};

FIXTURE(setup, teardown)

TEST_EACH(names, ROWS(named))
{
	struct tls_identity id = tls_identify(&ca, HOST, named[_i].names, -DAY_S, DAY_S);

	start(&id, NULL, NULL, 0, named[_i].host);
	if (named[_i].why) {
		ck_assert_int_eq(shake(65536, SIZE_MAX), -EPROTO);
		ck_assert_msg(strstr(tls_stream_why(t), named[_i].why) != NULL, "%s", tls_stream_why(t));
	} else {
		shake_hands(65536);
	}
	stop();
	tls_forget(&id);
}

static void refuse(const struct tls_identity *id, int version, const char *why)
{
	start(id, NULL, NULL, version, HOST);
	ck_assert_int_eq(shake(65536, SIZE_MAX), -EPROTO);
	ck_assert_msg(strstr(tls_stream_why(t), why) != NULL, "%s", tls_stream_why(t));
	ck_assert_ptr_null(strchr(tls_stream_why(t), '\n'));
	ck_assert_int_eq(tls_stream_shake(t), -EPROTO);
	ck_assert_int_eq(tls_stream_feed(t, "x", 1), -EPROTO);
	/* The server hears why: the last thing that it got is an alert. */
	SSL_do_handshake(server.ssl);
	ck_assert(!SSL_is_init_finished(server.ssl));
	stop();
}

TEST_EACH(certificates_that_are_refused, 2)
{
	struct tls_identity expired = tls_identify(&ca, HOST, "DNS:" HOST, -3 * DAY_S, -DAY_S),
			    early = tls_identify(&ca, HOST, "DNS:" HOST, DAY_S, 2 * DAY_S),
			    other = tls_identify(NULL, "Another, \xc3\xa4\x1b[2J", NULL, -DAY_S, DAY_S),
			    foreign = tls_identify(&other, HOST, "DNS:" HOST, -DAY_S, DAY_S),
			    lone = tls_identify(NULL, HOST, "DNS:" HOST, -DAY_S, DAY_S);
	int version = versions[_i];

	refuse(&expired, version, "the server's certificate expired on 20");
	refuse(&early, version, "the server's certificate is not valid before 20");
	refuse(&foreign, version, "is from an authority that is not trusted here (CN=Another\\, ");
	refuse(&lone, version, "not trusted here (CN=redis.example): set tls_ca");
	tls_forget(&ca);
	ca = tls_identify(NULL, "Old", NULL, -3 * DAY_S, -DAY_S);
	tls_forget(&leaf);
	leaf = tls_identify(&ca, HOST, "DNS:" HOST, -DAY_S, DAY_S);
	refuse(&leaf, version, "the certificate of its authority (CN=Old) expired on 20");
	tls_forget(&expired);
	tls_forget(&early);
	tls_forget(&other);
	tls_forget(&foreign);
	tls_forget(&lone);
}

/* The server alone, without an authority: an ordinary certificate that tls_ca names. */
TEST(a_pinned_certificate)
{
	struct tls_identity authority = ca, pinned = leaf;

	ca = pinned;
	start(&pinned, NULL, NULL, 0, HOST);
	shake_hands(65536);
	stop();
	ca = authority;
}

static void expect_refusal_by_server(const char *why)
{
	char byte;
	int ret = shake(65536, SIZE_MAX);

	if (ret == 1) /* TLS 1.3: it comes after the client has taken the handshake for done */
		ret = (int)tls_stream_read(t, &byte, 1);
	ck_assert_int_eq(ret, -EPROTO);
	ck_assert_msg(strstr(tls_stream_why(t), why) != NULL, "%s", tls_stream_why(t));
	stop();
}

TEST_EACH(certificates_of_this_host, 2)
{
	struct tls_identity own = tls_identify(&ca, "me", NULL, -DAY_S, DAY_S),
			    expired = tls_identify(&ca, "me", NULL, -3 * DAY_S, -DAY_S),
			    other = tls_identify(NULL, "Another", NULL, -DAY_S, DAY_S),
			    foreign = tls_identify(&other, "me", NULL, -DAY_S, DAY_S);
	int version = versions[_i];

	start(&leaf, &ca, &own, version, HOST);
	shake_hands(65536);
	send_to_server("x", 1);
	stop();
	start(&leaf, &ca, NULL, version, HOST);
	expect_refusal_by_server("want");
	start(&leaf, &ca, NULL, version, HOST);
	expect_refusal_by_server("a certificate of this host");
	start(&leaf, &ca, NULL, version, HOST);
	expect_refusal_by_server("set tls_certificate_file and tls_key_file");
	start(&leaf, &ca, &expired, version, HOST);
	expect_refusal_by_server("does not accept the certificate of this host (certificate expired): renew");
	start(&leaf, &ca, &foreign, version, HOST);
	expect_refusal_by_server("does not accept the certificate of this host (unknown CA)");
	tls_forget(&own);
	tls_forget(&expired);
	tls_forget(&other);
	tls_forget(&foreign);
}

TEST(old_versions)
{
	refuse(&leaf, TLS1_1_VERSION, "no version of TLS in common with this host, which needs 1.2 or newer");
}
