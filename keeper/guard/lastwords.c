/*
 * See lastwords.h.
 *
 * Why no standard error can hold up the parent, or another process's line: a child finds out which different ones there
 * are, which asks no file server, and each line is written by a process of its own. The parent waits for the end of a
 * pipe that all of them have, for a bounded time. SIGALRM ends writers that wait longer. A writer that hangs in the kernel
 * all the same, on a mount that does not answer, is left behind and ends when the mount does.
 *
 * Why no process can use this to write where it may not write itself: the writer gets the process's own open file description
 * (pidfd_getfd), with the access mode that it has, and opens nothing. To open /proc/PID/fd/2 instead would open that
 * file with root's rights. An ordinary user's keeper may do that, with the rights of the process's own user: where only
 * a parent may trace its children (Yama), pidfd_getfd() is refused. It opens for writing what the process has open for
 * that.
 */
#include "keeper/guard/lastwords.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#define LINE_BYTES 1024

struct seen {
	const char *line;
	uint64_t device, inode;
};

/* Two descriptors of the same file count as the same description. */
static bool is_same(const struct seen *a, const struct seen *b)
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

/* In a pipe that has no room, or on a terminal that is stopped, the line would wait. path: to be opened; fd -1. */
static _Noreturn void write_line(int fd, const char *path, const char *line)
{
	char text[LINE_BYTES];
	int bytes = snprintf(text, sizeof(text), "dflock: %s\n", line);
	struct pollfd out = {.fd = fd, .events = POLLOUT};

	alarm(1);
	if ((size_t)bytes >= sizeof(text)) {
		bytes = sizeof(text) - 1;
		text[bytes - 1] = '\n';
	}
	if (fd < 0)
		out.fd = open(path, O_WRONLY | O_APPEND | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
	_exit(out.fd >= 0 && poll(&out, 1, 0) == 1 && out.revents == POLLOUT && write(out.fd, text, (size_t)bytes) > 0
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
static _Noreturn void speak(const struct lastword *words, size_t count)
{
	struct seen seen[LASTWORDS_MAX];
	size_t seen_count = 0;

	signal(SIGALRM, SIG_DFL); /* the parent catches it (stopped.c) */
	alarm(1);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGTTOU, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	for (size_t i = 0; i < count && seen_count < LASTWORDS_MAX; i++) {
		int fd = standard_error_of(words[i].pid);
		char path[32];
		struct statx stx;
		bool again = false;

		snprintf(path, sizeof(path), "/proc/%d/fd/2", (int)words[i].pid);
		if (fd < 0 && !may_open(path))
			continue;
		if (statx(fd < 0 ? AT_FDCWD : fd, fd < 0 ? path : "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO,
			  &stx) == 0) {
			seen[seen_count] = (struct seen){.line = words[i].line,
							 .device = makedev(stx.stx_dev_major, stx.stx_dev_minor),
							 .inode = stx.stx_ino};
			for (size_t j = 0; j < seen_count && !again; j++)
				again = is_same(&seen[j], &seen[seen_count]);
			if (!again && fork() == 0)
				write_line(fd, path, words[i].line);
			seen_count += !again;
		}
		if (fd >= 0)
			close(fd);
	}
	_exit(0);
}

void lastwords(const struct lastword *words, size_t count, int ms)
{
	int ends[2];
	struct pollfd done = {.events = POLLIN};
	pid_t child;

	if (!count || pipe2(ends, O_CLOEXEC) != 0)
		return;
	child = fork();
	if (child == 0) { /* its children belong to init, which reaps them however long they take */
		if (fork() == 0)
			speak(words, count);
		_exit(0);
	}
	close(ends[1]);
	if (child > 0)
		waitpid(child, NULL, 0);
	done.fd = ends[0];
	poll(&done, 1, ms); /* the pipe ends with the last of them */
	close(ends[0]);
}
