/* What the files of `dflock doctor` share. */
#ifndef DFLOCK_CLI_DOCTOR_H
#define DFLOCK_CLI_DOCTOR_H

#include <hiredis.h>
#include <jansson.h>
#include <stdbool.h>

#include "cli/cli.h"
#include "config/config.h"
#include "tls/tls_context.h"
#include "tls/tls_stream.h"
#include "wire/place.h"

enum finding { FINDING_OK, FINDING_WARNING, FINDING_PROBLEM };

struct doctor {
	struct place place;
	struct config *config; /* NULL: there is none, or it is invalid */
	const struct config_store
		*store;          /* which of its stores is looked at: lines say so if there are several; NULL: none */
	const char *part;        /* ... of which one shard is; NULL: the whole */
	struct tls_context *tls; /* to that store. NULL: it wants none, or the files cannot be used */
	unsigned counts[3];      /* by enum finding */
	json_t *found;           /* --json: what was found, instead of printing it; NULL: without */
};

/* Prints one line: what was found and, unless it is in order, what to do. */
void doctor_find(struct doctor *d, enum finding level, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Without a configuration (NULL): all the rights that may be needed. Returns the exit status. */
int doctor_acl(const struct config *config);
/* doctor_keeper.c: the configuration is invalid, or this user cannot read all of it (why): a finding, which depends on what the keeper
 * makes of it. */
void doctor_unread(struct doctor *d, const char *why);
/* doctor_keeper.c: runtime directory, keeper, which configuration it has, store. May start a keeper. */
void doctor_keeper(struct doctor *d);
/* doctor_replicas.c: of d->store: the files of TLS, sentinels, the master's replicas. Waits for their answers. */
void doctor_replicas(struct doctor *d);
/* doctor_files.c: every path and tree of the configuration. */
void doctor_files(struct doctor *d);
/* doctor_preloads.c: crontabs, units and similar files that preload a libdflock.so that does not exist. */
void doctor_preloads(struct doctor *d);

/* --- a connection to a server or a sentinel: one question, one answer (doctor_dial.c) --- */

struct dial {
	int fd;                 /* -1: there is no connection, and why says it */
	int64_t limit_ms;       /* for the connection, and for each answer */
	int64_t until_ms;       /* ... this one */
	struct tls_stream *tls; /* NULL: none */
	redisReader *reader;
	char why[TLS_LINE_BYTES];
};

/* host NULL: the configuration's socket. tls, password NULL: none. End it with dial_close() in any case. */
void dial_open(struct dial *d, const struct config_store *store, const char *host, int port, struct tls_context *tls,
	       const char *user, const char *password);
/* One question, in hiredis's format. The caller frees the reply. NULL, also after an error reply: d->why. */
redisReply *dial_ask(struct dial *d, const char *format, ...) __attribute__((format(printf, 2, 3)));
void dial_close(struct dial *d);

#define FILES_LINE_BYTES 512

/* doctor_files.c: what a file system of that type, mounted with those options, does with flock(): the file system and what that
 * means, in words. Pure. */
enum finding files_judge(const char *type, const char *options, char line[FILES_LINE_BYTES]);

#endif
