/*
 * See breaking_look.h.
 *
 * A user of a system keeper may end what is its own: every process that would be killed must be its own, so also those
 * that a holder started. A process that changes its user meanwhile (a setuid program) is one that this user started.
 * The owner of /proc/PID is the effective user, or root for a process that is not dumpable.
 */
#include "keeper/leases/breaking_look.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

#include "keeper/kernel/census.h"
#include "keeper/kernel/family.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"

struct breaking_job {
	uv_work_t work;
	struct keeper *keeper;
	uint64_t number;
	breaking_look_cb *cb;
	uid_t uid;
	bool any; /* whichever user's they are */
	pid_t self;
	struct claims claims;
	struct family family;
	struct breaking_found found;
};

static void breaking_judge_process(struct breaking_job *job, pid_t pid)
{
	char path[32];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	if (pid == job->self || stat(path, &st) != 0)
		return;
	if (kill(pid, 0) != 0 && errno == EPERM)
		job->found.unstoppable = true;
	else if (!job->any && st.st_uid != job->uid)
		job->found.not_yours = true;
	else
		return;
	job->found.pid = pid;
}

/* Only the locks in the lease's range count: the census shows all on the file. */
static int breaking_on_lock(void *arg, const struct holder *h)
{
	struct breaking_job *job = arg;
	size_t next = SIZE_MAX;

	if (h->how == HOLDER_MAPPER || !claims_next(&job->claims, h->file, h->space, h->from, h->to, &next))
		return 0;
	if (h->how != HOLDER_SHOWN && h->sight == SIGHT_BEYOND) {
		job->found.unstoppable = true;
		job->found.pid = h->pid;
		return 0;
	}
	return family_add(&job->family, h->pid);
}

static void breaking_look(uv_work_t *req)
{
	struct breaking_job *job = req->data;
	struct holders_search ask = {.ignore_pid = job->self, .cb = breaking_on_lock, .arg = job};
	int ret = claims_build(&job->claims);

	if (!ret)
		ret = census_take(&job->claims, &ask);
	if (!ret && !family_count(&job->family) && !job->any)
		job->found.not_yours = true;
	if (!ret)
		ret = family_add_descendants(&job->family, job->self);
	for (size_t i = 0; !ret && i < family_count(&job->family); i++)
		breaking_judge_process(job, family_at(&job->family, i));
	job->found.error = ret;
}

static void breaking_done(uv_work_t *req, int status)
{
	struct breaking_job *job = req->data;

	(void)status;
	job->cb(job->keeper, job->number, &job->found);
	claims_free(&job->claims);
	family_free(&job->family);
	free(job);
}

int breaking_look_start(struct lease *lease, uint64_t number, uid_t uid, breaking_look_cb *cb)
{
	const struct holders_file file = file_searched(lease->lock->file);
	struct breaking_job *job = calloc(1, sizeof(*job));
	int ret = -ENOMEM;

	if (!job)
		return ret;
	*job = (struct breaking_job){.keeper = lease_keeper(lease),
				     .number = number,
				     .cb = cb,
				     .uid = uid,
				     .any = uid == 0 || uid == geteuid(),
				     .self = getpid()};
	job->work.data = job;
	ret = claims_add(&job->claims, &file, lease->range.space, lease->range.from, lease->range.to, 0);
	if (!ret)
		ret = uv_queue_work(job->keeper->loop, &job->work, breaking_look, breaking_done);
	if (!ret)
		return 0;
	claims_free(&job->claims);
	free(job);
	return ret;
}
