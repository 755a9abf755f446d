/*
 * What the files of the store share, whatever engine it has. Each file calls only files above it in this list:
 *
 *   words.c                        words and fields: what messages and answers are made of; messages (pure)
 *   reply.c                        the answers of the rules, made into what store.h promises (pure)
 *   histogram.c                    how long things took, counted (pure)
 *   scripts.c                      the texts of the rules (rules/)
 *   query.c                        one question to the store and its answer; the way up for bad news; memory that must be
 *                                  there; which address of a name
 *   load.c                         which engine, and its object
 *   life.c                         life: up and down, the incarnation record, messages
 *   operations.c, walk.c, posted.c the calls of store.h
 *
 * Below them is an engine (struct engine), in a folder of its own: it reaches a server and has it run the rules. News
 * goes up through struct store_news, which life.c sets.
 */
#ifndef DFLOCK_STORE_INTERNAL_H
#define DFLOCK_STORE_INTERNAL_H

#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "store/reply.h"
#include "store/scripts.h"
#include "store/store.h"
#include "store/words.h"

#define STORE_KEYS         "dflock:{0}:" /* of shard 0, and of stores without shards. Other shards: struct store, `keys` */
#define STORE_KEYS_BYTES   16
#define STORE_LOCK         "lock:"
#define STORE_REST         "rest:" /* a field of `rests`: and the space, ':', the name */
#define STORE_HOST         "host:" /* and the host's id: the channel of its messages */
#define STORE_LOCK_KEY     STORE_KEYS STORE_LOCK
#define STORE_RESTS        STORE_KEYS "rests"
#define STORE_REST_KEY     STORE_KEYS STORE_REST
#define STORE_HOST_CHANNEL STORE_KEYS STORE_HOST
#define SERVER_BYTES       640 /* for people: the master's name, and its address */
#define QUERY_ARGS         (26 + 2 * STORE_MAX_BLOCKERS)

struct query;
/* The answer to a query: `reply`, which is no error reply and valid during the call; or NULL, with `status`
 * STORE_UNREACHABLE or STORE_ERROR and one line in `error`. The query is freed afterwards. */
typedef void query_done(struct query *q, const redisReply *reply, enum store_status status, const char *error);

struct query_list {
	struct query *first, **last;
};

enum store_state {
	STORE_DOWN,       /* waits for the retry timer */
	STORE_CONNECTING, /* the engine connects; then the record is read */
	STORE_SHUT,       /* connected, and the record was read: store_admit() is awaited */
	STORE_UP,
	STORE_FREED, /* waits for its handles to close */
};

/* What the lower files tell life.c. */
struct store_news {
	/* store_fail() was called, or store_reject() (`answers`): see there. `why` is one line. */
	void (*failed)(struct store *s, const char *why, bool answers);
	/* The engine has connected: it takes queries, messages of this host come, and the server was checked. */
	void (*connected)(struct store *s);
	/* A message to this host came; valid during the call. */
	void (*message)(struct store *s, const char *text, size_t len);
};

/*
 * An engine: a kind of server. All functions are called from the loop. The callbacks of what was asked come from the
 * loop, too, but for those that close() ends. A rule is one step: what it reads and writes, and what it publishes, is
 * as if no other rule ran meanwhile, and an answer comes when the server will not lose it, or begins a new incarnation
 * if it does (the identity that rules/common.lua compares).
 */
struct engine {
	const char *version; /* DFLOCK_VERSION: an object of another version is not used */
	const char *name;    /* of its setting in the configuration */
	size_t query_bytes;  /* of the engine's struct for a query, which begins with struct query and is zeroed */
	/* Makes s->at and s->server for a new store. 0 or -ENOMEM. */
	int (*open)(struct store *s);
	/* Reaches the server, for STORE_CONNECTING. Ends in news->connected(), store_fail() or store_reject().
	 * s->retry does not run meanwhile, and is the engine's for a time limit; it is stopped before
	 * news->connected(). */
	void (*connect)(struct store *s);
	/* Ends all connections and attempts. Each query that was asked and not answered ends by query_end() with
	 * STORE_UNREACHABLE and s->error, before this returns. */
	void (*close)(struct store *s);
	/* on_up was called. */
	void (*up)(struct store *s);
	/* In STORE_UP, three times in each ttl: is everything still as it was? Calls store_fail() or store_reject()
	 * if not. */
	void (*check)(struct store *s);
	/* Frees s->at, after close(). */
	void (*free)(struct store *s);
	/* Sends a query. 0: it ends by query_answer() or query_end() later. Else -errno. */
	int (*ask)(struct query *q);

	/* What not every engine has: NULL. */

	/* store_watch_key() and store_unwatch_key(). */
	void (*watch)(struct store *s, const char *key);
	void (*unwatch)(struct store *s, const char *key);
	/* Finds out s->risk. */
	void (*look)(struct store *s);
	/* store_prepare_release() and so on: shots. prepare() returns NULL where only the loop can send. fire(),
	 * from any thread: true: it is sent, and the query ends as by ask(). The query of a shot that was not fired
	 * is not the engine's. */
	void *(*prepare)(struct query *q);
	bool (*fire)(struct store *s, void *shot);
	void (*drop)(void *shot);
};
extern const struct engine redis_engine;
/* Each other engine is an object of its own, dflock-NAME.so, which shows this alone. What it may call of dflock is listed in
 * store/engines.list. */
#define ENGINE_SHOWN __attribute__((visibility("default")))
extern const struct engine dflock_engine;

/* life.c: the incarnation record as last seen. */
struct store_record {
	char incarnation[STORE_INC_BYTES];
	bool grace;
	uint64_t fence;   /* the largest that was seen, in this incarnation or an earlier one: store_see_fence() */
	bool rereading;   /* the record was asked for while the store is up */
	bool again;       /* ... and is to be read once more after that */
	bool ttl_refused; /* the record has another ttl_ms, or number of shards, as last seen */
	/* store_open(FORCED, TAKE or MAY), called while ttl_refused: sent at the next connection. NULL: none */
	struct query *init;
	enum store_open init_how;
};

struct store {
	uv_loop_t *loop;
	const struct config_store *config;
	int64_t ttl_ms;
	char keys[STORE_KEYS_BYTES]; /* what its keys begin with: "dflock:{N}:" in shard N */
	unsigned shard;
	bool shut; /* store_be_shard() */
	char host[STORE_HOST_BYTES];
	uint64_t own_seat[2], *seat; /* store_keep_seat() */
	uint64_t own_seen[2], *seen; /* store_keep_seen(): STORE_SEEN_... */
	struct store_callbacks callbacks;
	void *arg;
	const struct store_news *news;
	const struct engine *engine;
	void *at; /* the engine's */

	enum store_state state;
	uv_timer_t retry, ping, soon; /* soon: query.c */
	unsigned open_handles;
	uint64_t retry_ms;
	char error[REPLY_LINE_BYTES];    /* why it is down; "" */
	bool answers;                    /* that is what the server answered */
	char reported[REPLY_LINE_BYTES]; /* the reason that on_down was last called with */
	bool noted;                      /* a bad message was reported since the last on_up */
	struct query_list refused;       /* these queries end at the next turn of the loop */
	struct store_record record;
	struct store_counts counts; /* query.c: asked, took, failed; life.c: the others */

	/* What the engine finds out. */
	char server[SERVER_BYTES]; /* for people */
	char version[STORE_VERSION_BYTES];
	bool provisional;            /* what a message says that was granted may not be kept: store_message */
	bool risk_unseen;            /* this connection cannot ask for it */
	char risk[REPLY_LINE_BYTES]; /* store_risk() */
};

/* ---- query.c ---- */

/* For memory without which a caller would wait for its answer for ever. Returns `memory`; if that is NULL, ends the
 * process with a line (the keeper's parent starts it again). */
void *store_need(void *memory);

/* Of the addresses of a name (at least one): the first for attempt 0, which the machine prefers, and then one after the other. Goes by what they
 * are, since DNS may say them in another order at each look-up. Pure. */
const struct addrinfo *store_address(const struct addrinfo *list, unsigned attempt);

/* This connection, or this attempt to connect, is of no use: the engine closes (all pending queries
 * end, before this returns), reports the reason, and starts the retry timer. Nothing happens while the store is
 * down already, or freed. */
void store_fail(struct store *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same, because of what the server answered: to people the store cannot be used, rather than is not reachable. */
void store_reject(struct store *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

struct query {
	struct store *store;
	int script; /* enum script_id; or -1: a single command, which is the first word */
	int keys;   /* of a script: so many of the words are its keys */
	int argc;
	char *argv[QUERY_ARGS];
	uint64_t sent_ns; /* uv_hrtime(); 0: not sent */
	query_done *done;

	/* for `done` */
	union {
		store_reply_cb *reply;
		store_hosts_cb *hosts;
		store_entries_cb *entries;
		store_rules_cb *rules;
	} cb;
	void *arg;
	unsigned may;  /* REPLY_MAY() bits */
	uint64_t seat; /* query_seat() */

	/* Refused without being sent. */
	struct query *next;
	enum store_status status;
	char error[REPLY_LINE_BYTES];
};

/* Prepares the lists of a new store. */
void query_init(struct store *s);
/* A call of a script, with its keys and the incarnation. `name`: the lock's, or NULL. Running out of memory ends the
 * process, here and when words are added. */
struct query *query_script(struct store *s, enum script_id script, const char *name, void *arg);
/* A single command, as the rules call it (redis.call()); and SCAN, HKEYS, SETRANGE of nothing, PUBLISH. */
struct query *query_command(struct store *s, const char *command, void *arg);
/* The next argument, copied; several, and NULL behind them. More than QUERY_ARGS end the process. */
void query_word(struct query *q, const char *word);
void query_words(struct query *q, ...) __attribute__((sentinel));
void query_add(struct query *q, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* One more argument: what all hosts must have in common, "TTL" or "TTL/SHARDS". */
void query_common(struct query *q);
/* Two more arguments: this host's seat and the next one. query_sat(): it was accepted. query_twice(): it was not. */
void query_seat(struct query *q);
void query_sat(const struct query *q);
void query_twice(const struct query *q);
/* Sends it if the store is up. Otherwise, and if it cannot be sent, `done` gets STORE_UNREACHABLE from the loop. */
void query_send(struct query *q, query_done *done);
/* The same after news->connected(). */
void query_send_early(struct query *q, query_done *done);
/* Does not send it: `done` gets `status` and `error` from the loop. */
void query_refuse(struct query *q, query_done *done, enum store_status status, const char *error);
/* NULL: these words are good. Else what is wrong with them: the scripts do not check words. */
const char *query_bad_name(const char *name);
const char *query_bad_lock(const char *name, const char *token);
/* The server has answered: calls `done`, and frees the query. The reply stays the caller's. */
void query_answer(struct query *q, const redisReply *reply);
/* It was not sent, and `done` is not called. */
void query_free(struct query *q);
/* Calls `done`, which was set before, with `status` and `error` at once, and frees it. */
void query_end(struct query *q, enum store_status status, const char *error);
/* For `done`: `reply` is nothing that dflock's scripts answer. Calls store_reject(); returns the line. */
const char *query_nonsense(struct query *q);
/* Ends all queries in s->refused. */
void query_end_refused(struct store *s);

/* ---- life.c ---- */

/* For engines whose server numbers what it does, also over crashes: the largest number that it has confirmed to this host, and which memory of
 * the server that was (a hash). One that has come less far was restored from a backup: store_keep_seen(). */
enum { STORE_SEEN_NUMBER, STORE_SEEN_MEMORY };
void store_see_number(struct store *s, uint64_t number);
/* The server has this memory: numbers of another one do not count. */
void store_see_memory(struct store *s, const char *memory);
/* The record is this one now; calls on_incarnation if it is another one than before. */
void store_set_record(struct store *s, const struct reply_record *record);
/* The store has said this fence. A keeper tells the largest one to a store that begins anew (store/rules/store.lua);
 * numbers from 2^52 on were made up, and are forgotten. */
void store_see_fence(struct store *s, uint64_t fence);
/* Writes the line that says that the record has another ttl_ms. */
void store_explain_ttl(const struct store *s, const struct reply_record *record, char line[REPLY_LINE_BYTES]);
extern const char *const store_open_words[]; /* by enum store_open */
/* store_open(FORCED, TAKE or MAY) while the record's ttl_ms is refused: it is sent at the next connection, which is tried now, and `q` ends. */
void store_init_later(struct store *s, struct query *q, enum store_open how, query_done *done);

#endif
