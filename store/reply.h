/*
 * What comes from the server, made into what store.h promises: answers of the scripts, INFO, errors (the last two in
 * explain.c). Pure: no connection, no clock. Whatever the bytes are, the result is bounded and checked, or refused.
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

/* A protocol reader that refuses absurd array sizes before it allocates them. NULL: out of memory. The caller frees it
 * with redisReaderFree(). */
redisReader *reply_reader_new(void);

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
	bool refused_ttl;  /* the record has another ttl_ms, and nothing else here is filled */
	int64_t ttl_ms;    /* only with refused_ttl: the record's; */
	char used_by[256]; /* and some hosts that use it, for people; "": not asked for */
};
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

/* ---- INFO ---- */

/* One field of INFO ("redis_version"), copied; false: it is not there, empty, or too long. */
bool reply_info_field(const char *info, const char *field, char *value, size_t size);

/* How many replicas INFO shows; one that has connected anew counts once. At most CONFIG_MAX_REPLICAS + 1. */
int reply_replicas(const char *info);

/* What CONFIG GET says about settings that could stop all jobs, for people: in which case, and what to do; "": none. False: it says
 * nothing (no right, another command's name). */
struct config_store;
bool reply_explain_settings(const redisReply *settings, const struct config_store *config, char line[REPLY_LINE_BYTES]);

/* ---- errors ---- */

/* What the server said, for people: printable, and cut where it is too long. */
#define REPLY_SAID_BYTES 200
void reply_quote(char said[REPLY_SAID_BYTES], const char *text);

enum reply_error {
	REPLY_ERROR_HERE,        /* this request failed */
	REPLY_ERROR_UNREACHABLE, /* this server is of no use now: as if it did not answer */
	REPLY_ERROR_NOSCRIPT,    /* it has forgotten the script */
};
/* One line for an error reply: what the server said, and what to do. */
enum reply_error reply_explain(const char *error, char line[REPLY_LINE_BYTES]);

/* Redis before 7.2 does not say which command in a script the user may not run, only in which line of the script it
 * stands. True: the error is of this kind, with the line's number, the first one is 1. */
bool reply_denied_line(const char *error, unsigned *line);
/* As reply_explain(), with the command of that line ("hget"; NULL: it is not known). */
#define REPLY_WORD_BYTES 32
enum reply_error reply_explain_script(const char *error, const char *command, char line[REPLY_LINE_BYTES]);

#endif
