/*
 * The engine for Redis. Each file calls only files above it in this list, and those of store/:
 *
 *   explain.c                      what the server says about itself, and its errors, for people (pure)
 *   fit.c                          which servers will do (pure)
 *   acks.c                         which answers wait for the replicas (pure)
 *   credentials.c                  certificates and the key for TLS, read in a thread
 *   address.c, channel.c, link.c   a name's addresses; bytes to and from a server, with TLS or without; one connection
 *   connect.c                      the steps from an address to a checked pair of connections
 *   keywatch.c                     the channels of keys that somebody waits for
 *   discover.c                     the sentinels, or the nodes of a cluster: where the server is
 *   send.c                         the way of a query: scripts, replicas, errors, shots
 *   engine.c                       struct engine
 *
 * A callback of a link runs exactly once, also with reply NULL when the link is closed: each one handles that; the
 * store is down or freed then.
 */
#ifndef DFLOCK_STORE_REDIS_REDIS_H
#define DFLOCK_STORE_REDIS_REDIS_H

#include "store/internal.h"
#include "store/redis/acks.h"
#include "store/redis/address.h"
#include "store/redis/credentials.h"
#include "store/redis/explain.h"
#include "store/redis/fit.h"
#include "store/redis/link.h"

#define STORE_SHA_BYTES     41
#define SENTINEL_HOST_BYTES 256
#define STORE_INFO_BYTES    64

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
/* Of `count` sentinels the one last asked named a master or did not; `up`: the store is; `here`: it is connected to
 * that one. Pure. */
enum round_verdict round_heard(struct round *round, size_t count, bool up, bool named, bool here);

struct discover {
	struct link *link; /* NULL: no question is under way */
	struct channel_target target;
	/* Counts on: which one to ask next, since each round begins with another one, and at which of its addresses. */
	unsigned next;
	const struct config_address *asked;
	struct round round;
	char first_why[REPLY_LINE_BYTES]; /* what was wrong with the first sentinel of the list */
	char host[SENTINEL_HOST_BYTES];   /* the master, as a sentinel named it */
	int port;
};

struct redis {
	struct link *commands, *messages; /* both or none in STORE_UP */
	struct link_gate gate;            /* leads to `commands` in STORE_UP */
	bool step_noted;                  /* a step that is not needed was refused, and reported */
	char run_id[STORE_INFO_BYTES];
	bool redis7;                        /* it knows the flags of scripts */
	char sha[SCRIPTS][STORE_SHA_BYTES]; /* by which it knows the scripts */

	struct acks acks;
	struct credentials *credentials; /* NULL: no TLS */
	struct connect connect;
	struct discover discover;
	struct keywatch *keywatches; /* keywatch.c */
	bool key_noted;              /* ditto: a channel was refused, and that was reported since the last on_up */
};
/* send.c */
struct redis_query {
	struct query q;
	bool sent_whole; /* NOSCRIPT came, and the script's text was sent with EVAL */
	bool binding;    /* its answer counts only when enough replicas have acknowledged it */
	struct acks_entry entry;
	redisReply *reply;
};

static inline struct redis *redis_of(const struct store *s)
{
	return s->at;
}

/* ---- connect.c ---- */

/* Connects to a server: by the path of its socket on this machine, or by its name or number. The texts stay until
 * the next attempt. Ends in news->connected() or store_fail(), as the next one. */
void connect_to(struct store *s, const char *path, const char *host, int port);
/* Only in STORE_UP: asks whether the server is still a master with as many replicas as it should have; calls
 * store_fail() if not. */
void connect_check(struct store *s);

/* ---- keywatch.c ---- */

/* For struct engine. */
void keywatch_begin(struct store *s, const char *key);
void keywatch_end(struct store *s, const char *key);
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

/* Of the hash tag {N}: CRC16 of its digits modulo 16384. */
int slots_of_shard(unsigned shard);

enum slots_verdict {
	SLOTS_FOUND,
	SLOTS_NOBODY,   /* no node has the slot */
	SLOTS_NONSENSE, /* this is no answer of a Redis Cluster */
};

/*
 * The address of this slot's master. A node that does not know its own address, or was told to leave it out
 * (cluster-preferred-endpoint-type unknown-endpoint), leaves the host empty: then it is `asked`, the host that was
 * asked.
 */
enum slots_verdict slots_master(const redisReply *reply, int slot, const char *asked, char *host, size_t size,
				int *port);

/* ---- send.c ---- */

/* Prepares what answers wait for. */
void send_init(struct store *s);
/* For struct engine. */
int send_query(struct query *q);
void *send_prepare(struct query *q);
bool send_fire(struct store *s, void *shot);
void send_drop(void *shot);

#endif
