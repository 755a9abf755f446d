/*
 * The answers of the rules, made into what store.h promises. Pure: no connection, no clock. Whatever the bytes are, the result is
 * bounded and checked, or refused. An answer is a tree of hiredis's, whichever engine it comes from.
 */
#ifndef DFLOCK_STORE_REPLY_H
#define DFLOCK_STORE_REPLY_H

#include <hiredis.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/store.h"

#define REPLY_LINE_BYTES 512 /* an explained error */

/* ---- the answers of the scripts ---- */

/* Verdicts a script may give: bits of 1 << enum store_status. */
#define REPLY_MAY(status) (1u << (status))

/*
 * The answer of every script but store, hosts and dump, and INC of all of them: a list that starts with the verdict. 0
 * with *out filled (error NULL), or -EPROTO if it is anything else, or a verdict that is not in `may`.
 */
int reply_parse(const redisReply *reply, unsigned may, struct store_reply *out);

/* Is it a list that starts with this verdict? NULL is none. */
bool reply_is(const redisReply *reply, const char *verdict);

/* The beat script's answer KEYS. 0, -EPROTO or -ENOMEM. The caller frees *keys, which is NULL on failure. */
int reply_parse_keys(const redisReply *reply, struct store_key_news **keys, size_t *count);

struct reply_record {
	char incarnation[STORE_INC_BYTES];
	bool open;
	bool twice;        /* another keeper uses this host's id, and nothing else here is filled */
	uint64_t fence;    /* the last one; 0: not told */
	bool refused_ttl;  /* the record has another ttl_ms or number of shards, and nothing else here is filled */
	int64_t ttl_ms;    /* only with refused_ttl: the record's; */
	unsigned shards;   /* the same: how many shards the store has by it; */
	char used_by[256]; /* and some hosts that use it, for people; "": not asked for */
};
/* "TTL" or "TTL/SHARDS", as all hosts must have them. False: it is neither. */
bool reply_parse_common(const char *text, int64_t *ttl_ms, unsigned *shards);
/* The store script's answers OK, TWICE and TTL. 0, or -EPROTO for every other answer, INC and KNOWN included. */
int reply_parse_record(const redisReply *reply, struct reply_record *out);

/* The answer of the hosts script. 0, -EPROTO or -ENOMEM. The caller frees *hosts, which is NULL on failure. */
int reply_parse_hosts(const redisReply *reply, struct store_blocker **hosts, size_t *count);

/* The answer of the dump script: leases, then waiters, the rests, and the client. 0, -EPROTO or -ENOMEM. The caller frees *entries,
 * which is NULL on failure. */
int reply_parse_entries(const redisReply *reply, struct store_entry **entries, size_t *count,
			struct store_aside *aside);

/* The answer of SCAN: the next cursor, and the list of keys, which is a part of `reply`. 0 or -EPROTO. */
#define REPLY_CURSOR_BYTES 24
int reply_parse_scan(const redisReply *reply, char cursor[REPLY_CURSOR_BYTES], const redisReply **keys);

/* Element i of a list as text. NULL: it is not there, no string, or has a NUL inside. */
const char *reply_text(const redisReply *list, size_t i);

#endif
