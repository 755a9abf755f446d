/* See launch.h. */
#include "net/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/abi.h"
#include "net/birth.h"
#include "net/chain.h"
#include "net/filter.h"
#include "net/ground.h"
#include "net/lockcall.h"
#include "shim/netted.h"
#include "shim/sys.h"

static int launch_refuse(const char *why, const char *detail)
{
	fprintf(stderr, "dflock: not started: %s%s%s\n", why, detail ? ": " : "", detail ? detail : "");
	return LAUNCH_FAILED;
}

/* The message of a job without descriptor 2 must not go into a file that is opened now. For the job, these descriptors
 * stay closed. */
static void launch_fill_stdio(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	while (fd >= 0 && fd <= 2);
	if (fd > 2)
		close(fd);
}

static int launch_refuse_filter(int err)
{
	switch (err) {
	case EINVAL:
		return launch_refuse("this kernel is too old for the net, which needs Linux 5.19", NULL);
	case EBUSY:
		return launch_refuse(
			"another program watches the system calls of this one (a seccomp listener), and the "
			"kernel allows one such program only",
			NULL);
	case ENOSYS:
	case EPERM:
	case EACCES:
		return launch_refuse("the net needs seccomp, which is forbidden here (by a container?)", strerror(err));
	default:
		return launch_refuse("the net cannot be set up", strerror(err));
	}
}

/* 0: the net can be. Else the exit status. */
static int launch_try(int socket)
{
	char line[BIRTH_LINE_BYTES];
	int err = chain_try(socket);

	if (err && err != CHAIN_FAILED)
		return launch_refuse_filter(err);
	if (!birth_hear(socket, line))
		return launch_refuse("the net's supervisor has ended", NULL);
	if (line[0])
		return launch_refuse(line, NULL);
	return err ? launch_refuse("a lock call under the net fails", NULL) : 0;
}

/* From here on, each lock call of this process is caught. */
static int launch_enter(int socket, uint64_t key)
{
	char line[BIRTH_LINE_BYTES];
	const int listener = filter_install(key);
	int ret;

	if (listener < 0)
		return launch_refuse_filter(-listener);
	ret = chain_send(socket, listener);
	close(listener);
	if (ret < 0 || !birth_hear(socket, line))
		return launch_refuse("the net's supervisor has ended", NULL);
	return line[0] ? launch_refuse(line, NULL) : 0;
}

/* Without randomness there is none, and the preload's calls are caught like others. */
static uint64_t launch_key(void)
{
	uint64_t key = 0;
	char text[17];

	if (getrandom(&key, sizeof(key), 0) != sizeof(key))
		key = 0;
	snprintf(text, sizeof(text), "%016" PRIx64, key);
	return key && setenv(NETTED_VARIABLE, text, 1) == 0 ? key : 0;
}

/* Is /proc that of this process's pid namespace? Of another one's, the supervisors would read other processes. */
static bool launch_sees_itself(void)
{
	char self[16], text[16];
	const ssize_t n = readlink("/proc/self", self, sizeof(self));

	return n == snprintf(text, sizeof(text), "%d", (int)getpid()) && memcmp(self, text, (size_t)n) == 0;
}

static int launch_net(char *program)
{
	int pair[2], reaper = 0, ret;

	/* Its orphans become its children: its wait() would meet them, and an outage would stop them with it. */
	if (getpid() == 1 || (prctl(PR_GET_CHILD_SUBREAPER, &reaper) == 0 && reaper))
		return launch_refuse(
			"the net cannot be that of the first process of a pid namespace, or of a child subreaper, "
			"whose children its supervisors would be: start the job as a child (dflock run --init)",
			NULL);
	if (!launch_sees_itself())
		return launch_refuse("/proc is not that of this pid namespace: mount it there (unshare --mount-proc)",
				     NULL);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return launch_refuse("no socket for the net", strerror(errno));
	ret = birth_give(program, pair[1]);
	close(pair[1]);
	if (ret < 0)
		ret = launch_refuse("no process for the net", strerror(-ret));
	else
		ret = launch_try(pair[0]);
	if (ret == 0)
		ret = launch_enter(pair[0], launch_key());
	close(pair[0]);
	return ret;
}

int launch(char *program, const char *preload, char *const job[])
{
	long hello;
	int ret = 0, err;

	launch_fill_stdio();
	hello = sys(fcntl, -1L, ABI_OFD_GETLK, LOCKCALL_HELLO_ADDRESS, ground_hash());
	if (hello == -EEXIST)
		return launch_refuse(
			"the net that this job is under goes by another configuration or runtime directory, and a process "
			"has one net only: start the job outside of that net, or with the same DFLOCK_CONFIG and "
			"DFLOCK_RUNTIME_DIR",
			NULL);
	if (hello != 0) /* else the net that is there will do */
		ret = launch_net(program);
	if (ret)
		return ret;
	if (*preload && setenv("LD_PRELOAD", preload, 1) < 0)
		return launch_refuse("cannot set LD_PRELOAD", strerror(errno));
	execvp(job[0], job);
	err = errno;
	fprintf(stderr, "dflock: cannot run %s: %s\n", job[0], strerror(err));
	return err == ENOENT ? LAUNCH_NOT_FOUND : LAUNCH_CANNOT_EXECUTE;
}
