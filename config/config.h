/*
 * The configuration file, read with libconfig.
 *
 * config_load(), or config_fetch() and then config_parse(), either gives a complete, checked configuration, or one line
 * that says in which file and line something is wrong, and what was expected. An unknown setting is an error. Names of
 * time settings end in _ms.
 */
#ifndef DFLOCK_CONFIG_CONFIG_H
#define DFLOCK_CONFIG_CONFIG_H

#include <limits.h>
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

/* TLS to the server and the sentinels. The files are read when a connection is made (tls/tls_context.h), and not with the
 * configuration: renewed ones count at once. */
struct config_tls {
	bool on;           /* rediss:// */
	bool only_server;  /* the sentinels are reached without */
	char *ca;          /* a file, or a directory of files; NULL: the authorities that the system trusts */
	char *certificate; /* this host's, a file; NULL: none */
	char *key;         /* its key, a file; NULL if and only if `certificate` is */
	char *server_name; /* which name must stand in the server's certificate; NULL: that of the address */
};

#define CONFIG_MAX_SENTINELS 16
#define CONFIG_MAX_REPLICAS  64
#define CONFIG_MAX_MEMBERS   32 /* stores of a configuration, each shard counted */
#define CONFIG_STORE_BYTES   33 /* of a store's name, and NUL */
#define CONFIG_GROUP_BYTES   (CONFIG_STORE_BYTES + 7)

/* Either a server (socket, or address.host), or sentinels that know it, or nodes of a Redis Cluster; or a server of another engine. The
 * numbers in these comments are the defaults. */
struct config_store {
	const char *name;        /* the setting's in `stores`; "": the default, `store` */
	struct config_t *parsed; /* libconfig's; of stores[0], owns the strings of all stores but hosts and passwords */
	const char *postgresql;  /* libpq's connection string; NULL: none. Without both the store is Redis */
	const char *zookeeper;   /* "h1:2181,h2:2181/dflock"; NULL: none */
	const char *socket;      /* "unix:/path" gives /path here; else NULL */
	struct config_address address;                         /* port 6379 */
	struct config_address sentinels[CONFIG_MAX_SENTINELS]; /* port 26379; no two are the same */
	size_t sentinel_count;
	bool cluster; /* what is in `sentinels` are nodes of a Redis Cluster, port 6379, and know which of them it is */
	const char *master;        /* what the sentinels call it; NULL without sentinels, and with a cluster */
	const char *sentinel_user; /* NULL: none */
	char *sentinel_password;   /* the first line of sentinel_password_file; NULL: none */
	int replicas;     /* how many replicas the master has: 0; no default with sentinels (1 or more) or a cluster */
	const char *user; /* NULL: none */
	char *password;   /* the first line of password_file; NULL: none */
	int database;     /* 0 */
	unsigned shards;  /* 1: lock tables over which the names are spread (config_shard()) */
	struct config_tls tls;
	bool keys;          /* a rule has a redis_key: the user needs rights for it */
	int64_t connect_ms; /* 5000: how long a connection or an answer may take, else the store is unreachable */
};

/* How the file calls the store: "store", or "stores." and its name. Returns `group`. Pure. */
const char *config_store_group(const struct config_store *store, char group[CONFIG_GROUP_BYTES]);

/*
 * How many replicas must have acknowledged an answer before it counts: half of all nodes, the master included, rounded
 * down. Together with the master they are a majority.
 */
static inline int config_acknowledgements(const struct config_store *store)
{
	return (store->replicas + 1) / 2;
}

/*
 * Engines but Redis' are objects of their own, which the keeper loads: with the libraries that they need, which nobody else needs.
 * The name of the store's engine, which is that of its setting; NULL: Redis. Pure.
 */
const char *config_engine(const struct config_store *store);
/* Where the object of an engine lies in this installation. 0 with its path; -ENOENT with a line in `why`: which package has it. Looks at
 * the file system of the installation. */
int config_find_engine(const char *engine, char path[PATH_MAX], char *why, size_t why_size);

struct config_lease {
	int64_t ttl_ms;           /* 30000: how long a lease stands without word from its host */
	int64_t linger_ms;        /* 1000: how long a lease stays here after its last use */
	int64_t pin_ms;           /* 1000: how long a grant waits until the program has taken its kernel lock */
	int64_t probe_ms;         /* 200: how long a non-blocking question may take */
	int64_t store_wait_ms;    /* 30000: how long a blocking call waits for an unreachable store */
	int64_t min_hold_ms;      /* 5: how long a lease stays that two hosts want all the time; 0: it goes at once */
	int64_t fair_ms;          /* 1000: shared requests pass waiting exclusive ones after this */
	int64_t freeze_margin_ms; /* ttl_ms / 6: how long before a lease ends its holders are stopped */
	int64_t dead_ms;          /* 600000, or 20 ttl_ms if that is more: silence after which a host is dead at once */
	int64_t sweep_ms;         /* 86400000: silence after which what a host left in the store is removed */
	int64_t idle_ms;          /* 60000: an unused keeper ends after this; 0: never */
	int64_t past_look_ms;     /* 5000: the least time between two looks at the machine's locks; 0: none */
	int64_t wait_warn_ms; /* 0: never: a caller that waits for so long is an event; for rules without their own */
	enum on_lost on_lost; /* freeze: for rules without an on_lost of their own */
	enum wire_on_refused on_refused; /* refuse: ditto */
};

#define CONFIG_KILL_LEAST_MS 1000
#define CONFIG_KEY_BYTES     512 /* of a redis_key, and NUL */

/* A rule: which paths are protected, under which lock name. */
struct rule {
	enum page_rule_kind kind;
	char *pattern; /* absolute; its fixed part is resolved, as the kernel names the file */
	char *name;    /* stands for the first fixed_len bytes of the path in the lock name */
	/* PATH: the whole path. GLOB: the directories before the first wildcard. TREE: the directory. */
	size_t fixed_len;
	enum on_lost on_lost;
	enum wire_on_refused on_refused;
	unsigned refuse_unstoppable; /* unstoppable = "refuse": programs that the keeper could not stop get no lock */
	int64_t at_least_ms; /* a new lock keeps all others from it for this long, also after its end; 0: it does not */
	int64_t warn_after_ms; /* a lock that is held for longer is reported; 0: none is */
	int64_t kill_after_ms; /* ditto: its holders are ended; 0 or at least CONFIG_KILL_LEAST_MS */
	int64_t wait_warn_ms;  /* a caller that waits for so long is an event; 0: none is */
	char *redis_key;       /* "FORMAT KEY": its lease is also the lock of this key of Redis; NULL: of none */
	unsigned store;        /* of config.stores: where the locks of its files are */
	int line;              /* of the file: where its path or tree stands */
};

struct config {
	char *path; /* absolute */
	struct wire_config_id id;
	char *host;       /* name of this host in the store; host = "..." or the machine's own name */
	int log_level;    /* LOG_ERR, LOG_WARNING, LOG_INFO or LOG_DEBUG (syslog.h); -1: it does not say */
	bool allow_break; /* false: `dflock break` on other hosts may end processes here */
	bool show_jobs;   /* true: other hosts are told pid and command name of the programs that hold locks here */
	struct config_store *stores; /* [0]: the default. Behind it those with names, in the order of the file */
	size_t store_count;
	struct config_lease lease;
	struct rule *rules;
	size_t rule_count;
	struct rule
		names;   /* of `dflock lock`, in front of `rules`: see config_set_names(). No pattern: there is none */
	char **on_event; /* the command that is run for events: its words, and NULL. NULL: there is none */
	bool has_store, has_protect; /* whether the file has these settings at all */
	char *text;                  /* what was read, text_len bytes; a NUL follows */
	size_t text_len;
};

/* The bytes of a configuration file, unchecked. */
struct config_source {
	char *path; /* absolute */
	struct wire_config_id id;
	char *text; /* len bytes, and a NUL */
	size_t len;
	bool shared; /* another user than root and the caller may have written it: it cannot have an on_event */
};

/* Reads the bytes of `path`. 0: config_source_free() frees what is in *source. Errors as those of config_load(); then
 * nothing is to be freed. */
int config_fetch(const char *path, struct config_source *source, char *why, size_t why_size);
void config_source_free(struct config_source *source);

/* Checks what was read, resolves paths, and reads the password files, unless `rules_only`. The text is copied. Results as those of
 * config_load(). */
int config_parse(const struct config_source *source, bool rules_only, struct config **out, char *why, size_t why_size);

/*
 * Reads and checks `path`: config_fetch() and config_parse(). 0 with *out, which the caller frees with config_free().
 * On failure -EINVAL (contents), -ENOMEM or -errno (reading; -EACCES also of a password file), and one line in `why`: "FILE:LINE: what was found; what
 * was expected". All three block on the file system: the keeper calls them at its start, and later only in a worker.
 */
int config_load(const char *path, struct config **out, char *why, size_t why_size);
/* As config_load(), without the passwords, whose files are not read: for programs that connect to no store. */
int config_load_rules(const char *path, struct config **out, char *why, size_t why_size);
void config_free(struct config *config);

/*
 * The lock name of a resolved path, by the first rule that matches it. 0 with the name in `name`; -ENOENT: no rule
 * matches; -ENAMETOOLONG. Pure.
 */
#define LOCK_NAME_BYTES 1024
int config_lock_name(const struct config *config, const char *path, char name[LOCK_NAME_BYTES]);

/* The way back: a path that a rule gives this lock name. 0; -ENOENT: there is none. Pure. */
int config_path_of(const struct config *config, const char *name, char path[PATH_MAX]);

/*
 * Protects the files in the resolved directory `dir`, each as CONFIG_NAMES and its own name: these stand for locks without
 * a file (`dflock lock`). A file NAME~MS stands for the lock NAME, too; its at_least_ms is MS. No rule of the file is about
 * them. 0 or -ENOMEM.
 */
#define CONFIG_NAMES       "lock:"
#define CONFIG_NAMES_REST  '~'
#define CONFIG_RULE_MAX_MS INT64_C(2592000000) /* 30 days: the largest at_least_ms and kill_after_ms */
int config_set_names(struct config *config, const char *dir);

/* The first rule that matches a resolved path. NULL: none. Pure. */
const struct rule *config_rule(const struct config *config, const char *path);
/* What counts for a resolved path: that rule, with the at_least_ms of this path. If no rule matches, the rest is 0 but for
 * what the group `lease` says. Valid as long as config. Pure. */
struct rule config_rule_for(const struct config *config, const char *path);
/* The redis_key of the rule that gives a file this lock name; NULL: there is no such rule, or it has none. Pure. */
const char *config_redis_key_of(const struct config *config, const char *name);
/* In which shard of its store the locks of this name are. Follows from the name and the number alone, for ever. Pure. */
unsigned config_shard(const struct config_store *store, const char *name);
/* The index of the store of that rule; 0, the default: there is no such rule. Pure. */
size_t config_store_of(const struct config *config, const char *name);
/* Can the command of on_event be run by the caller? 0 also if there is none. -errno with one line in `why`. Blocks on the
 * file system. */
int config_can_run(const struct config *config, char *why, size_t why_size);
/*
 * May `fresh` take the place of `old` without an operator's command (follow.c)? True if it certainly protects every
 * file that `old` protects, under the same name in the same store, and does no less for a lost lease. False with the reason in `why`,
 * which is to stand behind "FILE: ". Calls malloc(), otherwise pure.
 */
bool config_follows(const struct config *old, const struct config *fresh, char *why, size_t why_size);

/* A level of the log as a word (the values are syslog.h's): "error", "warning", "info" or "debug". config_log_level(): -1 if it is
 * none of them. Pure. */
#define CONFIG_LOG_LEVELS "\"error\", \"warning\", \"info\" or \"debug\""
int config_log_level(const char *word);
const char *config_log_level_name(int level);

/* Are those settings the same that cannot change while leases are held: the host, the stores in their order but for passwords, ttl_ms and
 * sweep_ms? Pure. */
bool config_same_store(const struct config *a, const struct config *b);
/* Of two with the same stores. Pure. */
void config_swap_passwords(struct config *a, struct config *b);

/* How many letters must be changed, added or removed to make b of a. SIZE_MAX: b is no word but a text. */
size_t config_distance(const char *a, const char *b);

#endif
