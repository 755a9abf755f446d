/* See onbehalf.h. */
#include "keeper/kernel/onbehalf.h"

#include <errno.h>

#include "keeper/kernel/family.h"
#include "procfs/procfs.h"

int onbehalf_look(const struct ucred *peer, pid_t thread, struct onbehalf *out)
{
	struct procfs_status status;

	*out = (struct onbehalf){.thread = thread};
	errno = 0;
	/* The peer's own pid namespace must be ours. What cannot be told is not taken for ours: the entry would be of another thread, and
	 * nothing would keep the lease for the one that was meant. */
	if (!procfs_status_read(peer->pid, &status) || status.numbers > 1) /* mutant: onbehalf-numbers */
		return errno == EMFILE ? -EMFILE : -EXDEV;
	out->started = family_started(thread);
	if (!out->started || !procfs_status_read(thread, &status))
		return -ESRCH;
	out->pid = status.process;
	out->uid = status.uids[0]; /* mutant: onbehalf-owner */
	for (int i = 0; i < 4; i++)
		if (peer->uid != 0 && status.uids[i] != peer->uid) /* mutant: onbehalf-user */
			return -EPERM;
	return 0;
}

const char *onbehalf_why(int ret)
{
	switch (ret) {
	case -ESRCH:
		return "the thread for which it was asked has ended";
	case -EPERM:
		return "the net of one user cannot ask for another user's process: run the job under root's net";
	case -EMFILE:
		return "the keeper has no descriptor left: raise its RLIMIT_NOFILE";
	case -EXDEV:
		return "the net and the keeper are in different pid namespaces: run `dflock run --net` where the keeper runs";
	default:
		return "the keeper cannot see the program for which it was asked";
	}
}
