/*
 * Which lines are written, and which are only counted: at most one line in LOGCAUSE_NS for each cause. Pure: the time is an
 * argument.
 *
 * A cause is a name (log.h), the place in the sources that says it, and what the line is about: a lock name, another subject, or
 * nothing. The first line of a cause is written at once. Further ones are counted, and the latest is kept; when LOGCAUSE_NS have passed since the last line that was
 * written, the latest is written with the number of lines for which it stands. So no line is lost without being counted, and
 * the last state is always told.
 *
 * States. "The store is away" and "it is back" are causes of their own, so that each is written at once. Of lines that say states
 * of one thing (logname_state()) only the latest is kept: a line that is written counts the earlier ones of the other states, and
 * these are not written after it.
 *
 * Why the memory is bounded although anybody can think up lock names: there are LOGCAUSE_SITES entries for causes without a subject
 * (the sources have fewer of them) and LOGCAUSE_SUBJECTS for those with one, of which a name has at most LOGCAUSE_EACH. All further
 * causes of a name are one cause, which has an entry of its own. An entry is free again when its time is over and nothing is left to
 * be told. So there are never more than LOGCAUSE_ALL lines in LOGCAUSE_NS, whatever happens; and a user who takes all entries for
 * subjects takes no more from other lines than that their subjects are told apart.
 *
 * A struct logcauses that is all zero is empty. It may be in memory that processes share, and the process that wrote in it may have
 * been killed at any moment: what is read from it is in bounds, whatever it is.
 */
#ifndef DFLOCK_KEEPER_LOGCAUSE_H
#define DFLOCK_KEEPER_LOGCAUSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "keeper/log.h"

#define LOGCAUSE_NS       60000000000ll
#define LOGCAUSE_SITES    80
#define LOGCAUSE_SUBJECTS 128
#define LOGCAUSE_EACH     32
#define LOGCAUSE_ALL      (LOGNAME_KINDS + LOGCAUSE_SITES + LOGCAUSE_SUBJECTS)
#define LOGCAUSE_BYTES    1024 /* of a text or a subject that is kept */
#define LOGCAUSE_MORE     256

struct logcause_line {
	enum event_kind kind;
	const void *site;    /* compared, never followed */
	const char *subject; /* any bytes; NULL: none */
	bool is_lock;        /* it is a lock name */
	pid_t pid;           /* 0: none */
	const char *text;
};

struct logcause {
	bool used, is_lock, others; /* others: it stands for several causes */
	uint32_t kind;
	const void *site;
	uint32_t missed;   /* lines that were counted since the last one that was written */
	uint64_t number;   /* of the latest line, in the order in which lines came */
	uint64_t hash;     /* of the whole subject */
	int64_t said_ns;   /* when a line was written last */
	int64_t latest_ns; /* when the latest came */
	pid_t pid;
};

struct logcauses {
	uint64_t number;
	struct logcause
		all[LOGCAUSE_ALL]; /* first one for each name: all further causes; then the sites; then the subjects */
	struct {
		char subject[LOGCAUSE_BYTES], text[LOGCAUSE_BYTES];
	} texts[LOGCAUSE_ALL]; /* apart: most pages of it are never touched */
};

/* "lease-lost" and so on. LINE_DEBUG has none: "". */
const char *logname_of(enum event_kind kind);

/* LOG_ERR, LOG_WARNING, LOG_INFO or LOG_DEBUG (syslog.h). */
int logname_level(enum event_kind kind);

/* Lines with the same number say states of one thing, of which the latest holds (the store is away; it is back); with *each, of one
 * thing for each lock name. 0: the line says no state. */
unsigned logname_state(enum event_kind kind, bool *each);

/* A line has come. True: it is to be written now, with `more` behind it ("", or " (3 times in the last 70 s)"). With
 * `always` it is written in any case. */
bool logcause_admit(struct logcauses *c, const struct logcause_line *line, bool always, int64_t now_ns,
		    char more[LOGCAUSE_MORE]);

/* A line that was kept and is due now; with `flush`, whether it is due or not. False: there is none. What *line points to is
 * valid until the next call. */
bool logcause_due(struct logcauses *c, bool flush, int64_t now_ns, struct logcause_line *line,
		  char more[LOGCAUSE_MORE]);

#endif
