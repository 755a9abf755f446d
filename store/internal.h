/*
 * What the files of the store share. Each file calls only files above it in this list:
 *
 *   words.c                        words and fields: what messages and answers are made of; messages (pure)
 *   reply.c, explain.c             what the server sends, made into what store.h promises (pure)
 *   histogram.c                    how long things took, counted (pure)
 *   scripts.c                      the texts of the Lua scripts
 *   fit.c                          which servers will do (pure)
 *   acks.c                         which answers wait for the replicas (pure)
 *   credentials.c                  certificates and the key for TLS, read in a thread
 *   address.c, channel.c, link.c   a name's addresses; bytes to and from a server, with TLS or without; one connection
 *   query.c                        one question to the store and its answer; the way up for bad news, and memory that must be there
 *   connect.c                      the steps from an address to a checked pair of connections
 *   keywatch.c                     the channels of keys that somebody waits for
 *   discover.c                     the sentinels, or the nodes of a cluster: where the server is
 *   life.c                         life: up and down, the incarnation record, messages
 *   operations.c, walk.c, posted.c the calls of store.h
 *
 * News goes up through struct store_news, which life.c sets. A callback of hiredis or of a link runs exactly once,
 * also with reply NULL when the link is closed: each one handles that; the store is down or freed then.
 */
#ifndef DFLOCK_STORE_INTERNAL_H
#define DFLOCK_STORE_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "store/redis/acks.h"
#include "store/redis/address.h"
#include "store/redis/credentials.h"
#include "store/redis/fit.h"
#include "store/redis/link.h"
#include "store/reply.h"
#include "store/scripts.h"
#include "store/store.h"
#include "store/words.h"

#define STORE_KEYS          "dflock:{0}:" /* one shard */
#define STORE_LOCK_KEY      STORE_KEYS "lock:"
#define STORE_RESTS         STORE_KEYS "rests"
#define STORE_REST_KEY      STORE_KEYS "rest:" /* a field of it: and the space, ':', the name */
#define STORE_SHA_BYTES     41
#define SENTINEL_HOST_BYTES 256
#define SERVER_BYTES        640 /* for people: the master's name, and its address */
#define STORE_INFO_BYTES    64
#define QUERY_ARGS          (26 + 2 * STORE_MAX_BLOCKERS)

struct query;
/* The answer to a query: `reply`, which is no error reply and valid during the call; or NULL, with `status`
 * STORE_UNREACHABLE or STORE_ERROR and one line in `error`. The query is freed afterwards. */
typedef void query_done(struct query *q, const redisReply *reply, enum store_status status, const char *error);

struct query_list {
	struct query *first, **last;
};

enum store_state {
	STORE_DOWN,       /* waits for the retry timer */
	STORE_READING,    /* reads the files of TLS; the retry timer limits it */
	STORE_ASKING,     /* asks the sentinels, or nodes of the cluster, where the master is */
	STORE_CONNECTING, /* runs the steps of connect.c, then reads the record */
	STORE_UP,
	STORE_FREED, /* waits for its handles to close */
};

/* What the lower files tell life.c. */
struct store_news {
	/* store_fail() was called, or store_reject() (`answers`): see there. `why` is one line. */
	void (*failed)(struct store *s, const char *why, bool answers);
	/* The last step of connect.c is done: both connections stand and were checked. */
	void (*connected)(struct store *s);
	/* A published message came; the texts are valid during the call. */
	void (*message)(struct store *s, const char *channel, const char *text, size_t len);
};

/* connect.c */
struct connect {
	unsigned attempt;
	struct channel_target target;
	const struct connect_step *step; /* the step whose answer is awaited */
	unsigned loaded;                 /* how many scripts the server has acknowledged */
};

/* discover.c: a round of questions. */
struct round {
	size_t asked;     /* how many were asked in this round */
	size_t elsewhere; /* how many of them named another master than the one that the store is connected to */
};
enum round_verdict {
	ROUND_ASK,     /* ask the next one */
	ROUND_BELIEVE, /* the answer counts: connect to this master; up: it has moved there */
	ROUND_OVER,    /* none is left, and nothing follows from their answers; up: stay */
};
/* Of `count` sentinels the one last asked named a master or did not; `up`: the store is; `here`: it is connected to that one. Pure. */
enum round_verdict round_heard(struct round *round, size_t count, bool up, bool named, bool here);

struct discover {
	struct link *link; /* NULL: no question is under way */
	struct channel_target target;
	size_t next; /* the one to ask next: each round begins with another one */
	const struct config_address *asked;
	struct round round;
	char first_why[REPLY_LINE_BYTES]; /* what was wrong with the first sentinel of the list */
	char host[SENTINEL_HOST_BYTES];   /* the master, as a sentinel named it */
	int port;
};

/* life.c: the incarnation record as last seen. */
struct store_record {
	char incarnation[STORE_INC_BYTES];
	bool grace;
	uint64_t fence;     /* the largest that was seen, in this incarnation or an earlier one: store_see_fence() */
	bool rereading;     /* the record was asked for while the store is up */
	bool ttl_refused;   /* the store is down because the record has another ttl_ms */
	struct query *init; /* store_open(FORCED), called while ttl_refused: sent at the next connection. NULL: none */
};

struct store {
	uv_loop_t *loop;
	const struct config_store *config;
	int64_t ttl_ms;
	char host[STORE_HOST_BYTES];
	uint64_t own_seat[2], *seat; /* store_keep_seat() */
	struct store_callbacks callbacks;
	void *arg;
	const struct store_news *news;

	enum store_state state;
	struct link *commands, *messages; /* both or none in STORE_UP */
	struct link_gate gate;            /* leads to `commands` in STORE_UP */
	uv_timer_t retry, ping, soon;     /* soon: query.c */
	unsigned open_handles;
	uint64_t retry_ms;
	char server[SERVER_BYTES];       /* for people */
	char error[REPLY_LINE_BYTES];    /* why it is down; "" */
	bool answers;                    /* that is what the server answered */
	char reported[REPLY_LINE_BYTES]; /* the reason that on_down was last called with */
	bool noted;                      /* a bad message was reported since the last on_up */
	bool step_noted;                 /* a step that is not needed was refused, and reported */
	bool settings_unseen;            /* this connection may not ask for settings */
	char risk[REPLY_LINE_BYTES];     /* store_risk() */

	/* What connect.c found out about the server. */
	char version[FIT_VERSION_BYTES], run_id[STORE_INFO_BYTES];
	bool redis7;                        /* it knows the flags of scripts */
	char sha[SCRIPTS][STORE_SHA_BYTES]; /* by which it knows the scripts */

	struct acks acks;
	struct credentials *credentials; /* NULL: no TLS */
	struct query_list refused;       /* these queries end at the next turn of the loop */
	struct connect connect;
	struct discover discover;
	struct store_record record;
	struct keywatch *keywatches; /* keywatch.c */
	bool key_noted;              /* ditto: a channel was refused, and that was reported since the last on_up */
	struct store_counts counts;  /* query.c: asked, took, failed; life.c: the others */
};

/* ---- query.c ---- */

/* For memory without which a caller would wait for its answer for ever. Returns `memory`; if that is NULL, ends the
 * process with a line (the keeper's parent starts it again). */
void *store_need(void *memory);

/* This connection, or this attempt to connect, is of no use: closes both connections (the callbacks of all pending
 * queries run, before this returns), reports the reason, and starts the retry timer. Nothing happens while the store is
 * down already, or freed. */
void store_fail(struct store *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same, because of what the server answered: to people the store cannot be used, rather than is not reachable. */
void store_reject(struct store *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

struct query {
	struct store *store;
	int argc;
	char *argv[QUERY_ARGS];
	int script;       /* enum script_id, or -1 */
	uint64_t sent_ns; /* uv_hrtime(); 0: not sent */
	bool sent_whole;  /* NOSCRIPT came, and the script's text was sent with EVAL */
	bool binding;     /* its answer counts only when enough replicas have acknowledged it */
	struct acks_entry entry;
	redisReply *reply;
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
/* A plain command. */
struct query *query_command(struct store *s, const char *command, void *arg);
/* The next argument, copied; several, and NULL behind them. More than QUERY_ARGS end the process. */
void query_word(struct query *q, const char *word);
void query_words(struct query *q, ...) __attribute__((sentinel));
void query_add(struct query *q, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Two more arguments: this host's seat and the next one. query_sat(): it was accepted. query_twice(): it was not. */
void query_seat(struct query *q);
void query_sat(const struct query *q);
void query_twice(const struct query *q);
/* Sends it if the store is up. Otherwise, and if it cannot be sent, `done` gets STORE_UNREACHABLE from the loop. */
void query_send(struct query *q, query_done *done);
/* Prepares what query_send() would send: the query is answered as by that once the shot was fired. NULL: no memory. */
struct link_shot *query_prepare(struct query *q, query_done *done);
/* The same during STORE_CONNECTING. */
void query_send_early(struct query *q, query_done *done);
/* Does not send it: `done` gets `status` and `error` from the loop. */
void query_refuse(struct query *q, query_done *done, enum store_status status, const char *error);
/* NULL: these words are good. Else what is wrong with them: the scripts do not check words. */
const char *query_bad_name(const char *name);
const char *query_bad_lock(const char *name, const char *token);
/* It was not sent, and `done` is not called. */
void query_free(struct query *q);
/* Calls `done`, which was set before, with `status` and `error` at once, and frees it. */
void query_end(struct query *q, enum store_status status, const char *error);
/* For `done`: `reply` is nothing that dflock's scripts answer. Calls store_reject(); returns the line. */
const char *query_nonsense(struct query *q);
/* Ends all queries in s->refused. */
void query_end_refused(struct store *s);

/* ---- connect.c ---- */

/* Connects to a server: by the path of its socket on this machine, or by its name or number. The texts stay until the next
 * attempt. Ends in news->connected() or store_fail(), as the next one. */
void connect_to(struct store *s, const char *path, const char *host, int port);
/* Only in STORE_UP: asks whether the server is still a master with as many replicas as it should have; calls
 * store_fail() if not. */
void connect_check(struct store *s);

/* ---- keywatch.c ---- */

/* The store is up: subscribes anew. */
void keywatch_again(struct store *s);
/* A message came on this channel. False: it is not that of a key. */
bool keywatch_message(struct store *s, const char *channel, const char *text);
/* The connections are closed. */
void keywatch_free(struct store *s);

/* ---- discover.c ---- */

/* What the configuration calls the server that is looked for, for people. */
const char *discover_name(const struct config_store *config);
/* Asks the sentinels in turn, and goes on with connect_to() or store_fail(). */
void discover_start(struct store *s);
/* Only in STORE_UP: asks whether the master is still where it was; calls store_fail() if most sentinels say that it is
 * not. Nothing happens without sentinels, or while such a check is under way. */
void discover_check(struct store *s);
/* Forgets a question that is under way. */
void discover_cancel(struct store *s);

/* The answer of a node of a cluster (the argument is in discover.c). Pure. */
#define STORE_SLOT 13907 /* of the hash tag {0}: CRC16("0") modulo 16384 */

enum slots_verdict {
	SLOTS_FOUND,
	SLOTS_NOBODY,   /* no node has the slot */
	SLOTS_NONSENSE, /* this is no answer of a Redis Cluster */
};

/*
 * The address of the slot's master. A node that does not know its own address, or was told to leave it out
 * (cluster-preferred-endpoint-type unknown-endpoint), leaves the host empty: then it is `asked`, the host that was asked.
 */
enum slots_verdict slots_master(const redisReply *reply, const char *asked, char *host, size_t size, int *port);

/* ---- life.c ---- */

/* A script answered INC: reads the record again. */
void store_reread_record(struct store *s);
/* The record is this one now; calls on_incarnation if it is another one than before. */
void store_set_record(struct store *s, const struct reply_record *record);
/* The store has said this fence. A keeper tells the largest one to a store that begins anew (store/rules/store.lua); numbers from
 * 2^52 on were made up, and are forgotten. */
void store_see_fence(struct store *s, uint64_t fence);
/* Writes the line that says that the record has another ttl_ms. */
void store_explain_ttl(const struct store *s, const struct reply_record *record, char line[REPLY_LINE_BYTES]);
/* store_open(FORCED) while the record's ttl_ms is refused: `q` is sent at the next connection, which is tried now. */
void store_init_later(struct store *s, struct query *q, query_done *done);

#endif
