/*
 * See lastwords.h.
 *
 * Why nobody's standard error can hold up the parent, or another's line: a child finds out which different ones there
 * are, which asks no file server, and each line is written by a process of its own. The parent waits for the end of a
 * pipe that all of them have, for a bounded time. SIGALRM ends those that wait longer. One
 * that hangs in the kernel all the same, on a mount that does not answer, is left behind and ends when the mount does.
 *
 * Why nobody can use this to write where that process may not: the writer gets the process's own open file description
 * (pidfd_getfd), with the access mode that it has, and opens nothing. Opening /proc/PID/fd/2 instead would be opening
 * that file with root's rights.
 */
#include "keeper/lastwords.h"

#include <fcntl.h>
#include <linux/kcmp.h>
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
#define MAX_SEEN   64 /* different ones; more get no line */

struct seen {
	pid_t pid;
	uint64_t device, inode;
};

/* Where the kernel does not say whether they are one description, the same inode is taken for the same. */
static bool is_same(const struct seen *a, const struct seen *b)
{
	return syscall(SYS_kcmp, a->pid, b->pid, KCMP_FILE, 2, 2) == 0 ||
	       (a->device == b->device && a->inode == b->inode);
}

/* A copy of its descriptor 2; -1. */
static int standard_error_of(pid_t pid)
{
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	int fd = pidfd < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, pidfd, 2, 0);

	if (pidfd >= 0)
		close(pidfd);
	return fd;
}

/* In a pipe that has no room, or on a terminal that is stopped, the line would wait. */
static _Noreturn void write_line(int fd, const char *line, size_t bytes)
{
	struct pollfd out = {.fd = fd, .events = POLLOUT};

	alarm(1);
	_exit(poll(&out, 1, 0) == 1 && out.revents == POLLOUT && write(fd, line, bytes) > 0 ? 0 : 1);
}

/* Of a process that is there for this alone: the copies end with it. */
static _Noreturn void speak(const pid_t *pids, size_t count, const char *line, size_t bytes)
{
	struct seen seen[MAX_SEEN];
	size_t seen_count = 0;

	signal(SIGALRM, SIG_DFL); /* the parent catches it (stopped.c) */
	alarm(1);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGTTOU, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	for (size_t i = 0; i < count && seen_count < MAX_SEEN; i++) {
		int fd = standard_error_of(pids[i]);
		struct statx stx;
		bool again = false;

		if (fd < 0 || statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO, &stx) != 0)
			continue;
		seen[seen_count] = (struct seen){
			.pid = pids[i], .device = makedev(stx.stx_dev_major, stx.stx_dev_minor), .inode = stx.stx_ino};
		for (size_t j = 0; j < seen_count && !again; j++)
			again = is_same(&seen[j], &seen[seen_count]);
		if (again)
			continue;
		seen_count++;
		if (fork() == 0)
			write_line(fd, line, bytes);
	}
	_exit(0);
}

void lastwords(const pid_t *pids, size_t count, const char *line)
{
	char text[LINE_BYTES];
	int bytes = snprintf(text, sizeof(text), "dflock: %s\n", line), ends[2];
	struct pollfd done = {.events = POLLIN};
	pid_t child;

	if (!count || pipe2(ends, O_CLOEXEC) != 0)
		return;
	child = fork();
	if (child == 0) { /* what it starts belongs to init, which reaps it however long it takes */
		if (fork() == 0)
			speak(pids, count, text, (size_t)bytes < sizeof(text) ? (size_t)bytes : sizeof(text) - 1);
		_exit(0);
	}
	close(ends[1]);
	if (child > 0)
		waitpid(child, NULL, 0);
	done.fd = ends[0];
	poll(&done, 1, LASTWORDS_MS); /* it ends when the last of them does */
	close(ends[0]);
}
