/*
 * The engine for PostgreSQL. Each file calls only files above it in this list:
 *
 *   send.c     statements, and what they are given: load, apply
 *   connect.c  reaches a server, in a thread
 *   greet.c    a new session: its settings, and what the server must be
 *   engine.c   the queries, their rules and answers; messages; struct engine
 */
#ifndef DFLOCK_STORE_POSTGRESQL_H
#define DFLOCK_STORE_POSTGRESQL_H

#include <libpq-fe.h>

#include "store/internal.h"
#include "store/replay/replay.h"

struct postgresql_query {
	struct query q;
	struct postgresql_query *next;
	struct replay_run *run; /* NULL: it waits for its turn */
	char was[96];           /* what the run's first load said of the memory: apply() compares */
	uint64_t fence;         /* the one that load() has given it; 0: none */
	unsigned loads;         /* of this run */
	unsigned tries;         /* how often something had changed */
	bool alone;             /* the session has load()'s lock */
};

enum postgresql_step {
	STEP_NONE,
	STEP_SET,    /* greet.c */
	STEP_HELLO,  /* ditto */
	STEP_FORGET, /* ditto */
	STEP_LOOK,   /* is it still there? */
	STEP_LOAD,
	STEP_APPLY,
	STEP_UNLOCK,
};

struct attempt;

struct postgresql {
	struct store *store;
	struct replay *replay;
	struct attempt *attempt;   /* NULL: none that is waited for. `left` counts those that were given up */
	unsigned left;             /* attempts that were given up and go on in their threads */
	unsigned turn;             /* the server of a list with which the next attempt begins */
	PGconn *conn;              /* NULL: not connected */
	uv_poll_t *poll;           /* its socket; NULL: ditto */
	uv_poll_cb on_ready;       /* engine.c */
	enum postgresql_step step; /* what was sent, and not answered */
	PGresult *result;          /* what has come of its answer; NULL: nothing */
	struct postgresql_query *first, **last;
	uv_timer_t limit;  /* of the first query with all its steps, or of a step without one */
	bool look;         /* STEP_LOOK is to be sent */
	bool lost;         /* a notice said that a commit may not be kept */
	char system[40];   /* which cluster and timeline this session sees: they do not change while it lasts */
	char identity[64]; /* of the memory */
};

static inline struct postgresql *postgresql_of(const struct store *s)
{
	return s->at;
}

/* ---- send.c ---- */

/* Of what libpq says, the first line. `answers`: store_reject(). */
void postgresql_fail(struct postgresql *p, bool answers, const char *what, const char *said);
/* Sends one statement; the answer is binary. With parameters, which are text: one that greet.c has prepared, by its name. count -1: several
 * statements, and the answer is text. Nothing is under way.
 * The time limit runs from here if it does not run already. */
void postgresql_send(struct postgresql *p, enum postgresql_step step, const char *sql, int count,
		     const char *const *values);
/* Has the first query's wanted cells loaded. */
void postgresql_load(struct postgresql *p);
/* Can this rule grant? Then load() gives it a fence of its own. */
bool postgresql_takes_fence(const struct query *q);
/* Of the record: a sequence. */
bool postgresql_is_fence(const struct replay_cell *cell);
/* Commits what the first query's run has written. */
void postgresql_apply(struct postgresql *p);
/* A column of a binary answer: 0 if it is no bigint. */
int64_t postgresql_number(const PGresult *result, int row, int column);

/* ---- connect.c ---- */

/* An attempt in a thread; ends with p->conn, or in `error` (one line, or several: the first one counts), unless it was given up before. */
void postgresql_attempt(struct postgresql *p, void (*done)(struct postgresql *p, const char *error));
/* It ends by itself, within a tenth of a second unless it looks up a name or speaks with Kerberos. */
void postgresql_give_up(struct postgresql *p);
/* What the configuration leaves out must not come from the program that started the keeper: PGHOST, PGPORT and so on. */
void postgresql_forget_environment(void);
/* Makes s->server. */
void postgresql_name(struct store *s);

/* ---- greet.c ---- */

/* On a new connection. */
void postgresql_greet(struct postgresql *p);
/* The answer to STEP_SET, STEP_HELLO, STEP_FORGET. True: the session may be used. Else it goes on, or the store has failed. */
bool postgresql_greeted(struct postgresql *p, enum postgresql_step step, const PGresult *result);
/* The session sees this memory now: what was seen of another one does not count. */
void postgresql_remember(struct postgresql *p, const char *memory);
/* The server has answered a step with an error: the store fails, with what to do. */
void postgresql_explain(struct postgresql *p, const PGresult *result);

#endif
