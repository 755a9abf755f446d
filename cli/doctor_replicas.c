/* The part of `dflock doctor` that looks at TLS, sentinels and replicas. It asks each of them itself. */
#include "cli/doctor.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AT_BYTES 320

static void show_address(char at[AT_BYTES], const char *host, int port)
{
	snprintf(at, AT_BYTES, strchr(host, ':') ? "[%.255s]:%d" : "%.255s:%d", host, port);
}

/* ---- TLS: the files, and when certificates expire ---- */

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

static void doctor_tls(struct doctor *d)
{
	char why[TLS_LINE_BYTES];
	int64_t left_s;
	int ret;

	if (!d->store->tls.on)
		return;
	ret = tls_context_load(&d->store->tls, &d->tls, why);
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

static void check_certificate(struct doctor *d, const char *at, const struct tls_stream *tls)
{
	char whose[512];

	snprintf(whose, sizeof(whose), "%s is reached by %s, and its certificate", at, tls_stream_version(tls));
	check_left(d, whose, tls_stream_left_s(tls));
}

/* ---- sentinels ---- */

struct master {
	char host[256];
	int port;
	bool known;
};

static const char *field(const redisReply *fields, const char *name)
{
	for (size_t i = 0; fields->type == REDIS_REPLY_ARRAY && i + 1 < fields->elements; i += 2)
		if (fields->element[i]->type == REDIS_REPLY_STRING && strcmp(fields->element[i]->str, name) == 0 &&
		    fields->element[i + 1]->type == REDIS_REPLY_STRING)
			return fields->element[i + 1]->str;
	return "";
}

static void check_counts(struct doctor *d, const char *at, const redisReply *fields)
{
	const struct config_store *store = d->store;
	int replicas = atoi(field(fields, "num-slaves"));
	size_t sentinels = (size_t)atoi(field(fields, "num-other-sentinels")) + 1;

	if (replicas != store->replicas)
		doctor_find(
			d, FINDING_PROBLEM,
			"sentinel %s knows %d replicas, and the configuration says replicas = %d; if it has counted "
			"right (SENTINEL RESET makes it count anew), set that on every host",
			at, replicas, store->replicas);
	if (sentinels > store->sentinel_count)
		doctor_find(
			d, FINDING_WARNING,
			"sentinel %s says that there are %zu sentinels, and the configuration has %zu; add the others",
			at, sentinels, store->sentinel_count);
	if (sentinels < 3)
		doctor_find(d, FINDING_WARNING,
			    "sentinel %s says that there are %zu sentinels; with fewer than three, one that fails may "
			    "keep the others from promoting a replica",
			    at, sentinels);
}

/* Asks one sentinel. The first answer names the master, and the others must name the same. False: no usable
 * answer. */
static bool check_sentinel(struct doctor *d, const struct config_address *address, struct master *master)
{
	const struct config_store *store = d->store;
	char at[AT_BYTES], there[AT_BYTES];
	redisReply *fields;
	struct dial c;

	show_address(at, address->host, address->port);
	dial_open(&c, store, address->host, address->port, store->tls.only_server ? NULL : d->tls, store->sentinel_user,
		  store->sentinel_password);
	fields = dial_ask(&c, "SENTINEL MASTER %s", store->master);
	if (!fields)
		doctor_find(d, FINDING_WARNING, "sentinel %s is of no use: %s", at, c.why);
	dial_close(&c);
	if (!fields)
		return false;
	const char *host = field(fields, "ip");
	int port = atoi(field(fields, "port"));
	show_address(there, host, port);
	if (master->known && (strcmp(master->host, host) != 0 || master->port != port))
		doctor_find(d, FINDING_WARNING, "sentinel %s says that %s is %s; is it cut off from the others?", at,
			    store->master, there);
	else
		doctor_find(d, FINDING_OK, "sentinel %s says that %s is %s", at, store->master, there);
	if (!master->known) {
		snprintf(master->host, sizeof(master->host), "%s", host);
		master->port = port;
		master->known = true;
		check_counts(d, at, fields);
	}
	freeReplyObject(fields);
	return true;
}

static void check_sentinels(struct doctor *d, struct master *master)
{
	const struct config_store *store = d->store;
	size_t good = 0;

	for (size_t i = 0; i < store->sentinel_count; i++)
		good += check_sentinel(d, &store->sentinels[i], master);
	if (good == 0)
		doctor_find(d, FINDING_PROBLEM,
			    "no sentinel answers for %s; locks are refused once the connection to the store is lost",
			    store->master);
}

/* ---- the master ---- */

static void check_connected(struct doctor *d, const char *at, int connected)
{
	const struct config_store *store = d->store;
	int acks = config_acknowledgements(store);

	if (store->replicas == 0 && connected > 0)
		doctor_find(
			d, FINDING_WARNING,
			"%s has %d replicas, and the configuration says replicas = 0; if one is promoted while this "
			"server lives on, both may grant the same lock: set replicas if that can happen",
			at, connected);
	if (store->replicas == 0)
		return;
	if (connected > store->replicas)
		doctor_find(d, FINDING_PROBLEM,
			    "%d replicas are connected to %s, and the configuration says replicas = %d; locks are "
			    "refused until the number is right on every host",
			    connected, at, store->replicas);
	else if (connected < acks)
		doctor_find(d, FINDING_PROBLEM,
			    "%d of %d replicas are connected to %s, and locks need %d of them; locks are refused "
			    "until they are back",
			    connected, store->replicas, at, acks);
	else
		doctor_find(d, connected < store->replicas ? FINDING_WARNING : FINDING_OK,
			    "%d of %d replicas are connected to %s, and locks need %d of them", connected,
			    store->replicas, at, acks);
	if (store->replicas == 1)
		doctor_find(d, FINDING_WARNING,
			    "with replicas = 1 locks are refused as soon as either of the two servers fails; a second "
			    "replica mends that");
}

static void check_master(struct doctor *d, const struct master *master)
{
	const struct config_store *store = d->store;
	char at[AT_BYTES] = "the server";
	const char *host = master->known ? master->host : store->address.host, *connected;
	int port = master->known ? master->port : store->address.port;
	redisReply *reply;
	struct dial c;

	if (host)
		show_address(at, host, port);
	dial_open(&c, store, host, port, d->tls, store->user, store->password);
	reply = dial_ask(&c, "INFO replication");
	if (reply && reply->type == REDIS_REPLY_STRING) {
		connected = strstr(reply->str, "\nconnected_slaves:");
		if (c.tls)
			check_certificate(d, at, c.tls);
		check_connected(d, at, connected ? atoi(connected + strlen("\nconnected_slaves:")) : 0);
	} else if (store->replicas > 0 || *store->name) { /* else doctor_keeper.c has reported it */
		doctor_find(d, FINDING_PROBLEM, "%s cannot be asked for its replicas: %s", at, c.why);
	}
	freeReplyObject(reply);
	dial_close(&c);
}

/* ---- a cluster ---- */

/* Which of them is the master, and whether it has its replicas, the keeper has found out (doctor_keeper.c). */
static void check_nodes(struct doctor *d)
{
	const struct config_store *store = d->store;
	char at[AT_BYTES];

	for (size_t i = 0; i < store->sentinel_count; i++) {
		const struct config_address *node = &store->sentinels[i];
		struct dial c;
		redisReply *reply;

		show_address(at, node->host, node->port);
		dial_open(&c, store, node->host, node->port, d->tls, store->user, store->password);
		reply = dial_ask(&c, "CLUSTER SLOTS");
		if (reply)
			doctor_find(d, FINDING_OK, "node %s of the cluster answers", at);
		else
			doctor_find(d, FINDING_WARNING, "node %s of the cluster is of no use: %s", at, c.why);
		freeReplyObject(reply);
		dial_close(&c);
	}
}

void doctor_replicas(struct doctor *d)
{
	struct master master = {.known = false};

	if (config_engine(d->store))
		return;
	doctor_tls(d);
	if (d->store->tls.on && !d->tls)
		return;
	if (d->store->cluster)
		check_nodes(d);
	else if (d->store->sentinel_count > 0)
		check_sentinels(d, &master);
	if (d->store->sentinel_count == 0 || master.known)
		check_master(d, &master);
	tls_context_free(d->tls);
	d->tls = NULL;
}
