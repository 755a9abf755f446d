/*
 * What is known of the processes that hold a lock on all hosts (who.h), as JSON and as one line. Pure, but for the time of
 * day.
 *
 * A name that may be old is never shown as a holder: the program that asked for a lease may have ended, and another one
 * may have got the lock from this host's kernel since. It is "last known".
 */
#ifndef DFLOCK_KEEPER_WHOREPORT_H
#define DFLOCK_KEEPER_WHOREPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "keeper/callers/finding.h"
#include "store/store.h"

#define WHO_HOSTS 17 /* this one, and those that are asked */

enum who_state {
	WHO_UNASKED,  /* there are too many hosts, or the store is not reachable */
	WHO_OLD,      /* its version cannot be asked */
	WHO_SILENT,   /* asked; no answer so far */
	WHO_ANSWERED, /* for this host: its /proc was looked through */
};

struct who_host {
	char host[STORE_HOST_BYTES];
	bool own;
	enum who_state state;
	uint64_t count; /* of its findings; more than shown if it does not tell them all (show_jobs) */
	size_t shown;
	struct finding holders[FINDING_MAX];
};

struct who_report {
	char name[LOCK_NAME_BYTES];
	bool is_protected;           /* asked by a path: does a rule protect it? */
	const char *why;             /* "": the store has said what it has; else why it has not */
	struct store_entry *entries; /* what it has */
	size_t entry_count;
	struct store_aside aside;          /* what it knows of rests, and of a client */
	struct who_host *hosts[WHO_HOSTS]; /* the first is this one */
	size_t host_count;
	uint64_t left_out; /* leases of hosts for which there was no room */
};

/* docs/state.md, "One lock". Hosts that have neither lease nor holder are left out. NULL: no memory. */
json_t *whoreport_json(const struct who_report *report);

/* "PATH: held by host web3, pid 4711 (nightly), since 03:00:01": what is in the way of a lock that `but` wants. */
void whoreport_line(const struct who_report *report, const char *path, const struct store_range *wanted, pid_t but,
		    char *out, size_t size);

#endif
