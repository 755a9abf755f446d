/* See before_job.h. */
#include "keeper/kernel/before_job.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A "device" for workers_start(): no file system is asked, so what is bounded is the user. */
#define DEVICE_OF_USER(uid) (UINT64_C(1) << 63 | (uid))

struct before_job {
	struct work work; /* the first member */
	pid_t pid;
	struct stat st;
	before_cb *cb;
	void *arg;
	int ret;
	struct before before;
};

/* Before Linux 6.2 the size of /proc/PID/fd is 0. An entry takes at most 32 bytes here (numbers of 12 digits), so that few end
 * before the room does. */
static bool lists_few(const char *path)
{
	char entries[BEFORE_FEW * 32 + 1024];
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), count = 0;
	long bytes;

	if (fd < 0)
		return true;
	bytes = syscall(SYS_getdents64, fd, entries, sizeof(entries));
	close(fd);
	for (long at = 0; at < bytes; count++)
		at += *(const unsigned short *)(entries + at + 16); /* d_reclen */
	return count <= BEFORE_FEW;
}

bool before_are_few(pid_t pid)
{
	struct stat fds, tasks;
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	if (stat(path, &tasks) != 0)
		return true;
	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	if (stat(path, &fds) != 0)
		return true;
	return tasks.st_nlink <= BEFORE_FEW && (fds.st_size ? fds.st_size <= BEFORE_FEW : lists_few(path));
}

static void run(struct work *work)
{
	struct before_job *job = (struct before_job *)work;

	job->ret = before_read(&job->before, -1, job->pid, WIRE_OWNER_PROCESS, &job->st);
}

static void done(struct work *work)
{
	struct before_job *job = (struct before_job *)work;

	job->cb(job->arg, job->ret, &job->before);
	free(job);
}

int before_start(struct workers *workers, const struct ucred *peer, const struct stat *st, before_cb *cb, void *arg)
{
	struct before_job *job = calloc(1, sizeof(*job));

	if (!job)
		return -ENOMEM;
	*job = (struct before_job){
		.work = {.run = run, .done = done}, .pid = peer->pid, .st = *st, .cb = cb, .arg = arg};
	if (workers_start(workers, DEVICE_OF_USER(peer->uid), &job->work) == 0)
		return 0;
	free(job);
	return -ENOMEM;
}
