/*
 * Which answers of the store wait for the replicas, and when they count: acks.c says why they wait. Pure: no
 * connection, no clock. The owner sends WAIT when `ask` tells it to, and passes the answer on.
 *
 * Order of calls, for each entry: acks_await() once; then exactly one of acks_forget() and the callback `acknowledged`.
 */
#ifndef DFLOCK_STORE_ACKS_H
#define DFLOCK_STORE_ACKS_H

#include <hiredis.h>
#include <stdbool.h>

#include "config/config.h"
#include "store/redis/explain.h"

/* Part of the owner's struct; the owner keeps it until one of the two calls that end it. */
struct acks_entry {
	struct acks_entry *next;
};
struct acks_list {
	struct acks_entry *first, **last;
};

struct acks_events {
	/* Send one WAIT now. Its answer goes to acks_answered(). */
	void (*ask)(void *arg);
	/* The answer that this entry stands for counts (enough), or is as if it had not come. The entry is the owner's
	 * again; it may be freed. */
	void (*acknowledged)(struct acks_entry *entry, bool enough);
};

struct acks {
	bool asking;              /* a WAIT has been sent and is not answered ... */
	struct acks_list covered; /* ... its answer decides about these */
	struct acks_list behind;  /* sent after it: the next WAIT decides about these */
	const struct acks_events *events;
	void *arg; /* of `ask` */
};

/* Empties it. `events` must live as long as `acks`. */
void acks_init(struct acks *acks, const struct acks_events *events, void *arg);

/* The script of this entry was just sent. */
void acks_await(struct acks *acks, struct acks_entry *entry);

/* The connection closed before the script's own reply came: the entry is out, and no callback comes for it. */
void acks_forget(struct acks *acks, struct acks_entry *entry);

/* The answer to WAIT came, or will never come (enough is false). Before this call the replies to all covered scripts
 * have come, or their entries were forgotten: the server answers in order. */
void acks_answered(struct acks *acks, bool enough);

/* Does this answer to WAIT say that enough replicas have acknowledged? If not, `line` says why. */
bool acks_are_enough(const struct config_store *config, const redisReply *reply, char line[REPLY_LINE_BYTES]);

/* How long WAIT may take: less than connect_ms, so that its answer says how many replicas acknowledged. */
int64_t acks_limit_ms(const struct config_store *config);

#endif
