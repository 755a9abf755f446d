/*
 * Where log lines go: the journal, with fields; standard error; or syslog.
 *
 *   foreground   the journal, if standard error is a stream to it (JOURNAL_STREAM: a unit of systemd), else standard error
 *   background   the journal, if /dev/log is the journal's, else syslog
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
#ifndef DFLOCK_KEEPER_LOGSINK_H
#define DFLOCK_KEEPER_LOGSINK_H

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#define LOGSINK_JOURNAL     "/run/systemd/journal/socket"
#define LOGSINK_JOURNAL_DEV "/run/systemd/journal/dev-log"
#define LOGSINK_SYSLOG      "/dev/log"
#define LOGSINK_TEXT_BYTES  2560 /* a longer text is cut */

struct logsink {
	int fd;       /* of datagrams; -1: standard error alone */
	int stream;   /* a syslog that takes streams; -1: none */
	bool journal; /* else fd is for syslog */
	struct sockaddr_un address;
	int err; /* standard error, so that writing does not wait; -1: nothing goes there */
	bool err_is_socket, err_may_wait;
};

struct logsink_line {
	int level;         /* syslog.h */
	const char *text;  /* without control characters */
	const char *event; /* its name; "": none */
	const char *lock;  /* any bytes; NULL: none */
	const char *host;  /* "": not known */
	pid_t pid;         /* 0: none */
};

/* What lines are written to before logsink_open(): standard error, as it is. */
#define LOGSINK_BEGIN                                                                                                  \
	{                                                                                                              \
		.fd = -1, .stream = -1, .err = 2                                                                       \
	}

/* journal, syslog: the paths above. */
void logsink_open(struct logsink *s, bool foreground, const char *journal, const char *syslog);
/* Closes what logsink_open() has opened. */
void logsink_close(struct logsink *s);

/* 0, or -errno: the line was not written. */
int logsink_write(struct logsink *s, const struct logsink_line *line);

#endif
