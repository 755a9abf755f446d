/*
 * The two halves of the log below log.c: which lines are written (logcause.c, pure: the time is an argument), and where they go
 * (logsink.c).
 *
 * A cause is a name (log.h), the place in the sources that says it, and what the line is about: a lock name, another subject, or
 * nothing. The first line of a cause is written at once. Further ones are counted, and the latest is kept; when LOGCAUSE_NS have passed since the last line that was
 * written, the latest is written with the number of lines for which it stands. So no line is lost without being counted, and
 * the last state is always told.
 *
 * What is about one store is not about another one: causes and states have its number.
 *
 * States. "The store is away" and "it is back" are causes of their own, so that each is written at once. Of lines that say states
 * of one thing only the latest is kept: a line that is written counts the earlier ones of the other states, and these are not written
 * after it.
 *
 * Why the memory is bounded although anybody can think up lock names: there are LOGCAUSE_MORE_CAUSES entries, of which a name has at
 * most LOGCAUSE_EACH with a subject. All further causes of a name are one cause, which has an entry of its own. An entry is free again
 * when its time is over and nothing is left to be told. So there are never more than LOGCAUSE_ALL lines in LOGCAUSE_NS, whatever
 * happens; and a user who takes all entries takes no more from other lines than that their causes are told apart.
 *
 * A struct logcauses that is all zero is empty. It may be in memory that processes share, and the process that wrote in it may have
 * been killed at any moment: what is read from it is in bounds, whatever it is.
 */
#ifndef DFLOCK_KEEPER_LOGLINE_H
#define DFLOCK_KEEPER_LOGLINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include "keeper/log.h"

struct log_line {
	enum event_kind kind;
	const void *site;    /* compared, never followed */
	const char *subject; /* any bytes; NULL: none */
	bool is_lock;        /* it is a lock name */
	unsigned store;      /* log.h */
	pid_t pid;           /* 0: none */
	const char *text;
};

/* "lease-lost" and so on. LINE_DEBUG has none: "". */
const char *logname_of(enum event_kind kind);
/* LOG_ERR, LOG_WARNING, LOG_INFO or LOG_DEBUG (syslog.h). */
int logname_level(enum event_kind kind);

/* --- which lines are written (logcause.c) --- */

#define LOGCAUSE_NS          60000000000ll
#define LOGCAUSE_MORE_CAUSES 208
#define LOGCAUSE_EACH        32
#define LOGCAUSE_ALL         (LOGNAME_KINDS + LOGCAUSE_MORE_CAUSES)
#define LOGCAUSE_BYTES       1024 /* of a text or a subject that is kept */
#define LOGCAUSE_MORE        256

struct logcause {
	bool used, is_lock, others; /* others: it stands for several causes */
	uint32_t kind, store;
	const void *site;
	uint32_t missed;   /* lines that were counted since the last one that was written */
	uint64_t number;   /* of the latest line, in the order in which lines came */
	int64_t said_ns;   /* when a line was written last */
	int64_t latest_ns; /* when the latest came */
	pid_t pid;
};

struct logcauses {
	uint64_t number;
	struct logcause all[LOGCAUSE_ALL]; /* first one for each name: all its further causes */
	struct {
		char subject[LOGCAUSE_BYTES], text[LOGCAUSE_BYTES];
	} texts[LOGCAUSE_ALL]; /* apart: most pages of it are never touched */
};

/* A line has come. True: it is to be written now, with `more` behind it ("", or " (3 times in the last 70 s)"). With
 * `always` it is written in any case. */
bool logcause_admit(struct logcauses *c, const struct log_line *line, bool always, int64_t now_ns,
		    char more[LOGCAUSE_MORE]);

/* A line that was kept and is due now; with `flush`, whether it is due or not. False: there is none. What *line points to is
 * valid until the next call. */
bool logcause_due(struct logcauses *c, bool flush, int64_t now_ns, struct log_line *line, char more[LOGCAUSE_MORE]);

/*
 * --- where they go (logsink.c) ---
 *
 *   foreground   the journal, if standard error is a stream to it (JOURNAL_STREAM: a unit of systemd), else standard error
 *   background   the journal, if /dev/log is the journal's, else syslog, which must take datagrams
 *
 * Fields in the journal: MESSAGE, PRIORITY, SYSLOG_FACILITY, SYSLOG_IDENTIFIER, DFLOCK_EVENT (the line's name), DFLOCK_LOCK (a lock
 * name, its bytes as they are), DFLOCK_HOST (the id of this host in the store), DFLOCK_PID (the process that the line is about; the
 * journal's own _PID is the process that wrote it). No CODE_FILE, CODE_LINE and CODE_FUNC: they change with each version, and names do
 * not.
 *
 * Nothing here waits. A line for which there is no room is not written, and the caller hears of it. This is why neither syslog()
 * nor sd_journal_send() is used: both wait, for as long as it takes, for a daemon that does not read, and the parent must stop
 * processes meanwhile. In the foreground, a line that the journal's socket does not take goes to standard error. One kind of output
 * may wait: a file on a file system that does not answer.
 */

#define LOGSINK_JOURNAL     "/run/systemd/journal/socket"
#define LOGSINK_JOURNAL_DEV "/run/systemd/journal/dev-log"
#define LOGSINK_SYSLOG      "/dev/log"
#define LOGSINK_TEXT_BYTES  2560 /* a longer text is cut */

struct logsink {
	int fd;       /* of datagrams; -1: standard error alone */
	bool journal; /* else fd is for syslog */
	struct sockaddr_un address;
	int err; /* standard error, so that writing does not wait; -1: nothing goes there */
	bool err_is_socket, err_may_wait;
	bool torn; /* only a part of the last line was written there */
};

/* What lines are written to before logsink_open(): standard error, as it is. */
#define LOGSINK_BEGIN                                                                                                  \
	{                                                                                                              \
		.fd = -1, .err = 2                                                                                     \
	}

/* journal, syslog: the paths above. */
void logsink_open(struct logsink *s, bool foreground, const char *journal, const char *syslog);
/* Closes what logsink_open() has opened. */
void logsink_close(struct logsink *s);

/* The text is without control characters. host: "" if it is not known. 0, or -errno: the line was not written. */
int logsink_write(struct logsink *s, const struct log_line *line, const char *host);

#endif
