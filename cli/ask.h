/*
 * A connection to the keeper, and questions over it. Each step blocks for at most ASK_DEADLINE_S, or the time of
 * ask_patience().
 */
#ifndef DFLOCK_CLI_ASK_H
#define DFLOCK_CLI_ASK_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "cli/cli.h"
#include "wire/msg.h"
#include "wire/place.h"

#define ASK_DEADLINE_S 10
#define ASK_NEXT_S     3 /* for which the next keeper is waited for */

struct ask {
	const struct place *place;
	char dir[PLACE_DIR_BYTES]; /* its runtime directory */
	int fd;
	pid_t pid; /* of the keeper; 0 if it is in a pid namespace that cannot be seen from here */
	uid_t uid;
	int deadline_s;
	bool started;  /* by start_connect() */
	uint8_t flags; /* of the questions that follow; 0 at first */
	uint8_t space; /* ditto: WIRE_BREAK and WIRE_END_REST, as are the next two */
	int64_t from, to;
};

/*
 * Connects to the keeper of the runtime directory, which root or this user must run. When a keeper ends, its parent
 * starts the next one: this waits for it, ASK_NEXT_S at most. Returns 0; -ENOENT: no keeper runs; else -errno with one
 * line in why. dir is filled after 0 and -ENOENT, with "" if there is no runtime directory.
 * After 0, end it with ask_close(), which may be called after an error too. place must live until then.
 */
int ask_connect(const struct place *place, struct ask *ask, char why[CLI_LINE_BYTES]);
void ask_close(struct ask *ask);
/* No keeper runs: are there rules that the next one would go by before it reads the configuration? */
bool ask_is_left(const struct ask *ask);
/* The next answers may take this long. */
void ask_patience(struct ask *ask, int seconds);

/*
 * One question, with the text that follows it (NULL: none), and its answer. 0: the keeper said WIRE_OK; *memfd (memfd may be NULL) is the descriptor that came
 * with the answer, or -1, and the caller closes it; why is the line that came with it, mostly "". -ENOLCK: the keeper refused, why has its reason; -EAGAIN: the same, and
 * WIRE_FIT may be asked again, and of what is to be broken nothing is there. Else -errno with one line in why.
 */
int ask_about(struct ask *ask, enum wire_op op, const char *text, int *memfd, char why[CLI_LINE_BYTES]);

/*
 * One question about `text`, with these WIRE_F_ flags, to the keeper of this user, with a connection of its own. *answer: the JSON that came with
 * it, which the caller ends with json_decref(), NULL unless 0 is returned; answer NULL: only the line counts. 0, or
 * -errno as ask_connect() or ask_about(), with why also after -ENOENT.
 */
int ask_once(enum wire_op op, unsigned flags, const char *text, json_t **answer, char why[CLI_LINE_BYTES]);
/* An answer that is JSON, parsed, which the caller ends with json_decref(): to WIRE_STATUS (text NULL), or to WIRE_WHO about
 * `text`. NULL with why. */
json_t *ask_json(struct ask *ask, enum wire_op op, const char *text, char why[CLI_LINE_BYTES]);

/* --- a keeper that runs (start.c) --- */

/*
 * ask_connect(); if no keeper runs, starts one with place's configuration and connects to that one. 0, or -errno with
 * one line in why. ask->dir is filled as by ask_connect(). Waits up to ASK_DEADLINE_S.
 */
int start_connect(const struct place *place, struct ask *ask, char why[CLI_LINE_BYTES]);

/*
 * The keeper's status. A keeper serves before it has reached the store, and connects again every 2 s to a store that
 * was down: until then its status may be old. So it is asked again until the store is up, for at most
 * STORE_PATIENCE_MS. The caller releases the answer (json_decref()). NULL: why has one line.
 */
#define STORE_PATIENCE_MS 3000
json_t *store_await(struct ask *ask, char why[CLI_LINE_BYTES]);

/* How long a keeper that has just started may take to reach the store. */
#define REQUIRE_PATIENCE_MS 1000

/*
 * Is everything there that protects a job: a valid configuration that is in force, a keeper (one is started if none
 * runs), and a store that grants new locks? And is each of the `count` files protected? True, or false with one line in
 * why: what is missing, and what to do. Waits at most REQUIRE_PATIENCE_MS for the store, and as long as
 * start_connect() for the keeper.
 */
bool require_fit(const struct place *place, const char *const *files, size_t count, char why[CLI_LINE_BYTES]);

/*
 * Is `lock`, as an operator writes it, a file, a lock name that a rule of this host gives, or the NAME of a `dflock lock`? False with one
 * line in why. Where the configuration cannot be read, everything is. Of no use for what the store has a lease of.
 */
bool who_is_known(const struct ask *ask, const char *lock, char why[CLI_LINE_BYTES]);

/*
 * Asks about the file or lock name `lock`, as an operator writes it: a file, if a rule protects it; else a lock name; else
 * the NAME of a `dflock lock`. The answer (keeper/callers/whoreport.c has its form), which the caller ends with
 * json_decref(). NULL with one line in why, also for a file that no rule protects, and for what nobody knows (who_is_known()). Takes two seconds for each of these if
 * a host does not answer.
 */
json_t *who_ask(struct ask *ask, const char *lock, char why[CLI_LINE_BYTES]);

#endif
