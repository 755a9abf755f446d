/*
 * For the tests of keeper/logsink.c and log.c: standard error is a pipe that the test reads, and a socket of the test's is the journal's
 * or syslog's.
 */
#ifndef DFLOCK_TESTS_UNIT_LOGSINK_FIXTURE_H
#define DFLOCK_TESTS_UNIT_LOGSINK_FIXTURE_H

#include <sys/socket.h>
#include <sys/un.h>
#include <syslog.h>

#include "keeper/logline.h"
#include "tests/unit/base_folder.h"

static struct logsink sink;
static int inbox, err_read, saved_err;
static char socket_path[SUITE_PATH_BYTES + 16];

static inline int listen_at(const char *path, int type)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	if (type == SOCK_STREAM)
		ck_assert_int_eq(listen(fd, 5), 0);
	return fd;
}

/* Standard error is a pipe that the test reads. */
static inline void setup(void)
{
	int ends[2];

	signal(SIGPIPE, SIG_IGN);
	base_make();
	snprintf(socket_path, sizeof(socket_path), "%s/socket", base);
	unsetenv("JOURNAL_STREAM");
	saved_err = fcntl(2, F_DUPFD_CLOEXEC, 10);
	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	err_read = ends[0];
	fcntl(err_read, F_SETFL, O_NONBLOCK);
	dup2(ends[1], 2);
	close(ends[1]);
}

static inline void teardown(void)
{
	logsink_close(&sink);
	dup2(saved_err, 2);
	close(saved_err);
	close(err_read);
	base_remove();
}
FIXTURE(setup, teardown)

static inline int write_line(const char *text)
{
	return logsink_write(&sink, &(struct log_line){.kind = LINE_DEBUG, .text = text}, "");
}

/* What has come to standard error, or "". */
static inline const char *err_said(void)
{
	static char text[65536 * 2];
	ssize_t n = read(err_read, text, sizeof(text) - 1);

	text[n > 0 ? n : 0] = '\0';
	return text;
}

static char message[16384];
static size_t message_len;

static inline bool receive(void)
{
	ssize_t n = recv(inbox, message, sizeof(message) - 1, 0);

	ck_assert(n >= 0 || errno == EAGAIN);
	message_len = n > 0 ? (size_t)n : 0;
	message[message_len] = '\0';
	return n > 0;
}

#endif
