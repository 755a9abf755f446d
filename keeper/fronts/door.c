/* See door.h. */
#include "keeper/fronts/door.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "keeper/fronts/frontmsg.h"
#include "wire/passing.h"

enum door_word {
	DOOR_FRONT = 'F', /* a front, with the socket that came along */
	DOOR_KEEP = 'K',  /* keep the descriptor that came along */
};

/* Closes all descriptors of the keeper's, since a front may outlive the keeper. `fd` alone stays, as FRONT_CONTROL. */
static void door_leave_all(int fd, const char *name)
{
	int null = open("/dev/null", O_RDWR);
	struct rlimit limit;

	for (int i = 0; i <= 2 && null >= 0; i++)
		dup2(null, i);
	if (fd != FRONT_CONTROL)
		dup2(fd, FRONT_CONTROL);
	close_range(FRONT_CONTROL + 1, ~0u, 0);
	fcntl(FRONT_CONTROL, F_SETFD, FD_CLOEXEC);
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
	prctl(PR_SET_NAME, name);
	if (chdir("/") != 0)
		_exit(1);
}

__attribute__((noreturn)) static void door_main(int fd)
{
	char what;
	int came;

	door_leave_all(fd, "dflock-door");
	signal(SIGCHLD, SIG_IGN);
	while (passing_receive_one(FRONT_CONTROL, &what, 1, &came, 0) > 0) {
		if (what != DOOR_FRONT || came < 0)
			continue;
		if (fork() == 0) {
			signal(SIGCHLD, SIG_DFL);
			door_leave_all(came, "dflock-front");
			front_main();
		}
		close(came); /* a front's socket, which holds no user's descriptor */
	}
	_exit(0);
}

static int door_say(int door, char what, int fd)
{
	struct iovec part = {.iov_base = &what, .iov_len = 1};

	return passing_send(door, &part, 1, fd, MSG_DONTWAIT);
}

static int door_make_pair(int ends[2])
{
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
		return -errno;
	fcntl(ends[0], F_SETFL, O_NONBLOCK);
	return 0;
}

int door_start(void)
{
	int ends[2], ret = door_make_pair(ends);
	pid_t pid;

	if (ret < 0)
		return ret;
	pid = fork();
	if (pid == 0)
		door_main(ends[1]);
	ret = pid < 0 ? -errno : ends[0];
	close(ends[1]);
	if (pid < 0)
		close(ends[0]);
	return ret;
}

int door_new_front(int door)
{
	int ends[2], ret = door_make_pair(ends);

	if (ret < 0)
		return ret;
	ret = door_say(door, DOOR_FRONT, ends[1]);
	close(ends[1]);
	if (ret < 0)
		close(ends[0]);
	return ret < 0 ? ret : ends[0];
}

int door_leave(int door, int fd)
{
	return door_say(door, DOOR_KEEP, fd);
}
