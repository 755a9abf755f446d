/* See onbehalf.h. */
#include "keeper/kernel/onbehalf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "keeper/kernel/family.h"
#include "procfs/procfs.h"

#define STATUS_BYTES 4096

/* The number after a line feed and `name`; NULL: there is no such line. */
static const char *onbehalf_line(const char *status, const char *name)
{
	const char *at = strstr(status, name);

	return at ? at + strlen(name) : NULL;
}

/* The command comes in the first line, with its line feeds escaped, so that no other line can be made up. */
static bool onbehalf_status(pid_t thread, pid_t *pid, uid_t uids[4])
{
	char path[40], status[STATUS_BYTES];
	const char *tgid, *uid;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)thread);
	if (procfs_head(AT_FDCWD, path, status, sizeof(status)) <= 0)
		return false;
	tgid = onbehalf_line(status, "\nTgid:");
	uid = onbehalf_line(status, "\nUid:");
	return tgid && uid && sscanf(tgid, "%d", pid) == 1 &&
	       sscanf(uid, "%u %u %u %u", &uids[0], &uids[1], &uids[2], &uids[3]) == 4;
}

/* The status says a process's number in each pid namespace from ours down to its own, and may be read of any process. What cannot be
 * told is not taken for ours: the entry would be of another thread, and nothing would keep the lease for the one that was meant. */
static bool onbehalf_has_other_numbers(pid_t pid)
{
	char path[40], status[STATUS_BYTES];
	const char *numbers;
	int ours, others;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	if (procfs_head(AT_FDCWD, path, status, sizeof(status)) <= 0)
		return true;
	numbers = onbehalf_line(status, "\nNSpid:");
	if (!numbers) /* a kernel without pid namespaces */
		return false;
	return sscanf(numbers, "%d%*[ \t]%d", &ours, &others) != 1;
}

int onbehalf_look(const struct ucred *peer, pid_t thread, struct onbehalf *out)
{
	uid_t uids[4];

	*out = (struct onbehalf){.thread = thread};
	if (onbehalf_has_other_numbers(peer->pid)) /* mutant: onbehalf-numbers */
		return -EXDEV;
	out->started = family_started(thread);
	if (!out->started || !onbehalf_status(thread, &out->pid, uids))
		return -ESRCH;
	out->uid = uids[0]; /* mutant: onbehalf-owner */
	for (int i = 0; i < 4; i++)
		if (peer->uid != 0 && uids[i] != peer->uid) /* mutant: onbehalf-user */
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
	case -EXDEV:
		return "the net and the keeper are in different pid namespaces: run `dflock run --net` where the keeper runs";
	default:
		return "the keeper cannot see the program for which it was asked";
	}
}
