/*
 * What the files of the store share: redis.c (life, up and down, the incarnation), discover.c (the sentinels: where the
 * server is), connect.c (the steps from an address to a checked pair of connections), request.c (one question and its
 * answer), acks.c (the replicas' part in it), operations.c and walk.c (the calls of store.h).
 */
#ifndef DFLOCK_STORE_INTERNAL_H
#define DFLOCK_STORE_INTERNAL_H

#include "store/address.h"
#include "store/link.h"
#include "store/reply.h"
#include "store/scripts.h"
#include "store/sentinel.h"
#include "store/store.h"

#define STORE_KEYS       "dflock:{0}:" /* one shard */
#define STORE_LOCK_KEY   STORE_KEYS "lock:"
#define STORE_SHA_BYTES  41
#define SERVER_BYTES     640 /* for people: the master's name, and its address */
#define STORE_INFO_BYTES 64
#define REQUEST_ARGS     (24 + 2 * STORE_MAX_BLOCKERS)

struct request;
/* What became of a request: reply (no error reply), valid during the call; or NULL, with STORE_UNREACHABLE or
 * STORE_ERROR and one line. The request is freed afterwards. */
typedef void request_done(struct request *r, const redisReply *reply, enum store_status status, const char *error);

struct request_list {
	struct request *first, **last;
};

enum store_state {
	STORE_DOWN,       /* waits for the retry timer */
	STORE_ASKING,     /* asks the sentinels where the master is */
	STORE_RESOLVING,  /* looks up the server's name; the retry timer limits it */
	STORE_CONNECTING, /* runs the steps of connect.c */
	STORE_UP,
	STORE_FREED, /* waits for its handles to close */
};

struct store {
	uv_loop_t *loop;
	const struct config_store *config;
	int64_t ttl_ms;
	char host[STORE_HOST_BYTES];
	struct store_callbacks callbacks;
	void *arg;

	enum store_state state;
	struct link *commands, *messages; /* both or none in STORE_UP */
	uv_timer_t retry, ping, soon;
	unsigned open_handles;
	uint64_t retry_ms;
	char server[SERVER_BYTES], error[REPLY_LINE_BYTES], reported[REPLY_LINE_BYTES];
	bool noted; /* a bad message was reported since the last on_up */

	/* discover.c */
	struct sentinel_question *question;
	size_t sentinel;                  /* whom to ask next */
	size_t asked;                     /* in this round */
	size_t elsewhere;                 /* up: how many of these named another master */
	char first_why[REPLY_LINE_BYTES]; /* what was wrong with the first sentinel of the list */
	char master_host[SENTINEL_HOST_BYTES];
	int master_port;

	/* connect.c */
	struct address_lookup *lookup;
	unsigned attempt;
	struct link_target target;
	const struct step *step;
	unsigned loaded; /* scripts */
	char version[STORE_INFO_BYTES], run_id[STORE_INFO_BYTES];
	bool redis7;
	char sha[SCRIPTS][STORE_SHA_BYTES];

	/* acks.c */
	bool asking;                 /* WAIT is under way ... */
	struct request_list covered; /* ... and speaks of these */
	struct request_list behind;  /* sent after it */

	/* The record as last seen. */
	char incarnation[STORE_INC_BYTES];
	bool grace;
	bool rereading;

	bool ttl_refused;        /* down because the record has another ttl_ms */
	struct request *init;    /* store_open(FORCED) called meanwhile: overrides that at the next connection */
	struct request *refused; /* their callbacks are due at the next turn of the loop */
	struct request **refused_last;
};

/* ---- redis.c ---- */

/* Breaks both connections (their pending requests are told), says so, and tries again later. */
void store_down(struct store *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* connect.c is through its steps: reads or begins the record; then on_up. */
void store_read_record(struct store *s);
/* A script said INC. */
void store_reread_record(struct store *s);
/* The record is this one now; calls on_incarnation if it is another one. */
void store_set_record(struct store *s, const struct reply_record *record);
/* The line for a record with another ttl_ms. */
void store_explain_ttl(const struct store *s, int64_t ttl_ms, char line[REPLY_LINE_BYTES]);
/* store_open(FORCED) while ttl_refused: its request waits for the next connection, as s->init. */
void store_init_later(struct store *s, struct request *r, request_done *done);
/* A message came. */
void store_take_message(struct store *s, const char *text, size_t len);

/* ---- connect.c ---- */

void connect_start(struct store *s);
/* To a server by its name or number. */
void connect_to(struct store *s, const char *host, int port);
/* Up: is it still a master, with as many replicas as it should have? Goes on with store_down() if not. */
void connect_check(struct store *s);
/* Forgets a lookup that is under way. */
void connect_cancel(struct store *s);

/* ---- discover.c ---- */

/* Asks the sentinels in turn, and goes on with connect_to() or store_down(). */
void discover_start(struct store *s);
/* Up: is the master still where it was? Goes on with store_down() if most sentinels say otherwise. */
void discover_check(struct store *s);
void discover_cancel(struct store *s);

/* ---- acks.c ---- */

void acks_init(struct store *s);
/* The request was just sent: request_acknowledged() comes, after its reply. Not if its reply is that the link was
 * closed, which acks_forget() must be told. */
void acks_await(struct request *r);
void acks_forget(struct request *r);

/* ---- request.c ---- */

/* Memory for a request: one that cannot be built cannot be answered either, and its caller waits for the answer. So
 * NULL ends the process, with a line; its supervisor starts it again. */
void *store_need(void *memory);

struct request {
	struct store *store;
	int argc;
	char *argv[REQUEST_ARGS];
	int script;      /* enum script_id, or -1 */
	bool sent_whole; /* NOSCRIPT came and it was sent with EVAL */
	bool binding;    /* it counts only when enough replicas have acknowledged it */
	redisReply *reply;
	request_done *done;

	/* for `done` */
	union {
		store_reply_cb *reply;
		store_hosts_cb *hosts;
	} cb;
	void *arg;
	unsigned may; /* REPLY_MAY() bits */

	struct request *next; /* acks.c; or refused without being sent: */
	enum store_status status;
	char error[REPLY_LINE_BYTES];
};

/* A call of a script, with its keys and the incarnation; name: the lock, or NULL. Running out of memory ends the
 * process, here and when words are added. */
struct request *request_script(struct store *s, enum script_id script, const char *name);
/* A plain command. */
struct request *request_command(struct store *s, const char *command);
void request_word(struct request *r, const char *word);
void request_add(struct request *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Sends it if the store is up; otherwise `done` hears so from the loop. */
void request_send(struct request *r, request_done *done);
/* Sends it during STORE_CONNECTING. */
void request_send_early(struct request *r, request_done *done);
/* Does not send it: `done` hears status and error from the loop. */
void request_refuse(struct request *r, request_done *done, enum store_status status, const char *error);
/* The same, at once. Frees it. */
void request_end(struct request *r, enum store_status status, const char *error);
/* Its reply has come, and enough replicas have it, or not. Frees it, unless it is sent again. */
void request_acknowledged(struct request *r, bool enough);
/* For `done`: reply is nothing that a server of ours says. The store goes down; returns the line. */
const char *request_nonsense(struct request *r);
/* Ends all requests in s->refused. */
void request_end_refused(struct store *s);

#endif
