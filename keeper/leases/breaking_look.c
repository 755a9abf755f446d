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

#include "keeper/kernel/family.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/survey.h"

struct breaking_job {
	struct survey survey; /* the first member */
	struct keeper *keeper;
	uint64_t number;
	breaking_look_cb *cb;
	uid_t uid;
	bool any; /* whichever user's they are */
	pid_t self;
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
static int breaking_on_lock(struct survey *survey, const struct holder *h)
{
	struct breaking_job *job = (struct breaking_job *)survey;
	size_t next = SIZE_MAX;

	if (h->how == HOLDER_MAPPER || !survey_claim(survey, h, &next))
		return 0;
	if (h->how != HOLDER_SHOWN && h->sight == SIGHT_BEYOND) {
		job->found.unstoppable = true;
		job->found.pid = h->pid;
		return 0;
	}
	return family_add(&job->family, h->pid);
}

/* In the worker, too. */
static int breaking_judge_all(struct survey *survey)
{
	struct breaking_job *job = (struct breaking_job *)survey;
	int ret;

	if (!family_count(&job->family) && !job->any)
		job->found.not_yours = true;
	ret = family_add_descendants(&job->family, job->self);
	for (size_t i = 0; !ret && i < family_count(&job->family); i++)
		breaking_judge_process(job, family_at(&job->family, i));
	return ret;
}

static void breaking_done(struct survey *survey)
{
	struct breaking_job *job = (struct breaking_job *)survey;

	job->found.error = survey->error;
	job->cb(job->keeper, job->number, &job->found);
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
	*job = (struct breaking_job){
		.survey = {.row = breaking_on_lock, .end = breaking_judge_all, .done = breaking_done},
		.keeper = lease_keeper(lease),
		.number = number,
		.cb = cb,
		.uid = uid,
		.any = uid == 0 || uid == geteuid(),
		.self = getpid()};
	ret = claims_add(&job->survey.claims, &file, lease->range.space, lease->range.from, lease->range.to, 0);
	if (!ret)
		ret = survey_ask(job->keeper, &job->survey);
	if (!ret)
		return 0;
	claims_free(&job->survey.claims);
	free(job);
	return ret;
}
