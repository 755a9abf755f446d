/* What a Redis server says, made into lines for people: INFO, settings, errors; and how its answers are read. Pure. */
#ifndef DFLOCK_STORE_REDIS_EXPLAIN_H
#define DFLOCK_STORE_REDIS_EXPLAIN_H

#include "store/reply.h"

/* A protocol reader that refuses absurd array sizes before it allocates them. NULL: out of memory. The caller frees it
 * with redisReaderFree(). */
redisReader *reply_reader_new(void);

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
