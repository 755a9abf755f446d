/* See logline.h. The journal's protocol: systemd.io/JOURNAL_NATIVE_PROTOCOL. */
#include "keeper/logline.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#define LOGSINK_NAME "dflockd"

/* --- opening --- */

static void logsink_address(struct logsink *s, const char *path)
{
	s->address = (struct sockaddr_un){.sun_family = AF_UNIX};
	snprintf(s->address.sun_path, sizeof(s->address.sun_path), "%s", path);
}

/* Another description of the same pipe or terminal: O_NONBLOCK on ours would be there for all that share it. */
static void logsink_open_err(struct logsink *s)
{
	struct stat st;

	s->err = 2;
	if (fstat(2, &st) != 0) {
		s->err = -1;
		return;
	}
	s->err_is_socket = S_ISSOCK(st.st_mode);
	if (!S_ISFIFO(st.st_mode) && !S_ISCHR(st.st_mode))
		return;
	s->err = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
	s->err_may_wait = s->err < 0; /* another user's terminal */
	if (s->err < 0)
		s->err = 2;
}

/* JOURNAL_STREAM is "DEVICE:INODE" of the stream that systemd has made for the unit; standard error may be another by now. */
static bool logsink_err_is_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long long dev, ino;
	struct stat st;
	char end;

	return stream && sscanf(stream, "%llu:%llu%c", &dev, &ino, &end) == 2 && fstat(2, &st) == 0 &&
	       st.st_dev == dev && st.st_ino == ino;
}

static bool logsink_syslog_is_journal(const char *syslog)
{
	char target[64];
	ssize_t len = readlink(syslog, target, sizeof(target) - 1);

	target[len > 0 ? len : 0] = '\0';
	return strcmp(target, LOGSINK_JOURNAL_DEV) == 0;
}

void logsink_open(struct logsink *s, bool foreground, const char *journal, const char *syslog)
{
	*s = (struct logsink){.fd = -1, .err = -1};
	if (foreground)
		logsink_open_err(s);
	s->journal = foreground ? logsink_err_is_journal() : logsink_syslog_is_journal(syslog);
	if (foreground && !s->journal)
		return;
	logsink_address(s, s->journal ? journal : syslog);
	tzset(); /* reads the file now, and not when a line is written */
	s->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

void logsink_close(struct logsink *s)
{
	if (s->fd >= 0)
		close(s->fd);
	if (s->err > 2)
		close(s->err);
	*s = (struct logsink)LOGSINK_BEGIN;
}

/* --- the journal --- */

struct logsink_message {
	char bytes[12288];
	size_t len;
};

static void logsink_put(struct logsink_message *m, const void *bytes, size_t len)
{
	memcpy(m->bytes + m->len, bytes, len);
	m->len += len;
}

/* NAME=VALUE; or, since a value with a newline in it could make up further fields, the name, the length and the bytes. */
static void logsink_field(struct logsink_message *m, const char *name, const char *value)
{
	size_t name_len = strlen(name), len = strlen(value);
	const uint64_t size = htole64(len);

	if (m->len + name_len + sizeof(size) + len + 2 > sizeof(m->bytes))
		return; /* never: names of locks and texts are shorter */
	logsink_put(m, name, name_len);
	if (strchr(value, '\n')) {
		logsink_put(m, "\n", 1);
		logsink_put(m, &size, sizeof(size));
	} else {
		logsink_put(m, "=", 1);
	}
	logsink_put(m, value, len);
	logsink_put(m, "\n", 1);
}

static void logsink_number(struct logsink_message *m, const char *name, int number)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", number);
	logsink_field(m, name, text);
}

static int logsink_send(const struct logsink *s, const char *bytes, size_t len)
{
	if (s->fd < 0)
		return -EBADF;
	if (sendto(s->fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL, (const struct sockaddr *)&s->address,
		   sizeof(s->address)) < 0)
		return -errno;
	return 0;
}

static int logsink_to_journal(const struct logsink *s, const struct log_line *line, const char *host)
{
	struct logsink_message m;

	m.len = 0;
	logsink_number(&m, "PRIORITY", logname_level(line->kind));
	logsink_number(&m, "SYSLOG_FACILITY", LOG_DAEMON >> 3);
	logsink_field(&m, "SYSLOG_IDENTIFIER", LOGSINK_NAME);
	if (*logname_of(line->kind))
		logsink_field(&m, "DFLOCK_EVENT", logname_of(line->kind));
	if (*host)
		logsink_field(&m, "DFLOCK_HOST", host);
	if (line->is_lock)
		logsink_field(&m, "DFLOCK_LOCK", line->subject);
	if (line->pid)
		logsink_number(&m, "DFLOCK_PID", line->pid);
	logsink_field(&m, "MESSAGE", line->text);
	return logsink_send(s, m.bytes, m.len);
}

/* --- syslog --- */

static int logsink_to_syslog(const struct logsink *s, const struct log_line *line)
{
	char text[LOGSINK_TEXT_BYTES + 128], when[32] = "";
	time_t now = time(NULL);
	struct tm tm;
	int len;

	if (localtime_r(&now, &tm))
		strftime(when, sizeof(when), "%b %e %T", &tm);
	len = snprintf(text, sizeof(text), "<%d>%s " LOGSINK_NAME "[%d]: %s", LOG_DAEMON | logname_level(line->kind),
		       when, (int)getpid(), line->text);
	if (len >= (int)sizeof(text))
		len = sizeof(text) - 1;
	return logsink_send(s, text, (size_t)len);
}

/* --- standard error --- */

static int logsink_to_err(struct logsink *s, const struct log_line *line)
{
	struct pollfd room = {.fd = s->err, .events = POLLOUT};
	char text[LOGSINK_TEXT_BYTES + 32]; /* less than PIPE_BUF: a pipe takes all of it or nothing */
	int len = snprintf(text, sizeof(text) - 1, "%s" LOGSINK_NAME ": %s", s->torn ? "\n" : "", line->text);
	ssize_t n = 1;
	int done = 0;

	if (len >= (int)sizeof(text) - 1)
		len = sizeof(text) - 2;
	text[len++] = '\n';
	if (s->err < 0)
		return -EBADF;
	if (s->err_may_wait && poll(&room, 1, 0) <= 0)
		return -EAGAIN;
	/* A file takes what there is room for. */
	while (done < len && (n > 0 || (n < 0 && errno == EINTR))) {
		n = s->err_is_socket ? send(s->err, text + done, (size_t)(len - done), MSG_DONTWAIT | MSG_NOSIGNAL)
				     : write(s->err, text + done, (size_t)(len - done));
		done += n > 0 ? (int)n : 0;
	}
	if (done)
		s->torn = done < len;
	if (done == len)
		return 0;
	return n < 0 ? -errno : -EIO;
}

int logsink_write(struct logsink *s, const struct log_line *line, const char *host)
{
	int ret;

	if (s->fd < 0)
		return logsink_to_err(s, line);
	if (!s->journal)
		return logsink_to_syslog(s, line);
	ret = logsink_to_journal(s, line, host);
	return ret < 0 && s->err >= 0 ? logsink_to_err(s, line) : ret;
}
