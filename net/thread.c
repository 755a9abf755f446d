/* See thread.h. */
#include "net/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "procfs/procfs.h"
#include "wire/sys.h"

#ifndef PIDFD_THREAD
#define PIDFD_THREAD O_EXCL /* Linux 6.9 */
#endif

#define NAME_BYTES 64

bool thread_is_in_call(const struct thread *t)
{
	int ret;

	do
		ret = ioctl(t->listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &t->id);
	while (ret < 0 && errno == EINTR);
	return ret == 0;
}

/* Before Linux 6.9 a pidfd is that of a process; thread_copy() says when it will do. -EIO: T's status cannot be read, perhaps for want of a
 * descriptor, or since T has ended: the caller finds that out. */
static long thread_open_process(struct thread *t)
{
	struct procfs_status status;

	t->process = procfs_status_read(t->tid, &status) ? status.process : -1;
	return t->process < 0 ? -EIO : sys_raw(SYS_pidfd_open, t->process, 0);
}

int thread_open(struct thread *t, int listener, const struct seccomp_notif *notif)
{
	long pidfd;

	*t = (struct thread){
		.listener = listener, .id = notif->id, .tid = (pid_t)notif->pid, .pidfd = -1, .memory = -1};
	pidfd = sys_raw(SYS_pidfd_open, t->tid, PIDFD_THREAD);
	if (pidfd == -EINVAL)
		pidfd = thread_open_process(t);
	if (pidfd >= 0)
		t->pidfd = (int)pidfd;
	if (!thread_is_in_call(t))
		return -ESRCH;
	return pidfd < 0 ? (int)pidfd : 0;
}

void thread_close(struct thread *t)
{
	if (t->pidfd >= 0)
		close(t->pidfd);
	if (t->memory >= 0)
		close(t->memory);
	t->pidfd = t->memory = -1;
}

/*
 * A pidfd of T's process leads to the descriptors of the first thread, and these are looked at after the copy was made: then this
 * thread may have left those that it had with T, by its end or unshare(), at any time before, and no thread can come back
 * to descriptors that it has left. Without the second look, EBADF of a first thread that has ended would read as T's own.
 */
int thread_copy(const struct thread *t, int fd)
{
	long ret;

	if (fd < 0)
		return -EBADF;
	ret = sys_raw(SYS_pidfd_getfd, t->pidfd, fd, 0);
	if (t->process && t->process != t->tid && sys_raw(SYS_kcmp, t->tid, t->process, KCMP_FILES, 0, 0) != 0) {
		if (ret >= 0)
			close((int)ret);
		return -EXDEV;
	}
	return (int)ret;
}

int thread_copy_for_messages(const struct thread *t)
{
	return (int)sys_raw(SYS_pidfd_getfd, t->pidfd, STDERR_FILENO, 0);
}

static int thread_open_memory(struct thread *t)
{
	char name[NAME_BYTES];
	int err;

	if (t->memory >= 0)
		return 0;
	snprintf(name, sizeof(name), "/proc/%d/mem", (int)t->tid);
	t->memory = open(name, O_RDWR | O_CLOEXEC);
	err = errno;
	if (!thread_is_in_call(t))
		return -ESRCH;
	return t->memory < 0 ? -err : 0;
}

/* The kernel reads and writes page by page, and ends at the first one that is not there, with EIO if that was the
 * first. 0 bytes: T's memory is gone. */
static int thread_moved(ssize_t n, size_t size)
{
	if (n == (ssize_t)size)
		return 0;
	return n < 0 && errno != EIO ? -errno : n == 0 ? -ESRCH : -EFAULT;
}

int thread_read(struct thread *t, uint64_t at, void *bytes, size_t size)
{
	int ret = thread_open_memory(t);

	if (ret < 0)
		return ret;
	return (off_t)at < 0 ? -EFAULT : thread_moved(pread(t->memory, bytes, size, (off_t)at), size);
}

int thread_write(struct thread *t, uint64_t at, const void *bytes, size_t size)
{
	int ret = thread_open_memory(t);

	if (ret < 0)
		return ret;
	return (off_t)at < 0 ? -EFAULT : thread_moved(pwrite(t->memory, bytes, size, (off_t)at), size);
}

/* How far T has this right, from the beginning on. */
struct thread_reach {
	uint64_t at, end;
	int place; /* of the right, as procfs shows them */
	char right;
};

#define THREAD_ENOUGH 1

static int thread_on_map(void *arg, const struct procfs_map *map)
{
	struct thread_reach *r = arg;

	if (map->to <= r->at)
		return 0;
	if (map->from > r->at || map->rights[r->place] != r->right) /* mutant: thread-may-write */
		return -EFAULT;
	r->at = map->to;
	return r->at >= r->end ? THREAD_ENOUGH : 0;
}

static int thread_may(const struct thread *t, struct thread_reach reach)
{
	const int ret = procfs_maps(t->tid, thread_on_map, &reach);

	if (!thread_is_in_call(t))
		return -ESRCH;
	return ret == THREAD_ENOUGH ? 0 : ret == 0 ? -EFAULT : ret;
}

int thread_may_read(const struct thread *t, uint64_t at, size_t size)
{
	return thread_may(t, (struct thread_reach){.at = at, .end = at + size, .place = 0, .right = 'r'});
}

int thread_may_write(const struct thread *t, uint64_t at, size_t size)
{
	return thread_may(t, (struct thread_reach){.at = at, .end = at + size, .place = 1, .right = 'w'});
}

const char *thread_command(struct thread *t)
{
	char name[NAME_BYTES], text[WIRE_COMMAND_BYTES + 1];

	memset(t->command, 0, sizeof(t->command));
	snprintf(name, sizeof(name), "/proc/%d/comm", (int)t->tid);
	if (procfs_head(AT_FDCWD, name, text, sizeof(text)) > 0) {
		text[strcspn(text, "\n")] = '\0';
		memcpy(t->command, text, strlen(text));
	}
	return t->command;
}

/* This process's own, which never change. */
static struct stat own_mounts, own_root;
static bool has_own;

static void thread_look_at_self(void)
{
	has_own = stat("/proc/self/ns/mnt", &own_mounts) == 0 && stat("/", &own_root) == 0;
}

static bool thread_has_another(const struct thread *t, const char *what, const struct stat *own)
{
	char name[NAME_BYTES];
	struct stat theirs;

	snprintf(name, sizeof(name), "/proc/%d/%s", (int)t->tid, what);
	return stat(name, &theirs) < 0 || theirs.st_dev != own->st_dev || theirs.st_ino != own->st_ino;
}

bool thread_is_elsewhere(const struct thread *t)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, thread_look_at_self);
	return !has_own || thread_has_another(t, "ns/mnt", &own_mounts) || thread_has_another(t, "root", &own_root);
}

int thread_is_signalled(const struct thread *t)
{
	char name[NAME_BYTES];
	struct procfs_stat stat;
	bool known;

	snprintf(name, sizeof(name), "/proc/%d/task/%d/stat", (int)t->tid, (int)t->tid);
	known = procfs_stat_read(AT_FDCWD, name, &stat);
	if (!thread_is_in_call(t))
		return -ESRCH;
	return known ? stat.state == 'D' : -EACCES;
}
