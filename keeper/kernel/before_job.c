/* See before_job.h. */
#include "keeper/kernel/before_job.h"

#include <errno.h>
#include <stdlib.h>

#include "procfs/procfs.h"

/* A "device" for workers_start(): no file system is asked, so the bound is per user. */
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

bool before_are_few(pid_t pid)
{
	return procfs_has_few(pid, BEFORE_FEW);
}

static void before_run(struct work *work)
{
	struct before_job *job = (struct before_job *)work;

	job->ret = before_read(&job->before, -1, job->pid, WIRE_OWNER_PROCESS, &job->st);
}

static void before_done(struct work *work)
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
		.work = {.run = before_run, .done = before_done}, .pid = peer->pid, .st = *st, .cb = cb, .arg = arg};
	if (workers_start(workers, DEVICE_OF_USER(peer->uid), &job->work) == 0)
		return 0;
	free(job);
	return -ENOMEM;
}
