/*
 * What comes from the server, made into what store.h promises: answers of the scripts, messages, INFO, errors. Pure: no
 * connection, no clock. Whatever the bytes are, the result is bounded and checked, or refused.
 */
#ifndef DFLOCK_STORE_REPLY_H
#define DFLOCK_STORE_REPLY_H

#include <hiredis.h>

#include "store/store.h"

#define REPLY_LINE_BYTES 512 /* an explained error */

/* A protocol reader that refuses absurd array sizes before it allocates them. NULL: out of memory. */
redisReader *reply_reader_new(void);

/* Verdicts a script may give: bits of 1 << enum store_status. */
#define REPLY_MAY(status) (1u << (status))

/*
 * The answer of acquire, release, shrink, confirm, beat, leave, open, sweep: a list that starts with the verdict. 0
 * with *out filled (error NULL), or -EPROTO if it is anything else, or a verdict that is not in `may`.
 */
int reply_parse(const redisReply *reply, unsigned may, struct store_reply *out);

struct reply_record {
	char incarnation[STORE_INC_BYTES];
	bool open;
	bool refused_ttl; /* the record has another ttl_ms, and nothing else here is filled */
	int64_t ttl_ms;
};
/* The answer of the store script to begin and init. 0 or -EPROTO. */
int reply_parse_record(const redisReply *reply, struct reply_record *out);

/* The answer of the hosts script. 0, -EPROTO or -ENOMEM. The caller frees *hosts. */
int reply_parse_hosts(const redisReply *reply, struct store_blocker **hosts, size_t *count);

/* The answer of SCAN: the next cursor and the list of keys (a borrowed part of reply). 0 or -EPROTO. */
#define REPLY_CURSOR_BYTES 24
int reply_parse_scan(const redisReply *reply, char cursor[REPLY_CURSOR_BYTES], const redisReply **keys);

/* A message on this host's channel. 0; -EINVAL if it is malformed; -ESTALE if it speaks of another incarnation. */
int reply_parse_message(const char *text, size_t len, const char *incarnation, struct store_message *out);

/* The formats of the three messages are in reply.c; two come from the scripts, this one from here.
 * 0, or -ENAMETOOLONG. */
#define REPLY_MESSAGE_BYTES (LOCK_NAME_BYTES + 512)
int reply_format_in_use(char message[REPLY_MESSAGE_BYTES], const char *host, const char *name, const char *asker_token,
			const struct store_range *in_use);

int reply_format_chase(char message[REPLY_MESSAGE_BYTES], const struct store_chase *chase);

/* How the scripts and messages spell them. */
extern const char *const reply_space_word[WIRE_SPACES];
extern const char *const reply_mode_word[WIRE_MODES];

/* Is it a token (32 lower-case hex digits), a host, a file (printable, no blanks, not too long)? */
bool reply_is_token(const char *text);
bool reply_is_host(const char *text);
bool reply_is_file(const char *text);

/* A decimal number without sign, of nothing else. False: it is none or too large. */
bool reply_number(const char *text, uint64_t *out);
/* How offsets are written: always 19 digits, so that comparing the texts compares the numbers. */
#define REPLY_OFFSET "%019" PRId64

/* One field of INFO ("redis_version"), copied; false: not there or too long. */
bool reply_info_field(const char *info, const char *field, char *value, size_t size);

/* How many replicas INFO shows; one that has connected anew counts once. At most CONFIG_MAX_REPLICAS + 1. */
int reply_replicas(const char *info);

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

#endif
