/*
 * The store's Lua scripts (lua/), embedded in the program. Each file's first lines are its contract.
 *
 * The text that is sent to the server consists of the script's "#!lua flags=..." line, lua/common.lua, lua/renew.lua (if
 * the script renews, or works on a lock), lua/take.lua or lua/give.lua (the simple cases of acquire and release),
 * lua/clashes.lua, lua/key.lua and lua/entries.lua (if the script works on a lock), and the script. Servers before Redis 7
 * do not know the flags and get the text without that line.
 */
#ifndef DFLOCK_STORE_SCRIPTS_H
#define DFLOCK_STORE_SCRIPTS_H

#include <stdbool.h>
#include <stddef.h>

enum script_id {
	SCRIPT_ACQUIRE,
	SCRIPT_RELEASE,
	SCRIPT_SHRINK,
	SCRIPT_CONFIRM,
	SCRIPT_RECLAIM,
	SCRIPT_BEAT,
	SCRIPT_LEAVE,
	SCRIPT_STORE,
	SCRIPT_HOSTS,
	SCRIPT_SWEEP,
	SCRIPT_GIVE_UP,
	SCRIPT_REST,
	SCRIPT_DUMP,
	SCRIPT_POST,
	SCRIPT_RULES,
	SCRIPTS
};

/* The text to load. `flags`: the server is Redis 7 or newer. NULL: out of memory. The caller frees it. */
char *script_text(enum script_id id, bool flags);
/* Which command (in lower case) the script calls in this line of its text, the first one if there are several; `flags` as
 * for script_text(). False: none, or out of memory. For people: an error names only the line. */
bool script_command(enum script_id id, bool flags, unsigned line, char *command, size_t size);

/* How many keys it takes: 2 (record, hosts) or 5 (and the lock, and the fields of its rests in the spaces flock and record). */
int script_keys(enum script_id id);
/* Its answer counts only when enough replicas have acknowledged it: store/acks.c says why. */
bool script_is_binding(enum script_id id);
/* "acquire", ... for messages. */
const char *script_name(enum script_id id);

#endif
