/* The part of `dflock doctor` that looks at TLS to the store: files, and when certificates expire. */
#include "cli/doctor.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#define DAY_S     86400
#define SOON_DAYS 14

static void check_left(struct doctor *d, const char *whose, int64_t left_s)
{
	int64_t days = left_s / DAY_S;

	if (left_s < 0)
		doctor_find(d, FINDING_PROBLEM,
			    "%s has expired; renew it (running keepers take a new one over by themselves)", whose);
	else if (days < SOON_DAYS)
		doctor_find(d, FINDING_WARNING,
			    "%s expires in %" PRId64
			    " days; renew it (running keepers take a new one over by themselves)",
			    whose, days);
	else
		doctor_find(d, FINDING_OK, "%s is valid for %" PRId64 " more days", whose, days);
}

void doctor_tls(struct doctor *d)
{
	char why[TLS_LINE_BYTES];
	int64_t left_s;
	int ret;

	if (!d->config || !d->config->store.tls.on)
		return;
	ret = tls_context_load(&d->config->store.tls, &d->tls, why);
	if (ret == -EACCES && geteuid() != 0)
		doctor_find(
			d, FINDING_WARNING,
			"%s; that does no harm where the keeper is another user's, and `dflock doctor` as that user also looks "
			"at the servers",
			why);
	else if (ret < 0)
		doctor_find(d, FINDING_PROBLEM, "%s; until this is mended no keeper can connect anew", why);
	else if (tls_context_left_s(d->tls, &left_s))
		check_left(d, "this host's certificate (tls_certificate_file)", left_s);
}

void doctor_tls_server(struct doctor *d, const char *at, const struct tls_stream *tls)
{
	char whose[512];

	snprintf(whose, sizeof(whose), "%s is reached by %s, and its certificate", at, tls_stream_version(tls));
	check_left(d, whose, tls_stream_left_s(tls));
}
