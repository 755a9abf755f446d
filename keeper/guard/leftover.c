/*
 * See leftover.h. The first thread has ended, so the process has no descriptors as far as /proc/PID/fd and a pidfd of the
 * process say. Those of the thread that hangs are reached through a pidfd of that thread.
 *
 * Which locks are the probes': the kernel notes who took a flock. A descriptor that a program passed has that program's pid
 * there, and must not be touched: it is the program's own description.
 */
#include "keeper/guard/leftover.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
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
#include "keeper/kernel/procfs.h"

#ifndef PIDFD_THREAD
#define PIDFD_THREAD O_EXCL
#endif
#define BACKLOG_MAX 65536
#define LEFT_MAX    64

/* Those that have not ended yet; beyond these they are not reaped before the parent ends. */
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
static bool is_own_lock(const struct leftover *t, const char *line)
{
	struct procfs_lock lock;

	return procfs_lock_line(line, &lock) && lock.space == WIRE_FLOCK && lock.locker == t->pid &&
	       mounts_local_device(t->mounts, lock.dev);
}

static bool has_own_lock(const struct leftover *t, const char *number)
{
	char name[32], line[256];
	bool found = false;
	FILE *info;
	int fd;

	snprintf(name, sizeof(name), "fdinfo/%.12s", number);
	fd = openat(t->dir, name, O_RDONLY | O_CLOEXEC);
	info = fd < 0 ? NULL : fdopen(fd, "r");
	if (!info) {
		if (fd >= 0)
			close(fd);
		return false;
	}
	while (!found && fgets(line, sizeof(line), info))
		found = is_own_lock(t, line);
	fclose(info);
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
	int fds = openat(t->dir, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = fds < 0 ? NULL : fdopendir(fds);
	struct dirent *d;

	if (!list) {
		int err = errno;

		if (fds >= 0)
			close(fds);
		return -err;
	}
	while ((d = readdir(list))) {
		char link[16] = "";
		ssize_t n = readlinkat(dirfd(list), d->d_name, link, sizeof(link) - 1);

		if (n > 0 && strncmp(link, "socket:", 7) == 0)
			end_socket(t, atoi(d->d_name));
		else if (n > 0 && link[0] == '/' && has_own_lock(t, d->d_name))
			drop_lock(t, atoi(d->d_name));
	}
	closedir(list);
	return 0;
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
	struct dirent *d;
	char path[32];
	int ret = 0;
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	tasks = opendir(path);
	if (!tasks)
		ret = -errno;
	while (tasks && (d = readdir(tasks))) {
		pid_t tid = (pid_t)atoi(d->d_name);
		int error = tid > 0 ? cut_off(pid, tid, mounts) : 0;

		/* One that has ended has no descriptors. */
		if (error < 0 && error != -ESRCH && error != -ENOENT && tid != pid)
			ret = error;
	}
	if (tasks)
		closedir(tasks);
	mounts_free(mounts);
	return ret;
}

void leftover_leave(pid_t pid)
{
	int ret = cut_off_process(pid), i = 0;

	log_error("the keeper (pid %d) was killed, but a thread of it waits for a file system that does not answer: it "
		  "is not waited for",
		  (int)pid);
	if (ret < 0)
		log_error("programs that wait for an answer of that keeper (pid %d) wait until it has ended: its "
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
