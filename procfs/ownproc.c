/* See ownproc.h. */
#include "procfs/ownproc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "procfs/procfs.h"
#include "wire/sys.h"
#include "wire/text.h"

#define LEFT_PRELOAD "DFLOCK_LEFT_PRELOAD" /* from the first program to the one without a preload */

static int ownproc_say(char *why, size_t size, int ret, const char *line)
{
	struct text text;

	text_init(&text, why, size);
	text_add(&text, line);
	return ret;
}

/*
 * Compares /proc/self with our pid. Since the two could be equal by chance, also looks at NSpid, which lists the
 * numbers of this process in each namespace from that of /proc inwards: in the right /proc there is only one. (A kernel
 * without pid namespaces has no such line.)
 */
static int ownproc_is_ours(const char *self)
{
	char status[4096], number[16];
	const char *at, *end;

	snprintf(number, sizeof(number), "%d", (int)getpid());
	if (strcmp(self, number) != 0)
		return 0;
	if (procfs_head(AT_FDCWD, "/proc/self/status", status, sizeof(status)) <= 0)
		return 0;
	at = strstr(status, "\nNSpid:\t");
	if (!at)
		return 1;
	at += strlen("\nNSpid:\t");
	end = at + strcspn(at, "\n");
	return (size_t)(end - at) == strlen(number) && strncmp(at, number, strlen(number)) == 0;
}

int ownproc_check(char *why, size_t why_size)
{
	char self[32], some[64];
	ssize_t n = readlink("/proc/self", self, sizeof(self) - 1);

	if (n < 0)
		return ownproc_say(
			why, why_size, -ENOENT,
			"/proc does not show this process, and a keeper finds there who holds a lock: mount one "
			"(mount -t proc proc /proc), or start dflockd where there is one");
	self[n] = '\0';
	if (!ownproc_is_ours(self))
		return ownproc_say(
			why, why_size, -EXDEV,
			"/proc is that of another pid namespace, and a keeper would stop the wrong processes by "
			"its numbers: give this namespace a /proc of its own (unshare --mount-proc), or start "
			"dflockd outside");
	n = procfs_head(AT_FDCWD, "/proc/locks", some, sizeof(some));
	if (n < 0)
		return ownproc_say(
			why, why_size, (int)n,
			"/proc/locks cannot be read, and a keeper finds there the locks that no descriptor shows: "
			"mount /proc without subset=pid");
	return 0;
}

void ownproc_be_oneself(char **argv, bool for_children)
{
	const char *left = secure_getenv(LEFT_PRELOAD), *preload = getenv("LD_PRELOAD");

	if (left) {
		prctl(PR_SET_NAME, program_invocation_short_name); /* else "exe" */
		if (for_children)
			setenv("LD_PRELOAD", left, 1);
		unsetenv(LEFT_PRELOAD);
	}
	if (geteuid() == sys_geteuid())
		return;
	if (!left && preload && setenv(LEFT_PRELOAD, preload, 1) == 0 && unsetenv("LD_PRELOAD") == 0)
		execv("/proc/self/exe", argv);
	fprintf(stderr,
		"%s: a library tells this process that its user is %u, and it is %u (fakeroot?): start it without that library\n",
		program_invocation_short_name, (unsigned)geteuid(), (unsigned)sys_geteuid());
	exit(EXIT_FAILURE);
}
