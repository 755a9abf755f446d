/*
 * The rules (rules/), embedded in the program: what the store does, one Lua script for each operation. Each file's
 * first lines are its contract. Whatever the engine, these texts are run, as Redis runs scripts.
 *
 * The text of a script consists of its "#!lua flags=..." line, rules/common.lua, rules/renew.lua (if the script renews,
 * or works on a lock), rules/take.lua or rules/give.lua (the simple cases of acquire and release), rules/clashes.lua,
 * rules/key.lua and rules/entries.lua (if the script works on a lock), and the script. Servers before Redis 7 do not
 * know the flags and get the text without that line.
 */
#ifndef DFLOCK_STORE_SCRIPTS_H
#define DFLOCK_STORE_SCRIPTS_H

#include <stdbool.h>
#include <stddef.h>

#include "store/reply.h"

/* Id, file, and what is true of it (struct script). */
#define SCRIPTS_ALL(X)                                                                                                 \
	X(ACQUIRE, acquire, .simple = script_take, .lock = true, .binding = true,                                      \
	  .may = REPLY_MAY(STORE_WAIT) | REPLY_MAY(STORE_BUSY) | REPLY_MAY(STORE_REST) | REPLY_MAY(STORE_GRACE) |      \
		 REPLY_MAY(STORE_LIMIT) | REPLY_MAY(STORE_GIVEN_UP) | REPLY_MAY(STORE_TAKEN))                          \
	X(RELEASE, release, .simple = script_give, .lock = true)                                                       \
	X(SHRINK, shrink, .lock = true, .may = REPLY_MAY(STORE_GONE))                                                  \
	X(CONFIRM, confirm, .lock = true, .binding = true, .may = REPLY_MAY(STORE_GONE) | REPLY_MAY(STORE_GIVEN_UP))   \
	X(RECLAIM, reclaim, .lock = true, .binding = true, .may = REPLY_MAY(STORE_GONE) | REPLY_MAY(STORE_GIVEN_UP))   \
	X(BEAT, beat, .renews = true, .binding = true, .may = REPLY_MAY(STORE_GIVEN_UP))                               \
	X(LEAVE, leave, .may = REPLY_MAY(STORE_GONE))                                                                  \
	X(STORE, store, .binding = true)                                                                               \
	X(HOSTS, hosts)                                                                                                \
	X(SWEEP, sweep, .lock = true, .may = REPLY_MAY(STORE_GONE))                                                    \
	X(GIVE_UP, give_up, .binding = true, .may = REPLY_MAY(STORE_GONE))                                             \
	X(REST, rest, .lock = true, .may = REPLY_MAY(STORE_GONE))                                                      \
	X(DUMP, dump, .lock = true)                                                                                    \
	X(POST, post)                                                                                                  \
	X(RULES, rules)

/* The bytes of a file, with a NUL behind them, as script_NAME. The assembler reads it. The path is relative to the
 * folder that the compiler runs in: the root of the sources. */
#define SCRIPTS_EMBED(path, name)                                                                                      \
	__asm__(".pushsection .rodata\n"                                                                               \
		".global script_" #name "\n"                                                                           \
		".hidden script_" #name "\n"                                                                           \
		"script_" #name ":\n"                                                                                  \
		".incbin \"" path "\"\n"                                                                               \
		".byte 0\n"                                                                                            \
		".popsection\n");                                                                                      \
	extern const char script_##name[] __attribute__((visibility("hidden")));

enum script_id {
#define SCRIPT_ID(id, ...) SCRIPT_##id,
	SCRIPTS_ALL(SCRIPT_ID) SCRIPTS
};

/* The text to load. `flags`: the server is Redis 7 or newer. NULL: out of memory. The caller frees it. */
char *script_text(enum script_id id, bool flags);
/* Which command (in lower case) the script calls in this line of its text, the first one if there are several;
 * `flags` as for script_text(). False: none, or out of memory. For people: an error names only the line. */
bool script_command(enum script_id id, bool flags, unsigned line, char *command, size_t size);

extern const struct script {
	const char *name; /* "acquire", ... for messages */
	const char *text;
	const char *simple; /* the simple cases, which come before the functions that take long to define; or NULL */
	bool renews;        /* it counts as a beat */
	/* Ditto, perhaps; it takes five keys: record, hosts, the lock, and the fields of its rests in the spaces
	 * flock and record. Else the first two. */
	bool lock;
	bool binding; /* its answer counts only when enough replicas have acknowledged it: store/redis/acks.c says why */
	unsigned may; /* which verdicts reply_parse() may find in the answer, besides OK and INC: REPLY_MAY() bits */
} scripts[SCRIPTS];

#endif
