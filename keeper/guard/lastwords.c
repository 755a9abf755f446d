/*
 * See lastwords.h.
 *
 * Why no standard error can hold up the parent, or another process's line: a child finds out which different ones there
 * are, which asks no file server, and each line is written by a process of its own. The parent waits for the ends of
 * pipes that all of them have, for a bounded time. SIGALRM ends writers that wait longer. A writer that hangs in the
 * kernel all the same, on a mount that does not answer, is left behind and ends when the mount does.
 *
 * Why a kill does not overtake the line, on however busy a machine: a process that was killed has no descriptors any
 * more. So the parent waits until each writer has one of its own (`ready` ends), and only then lets them write (a byte
 * in `go`): from then on the process may end. If they are not ready in time, the parent closes `go`, and no line is
 * written; the caller may try again later, and no process gets a line twice.
 *
 * Why no process can use this to write where it may not write itself: the writer gets the process's own open file description
 * (pidfd_getfd), with the access mode that it has, and opens nothing. To open /proc/PID/fd/2 instead would open that
 * file with root's rights. An ordinary user's keeper may do that, with the rights of the process's own user: where only
 * a parent may trace its children (Yama), pidfd_getfd() is refused. It opens for writing what the process has open for
 * that.
 *
 * Nothing in the children calls what is not async-signal-safe, stdio and fork() for example: the parent is one thread, but its
 * timer's handler may jump (stopped.c). tests/interpose/test_interpose.py compares names.
 */
#include "keeper/guard/lastwords.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "keeper/clock.h"
#include "wire/text.h"

#define LINE_BYTES     1024
#define WRITER_SECONDS 5 /* a writer that needs longer ends */

struct recent {
	const char *line;
	uint64_t device, inode;
};

/* Two descriptors of the same file count as the same description. */
static bool is_same(const struct recent *a, const struct recent *b)
{
	return a->device == b->device && a->inode == b->inode && !strcmp(a->line, b->line);
}

/* A copy of the process's descriptor 2, or -1. */
static int standard_error_of(pid_t pid)
{
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	int fd = pidfd < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, pidfd, 2, 0);

	if (pidfd >= 0)
		close(pidfd);
	return fd;
}

/* The pipes of one call of lastwords(). Writers keep the end that they write to until they ... */
enum {
	WAY_READY, /* have a descriptor */
	WAY_DONE,  /* have ended */
	WAY_GO,    /* the parent's end: a byte lets writers write; its end without one: there will be none */
	WAYS,
};

static bool hears_go(int fd)
{
	struct pollfd go = {.fd = fd, .events = POLLIN};

	return poll(&go, 1, -1) == 1 && go.revents & POLLIN;
}

/* In a pipe that has no room, or on a terminal that is stopped, the line would wait. path: to be opened; fd -1. */
static _Noreturn void write_line(int fd, const char *path, const char *line, int ways[WAYS][2])
{
	struct pollfd out = {.fd = fd, .events = POLLOUT};
	char buf[LINE_BYTES];
	struct text text;

	alarm(WRITER_SECONDS);
	text_init(&text, buf, sizeof(buf) - 1);
	text_add(&text, "dflock: %s", line);
	buf[text.len++] = '\n';
	if (fd < 0)
		out.fd = open(path, O_WRONLY | O_APPEND | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
	close(ways[WAY_READY][1]);
	_exit(out.fd >= 0 && hears_go(ways[WAY_GO][0]) && poll(&out, 1, 0) == 1 && out.revents == POLLOUT &&
			      write(out.fd, buf, text.len) > 0
		      ? 0
		      : 1);
}

/* Is the process's standard error open for writing, and may its own user open that file for writing? */
static bool may_open(const char *path)
{
	struct stat st;

	return geteuid() != 0 && lstat(path, &st) == 0 && st.st_mode & S_IWUSR;
}

/* Runs in a process of its own: the copied descriptors end with it. */
static _Noreturn void speak(const struct lastword *words, size_t count, int ways[WAYS][2])
{
	struct recent seen[LASTWORDS_MAX];
	size_t seen_count = 0;

	signal(SIGALRM, SIG_DFL); /* the parent catches it (stopped.c) */
	alarm(WRITER_SECONDS);
	close(ways[WAY_GO][1]);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGTTOU, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	for (size_t i = 0; i < count && seen_count < LASTWORDS_MAX; i++) {
		int fd = words[i].line ? standard_error_of(words[i].pid) : -1;
		struct statx stx;
		bool again = false;
		char path[32];

		text_print(path, sizeof(path), "/proc/%d/fd/2", words[i].pid);
		if (!words[i].line || (fd < 0 && !may_open(path)))
			continue;
		if (statx(fd < 0 ? AT_FDCWD : fd, fd < 0 ? path : "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO,
			  &stx) == 0) {
			seen[seen_count] = (struct recent){.line = words[i].line,
							   .device = makedev(stx.stx_dev_major, stx.stx_dev_minor),
							   .inode = stx.stx_ino};
			for (size_t j = 0; j < seen_count && !again; j++)
				again = is_same(&seen[j], &seen[seen_count]);
			if (!again && _Fork() == 0)
				write_line(fd, path, words[i].line, ways);
			seen_count += !again;
		}
		if (fd >= 0)
			close(fd);
	}
	_exit(0);
}

/* Waits until the pipe has ended, or the time is over. */
static bool has_ended(int fd, int64_t until_ns)
{
	struct pollfd pipe = {.fd = fd, .events = POLLIN};
	int ret;

	do {
		int64_t left = until_ns - clock_now_ns();

		ret = poll(&pipe, 1, left < 0 ? 0 : (int)((left + NS_PER_MS - 1) / NS_PER_MS));
	} while (ret < 0 && errno == EINTR);
	return ret == 1;
}

bool lastwords(const struct lastword *words, size_t count, int ms, bool last)
{
	int64_t until = clock_now_ns() + ms * NS_PER_MS;
	int ways[WAYS][2];
	size_t open = 0;
	bool ready = true;
	pid_t child = -1;

	while (count && open < WAYS && pipe2(ways[open], O_CLOEXEC) == 0)
		open++;
	if (open == WAYS)
		child = _Fork();
	if (child == 0) { /* its children belong to init, which reaps them however long they take */
		if (_Fork() == 0)
			speak(words, count, ways);
		_exit(0);
	}
	for (size_t i = 0; i < open; i++)
		if (i != WAY_GO)
			close(ways[i][1]);
	if (child > 0) {
		waitpid(child, NULL, 0);
		ready = has_ended(ways[WAY_READY][0], until); /* mutant: words-ready */
		if (ready || last)                            /* mutant: words-go */
			(void)!write(ways[WAY_GO][1], "g", 1);
		if (ready)
			has_ended(ways[WAY_DONE][0], until);
	}
	for (size_t i = 0; i < open; i++)
		close(ways[i][i == WAY_GO]);
	if (open == WAYS)
		close(ways[WAY_GO][0]);
	return ready;
}
