/*
 * See supervise.h. The first thread has ended, so /proc/PID/fd and a pidfd of the process show no descriptors. A pidfd
 * of the thread that hangs reaches its descriptors.
 *
 * Which locks are the probes': the kernel notes which process took a flock. A descriptor that a program passed has that
 * program's pid there, and must not be touched: it is the program's own description.
 */
#include "keeper/guard/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "keeper/log.h"
#include "keeper/kernel/mounts.h"
#include "procfs/procfs.h"

#ifndef PIDFD_THREAD
#define PIDFD_THREAD O_EXCL
#endif
#define BACKLOG_MAX 65536
#define LEFT_MAX    64

/* Processes that have not ended so far. More than these are not reaped before the parent ends. */
static pid_t left[LEFT_MAX];

struct leftover {
	pid_t pid;
	int pidfd;
	int dir; /* /proc/PID/task/TID */
	struct mounts *mounts;
};

static int copy(const struct leftover *t, int number)
{
	return (int)syscall(SYS_pidfd_getfd, t->pidfd, number, 0);
}

static void end_socket(const struct leftover *t, int number)
{
	int fd = copy(t, number), listens = 0;
	socklen_t size = sizeof(listens);

	if (fd < 0)
		return;
	shutdown(fd, SHUT_RDWR); /* a listening one refuses from now on */
	if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens)
		for (int n = 0; n < BACKLOG_MAX; n++) {
			int caller = accept4(fd, NULL, NULL, SOCK_CLOEXEC);

			if (caller < 0)
				break;
			close(caller);
		}
	close(fd);
}

/* A flock that this process took, on a local file system. */
static int is_own_lock(void *arg, const struct procfs_lock *lock)
{
	const struct leftover *t = arg;

	/* mutant: leftover-own */
	return lock->space == WIRE_FLOCK && lock->locker == t->pid && mounts_local_device(t->mounts, lock->dev);
}

static bool has_own_lock(struct leftover *t, int number)
{
	struct procfs_text text = {0};
	char name[32];
	bool found;

	snprintf(name, sizeof(name), "fdinfo/%d", number);
	found = procfs_read(t->dir, name, &text) == 0 && procfs_fdinfo(text.text, NULL, is_own_lock, t);
	procfs_free(&text);
	return found;
}

static void drop_lock(const struct leftover *t, int number)
{
	int fd = copy(t, number);

	if (fd < 0)
		return;
	flock(fd, LOCK_UN);
	close(fd);
}

/* 0, or -errno: it cannot be looked into. */
static int cut_off_thread(struct leftover *t)
{
	struct procfs_walk fds;
	int ret = procfs_walk(&fds, t->dir, "fd"), number;

	while (ret == 0 && (number = procfs_next(&fds)) >= 0) {
		enum procfs_kind kind = procfs_kind(procfs_walk_fd(&fds), number);

		if (kind == PROCFS_SOCKET)
			end_socket(t, number);
		else if (kind == PROCFS_FILE && has_own_lock(t, number))
			drop_lock(t, number);
	}
	procfs_walk_end(&fds);
	return ret;
}

static int cut_off(pid_t pid, pid_t tid, struct mounts *mounts)
{
	struct leftover t = {.pid = pid, .mounts = mounts};
	char path[48];
	int ret;

	snprintf(path, sizeof(path), "/proc/%d/task/%d", (int)pid, (int)tid);
	t.pidfd = (int)syscall(SYS_pidfd_open, tid, PIDFD_THREAD);
	if (t.pidfd < 0)
		return -errno;
	t.dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ret = t.dir < 0 ? -errno : cut_off_thread(&t);
	if (t.dir >= 0)
		close(t.dir);
	close(t.pidfd);
	return ret;
}

static int cut_off_process(pid_t pid)
{
	struct mounts *mounts = mounts_new();
	struct procfs_walk tasks;
	char path[32];
	pid_t tid;
	int ret;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	ret = procfs_walk(&tasks, AT_FDCWD, path);
	if (ret == 0)
		while ((tid = procfs_next(&tasks)) >= 0) {
			int error = cut_off(pid, tid, mounts);

			/* One that has ended has no descriptors. */
			if (error < 0 && error != -ESRCH && error != -ENOENT && tid != pid)
				ret = error;
		}
	procfs_walk_end(&tasks);
	mounts_free(mounts);
	return ret;
}

void leftover_leave(pid_t pid)
{
	int ret = cut_off_process(pid), i = 0;

	log_event(LINE_KEEPER_LEFT_BEHIND,
		  "the keeper (pid %d) has ended, but a thread of it waits for a file system that does not answer: it "
		  "is not waited for",
		  (int)pid);
	if (ret < 0)
		log_event(LINE_KEEPER_LEFT_BEHIND,
			  "programs that wait for an answer of that keeper (pid %d) wait until it has ended: its "
			  "connections cannot be ended (%s)",
			  (int)pid, strerror(-ret));
	while (i < LEFT_MAX && left[i])
		i++;
	if (i < LEFT_MAX)
		left[i] = pid;
}

void leftover_reap(void)
{
	for (int i = 0; i < LEFT_MAX; i++)
		if (left[i] && waitpid(left[i], NULL, WNOHANG) != 0)
			left[i] = 0;
}
