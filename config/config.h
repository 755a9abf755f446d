/*
 * The configuration file, read with libconfig.
 *
 * config_load() either gives a complete, checked configuration or says what is wrong with file, line and
 * what was expected. An unknown setting is an error. Names of time settings end in _ms.
 */
#ifndef DFLOCK_CONFIG_CONFIG_H
#define DFLOCK_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/msg.h"
#include "wire/page.h"

enum on_lost { ON_LOST_FREEZE, ON_LOST_KILL, ON_LOST_WARN };

/* "host:port" or "[v6]:port". */
struct config_address {
	char *host;
	int port;
};

#define CONFIG_MAX_SENTINELS 16
#define CONFIG_MAX_REPLICAS  64

/* Either a server (socket, or address.host), or sentinels that know it. */
struct config_store {
	char *socket;                                          /* "unix:/path" gives /path here; else NULL */
	struct config_address address;                         /* port 6379 if not given */
	struct config_address sentinels[CONFIG_MAX_SENTINELS]; /* port 26379 if not given; no two are the same */
	size_t sentinel_count;
	char *master;            /* what the sentinels call it; NULL without sentinels */
	char *sentinel_user;     /* NULL: none */
	char *sentinel_password; /* the first line of sentinel_password_file; NULL: none */
	int replicas;            /* 0: how many replicas the master has; 1 or more with sentinels */
	char *user;              /* NULL: none */
	char *password;          /* the first line of password_file; NULL: none */
	int database;            /* 0 */
	int64_t connect_ms;      /* 5000: a connection or an answer that takes longer makes the store unreachable */
};

/*
 * How many of the replicas must have acknowledged an answer before it counts: half of all nodes, the master included,
 * rounded down, so that with the master they are a majority.
 */
static inline int config_acknowledgements(const struct config_store *store)
{
	return (store->replicas + 1) / 2;
}

struct config_lease {
	int64_t ttl_ms;           /* 30000 */
	int64_t linger_ms;        /* 1000 */
	int64_t pin_ms;           /* 1000 */
	int64_t probe_ms;         /* 200: how long a non-blocking question may take */
	int64_t store_wait_ms;    /* 30000: how long a blocking call waits for an unreachable store */
	int64_t min_hold_ms;      /* 5: a lease that two hosts want all the time stays for so long; 0: no */
	int64_t fair_ms;          /* 1000: shared requests pass waiting exclusive ones after this */
	int64_t freeze_margin_ms; /* ttl_ms / 6 */
	int64_t dead_ms;          /* 600000, at least 20 ttl_ms */
	int64_t sweep_ms;         /* 86400000: silence after which a host's leftovers are removed */
	int64_t idle_ms;          /* 60000: a keeper that nobody needs ends after this; 0: never */
	enum on_lost on_lost;     /* of rules that do not say their own */
};

/* A rule: which paths are protected, under which lock name. */
struct rule {
	enum page_rule_kind kind;
	char *pattern; /* with its fixed part resolved: what the kernel calls the file */
	char *name;    /* what stands for the first fixed_len bytes of the path in the lock name */
	/* PATH: the whole path. GLOB: the directories before the first wildcard. TREE: the directory. */
	size_t fixed_len;
	enum on_lost on_lost;
	bool refuse_unstoppable; /* unstoppable = "refuse": no lock for a program that the keeper could not stop */
	int line;
};

struct config {
	char *path; /* absolute */
	struct wire_config_id id;
	char *host; /* name of this host in the store; host = "..." or the machine's own name */
	struct config_store store;
	struct config_lease lease;
	struct rule *rules;
	size_t rule_count;
};

/*
 * Reads and checks `path`. On success 0 and *out, which the caller frees with config_free(). On failure
 * -EINVAL (contents) or -errno (reading) and one line in `why`: "FILE:LINE: what was found, what was expected".
 * Blocks on the file system: the keeper calls it at start and on reload only.
 */
int config_load(const char *path, struct config **out, char *why, size_t why_size);
void config_free(struct config *config);

/*
 * The lock name of a resolved path. 0 with the name in `name`; -ENOENT if no rule matches; -ENAMETOOLONG.
 * The first rule that matches counts. Pure.
 */
#define LOCK_NAME_BYTES 1024
int config_lock_name(const struct config *config, const char *path, char name[LOCK_NAME_BYTES]);

/* The first rule that matches a resolved path. NULL: none. Pure. */
const struct rule *config_rule(const struct config *config, const char *path);
/* What it says of on_lost; where none matches, what the lease group says. Pure. */
enum on_lost config_on_lost(const struct config *config, const char *path);

#endif
