/*
 * Runs the rules (store/rules/) in this process, for servers that cannot run them: over cells of an engine that are
 * loaded as a rule asks for them. What a rule has written and said is kept aside; the engine commits it if no cell that
 * was read has changed since it was loaded, and else runs the rule again from its beginning. So the rule was one step,
 * at the moment of the commit. Pure: no I/O, no clock, no random numbers.
 *
 * Order of calls: replay_begin(); replay_step() until it is REPLAY_DONE. Each time that it says REPLAY_LOAD, the engine
 * puts every cell that is wanted (and whatever else it has), with the time and the identity of the moment. What a rule
 * sees between two loads may be of two moments, and then its answer, an error too, is void: that nothing has changed is
 * to be checked for each answer, also of a rule that writes nothing.
 *
 * A cell is a key and a name: "$" its string, "=FIELD" a field of its hash, "!" when it expires (ms of the server's
 * clock, for Lua alone). Three names stand for more, and are only wanted: "*" all fields of the hash, "?" some of them,
 * as many as the engine likes, but all if there are 8 or fewer; ">CURSOR" a page of the keys that have a string. Keys
 * and names are text.
 */
#ifndef DFLOCK_STORE_REPLAY_REPLAY_H
#define DFLOCK_STORE_REPLAY_REPLAY_H

#include <hiredis.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uthash.h>

#include "store/scripts.h"

struct replay; /* the rules, compiled */

/* NULL: no memory. */
struct replay *replay_new(void);
/* No run is left. */
void replay_free(struct replay *replay);

struct replay_cell {
	char *id; /* key, NUL, name */
	size_t id_len;
	const char *key, *name; /* parts of id */
	char *value;            /* len bytes, and NUL; NULL: there is no such cell */
	size_t len;
	uint64_t version; /* as it was put; the engine's. Of a cell that is not there, too */
	bool loaded;      /* it was put. Else it is wanted, or was written without being read */
	bool wanted;      /* since the last replay_step() */
	bool read;        /* the answer depends on what was put */
	bool written;     /* `value` is what the rule has written */
	struct replay_cell *next_wanted;
	UT_hash_handle hh;
};

struct replay_message {
	char *channel, *text;
	struct replay_message *next;
};

struct replay_run {
	struct replay *replay;
	struct replay_cell *cells;  /* a table (uthash), in the order in which they came */
	struct replay_cell *wanted; /* REPLAY_LOAD */
	/* The engine sets these when it puts cells. */
	int64_t now_us; /* the server's clock, which is a wall clock */
	char identity[64];
	/* REPLAY_DONE */
	redisReply *answer;              /* perhaps an error. The run's */
	struct replay_message *messages; /* in order */
	struct replay_message **last_message;
	bool writes;
	int thread; /* of Lua: its reference */
};

/*
 * A run of a script, or with -1 of a single command, which is the first word. The words are copied: of a script first
 * `keys` keys, then its arguments. The cells that the rule is likely to need are wanted at once: the first
 * replay_step() says so. NULL: no memory.
 */
struct replay_run *replay_begin(struct replay *replay, int script, int keys, int argc, char *const *argv);

enum replay_verdict {
	REPLAY_LOAD, /* put what run->wanted lists */
	REPLAY_DONE,
};
/* Goes on. No memory: REPLAY_DONE with an error. */
enum replay_verdict replay_step(struct replay_run *run);

/* What the engine has of a cell; value NULL: there is none. Copied. A cell that was put before keeps what it had.
 * Behind all fields of a hash that "*" or "?" asked for comes that cell itself, with a version of the whole, or
 * none; likewise ">CURSOR", whose value is the next cursor and the keys, each with its NUL. Running out of memory
 * ends the process. */
void replay_put(struct replay_run *run, const char *key, const char *name, const char *value, size_t len,
		uint64_t version);

/* Frees it, whether or not it is done. */
void replay_end(struct replay_run *run);

#endif
