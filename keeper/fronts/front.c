/*
 * See front.h. The processes' side, and what both sides use.
 *
 * Order: what a program passed is closed before its question is answered, as in the keeper: as long as a copy is open
 * the program's lock lives on. What does not count (malformed, refused) is answered first: the caller need not wait for
 * a close.
 *
 * SIGALRM, which kills, ends whatever a signal can end: a mount that hangs (killable), a socket that lingers.
 */
#include "keeper/fronts/front.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "keeper/callers/before_job.h"
#include "keeper/clock.h"
#include "keeper/kernel/mounts.h"
#include "keeper/callers/question.h"

/* --- messages --- */

int front_send(int socket, const struct iovec *parts, size_t count, int fd, int flags)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {.room = {0}};
	struct msghdr msg = {.msg_iov = (struct iovec *)parts, .msg_iovlen = count};

	if (fd >= 0) {
		msg.msg_control = &control;
		msg.msg_controllen = sizeof(control);
		control.head = (struct cmsghdr){
			.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
		memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
	}
	while (sendmsg(socket, &msg, flags | MSG_NOSIGNAL) < 0)
		if (errno != EINTR)
			return -errno;
	return 0;
}

ssize_t front_recv(int socket, void *message, size_t size, int *fd, int flags)
{
	struct iovec iov = {.iov_base = message, .iov_len = size};
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	ssize_t n;

	*fd = -1;
	while ((n = recvmsg(socket, &msg, flags | MSG_CMSG_CLOEXEC)) < 0)
		if (errno != EINTR)
			return -errno;
	if (CMSG_FIRSTHDR(&msg) && CMSG_FIRSTHDR(&msg)->cmsg_type == SCM_RIGHTS)
		memcpy(fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(*fd));
	return n;
}

/* The keeper reads what it is sent; if it has ended, so does the front. */
void front_say(const struct front_answer *answer, const struct held *before, int fd)
{
	struct iovec parts[] = {{.iov_base = (void *)answer, .iov_len = sizeof(*answer)},
				{.iov_base = (void *)before, .iov_len = answer->before_count * sizeof(*before)}};

	if (front_send(FRONT_CONTROL, parts, answer->before_count ? 2 : 1, fd, 0) < 0)
		_exit(0);
}

static void say_done(enum front_said said, int error)
{
	struct front_answer answer = {.said = said, .error = error};

	front_say(&answer, NULL, -1);
}

static void listen_to_keeper(struct front_ask *ask, int *fd)
{
	if (front_recv(FRONT_CONTROL, ask, sizeof(*ask), fd, 0) != sizeof(*ask))
		_exit(0);
}

/* --- questions --- */

static void close_and_say(const int *fds, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		close(fds[i]);
	say_done(FRONT_READY, 0);
}

static void refuse(struct front_answer *a, const char *why, int fd)
{
	snprintf(a->refused, sizeof(a->refused), "%s", why);
	front_say(a, NULL, -1);
	close_and_say(&fd, 1);
}

static bool is_hung(const struct front_ask *ask, uint64_t dev)
{
	for (unsigned i = 0; i < ask->hung_count; i++)
		if (ask->hung[i] == dev)
			return true;
	return false;
}

/* A description of a file that is not local: to the front that keeps those of its device, or away with it. */
static void pass_on(int fd)
{
	struct front_ask ask, keep = {.op = FRONT_KEEP};
	struct iovec part = {.iov_base = &keep, .iov_len = sizeof(keep)};
	int to, ret;

	listen_to_keeper(&ask, &to);
	if (ask.op == FRONT_GIVE) {
		keep.id = ask.id;
		ret = to < 0 ? -EBADF : front_send(to, &part, 1, fd, MSG_DONTWAIT);
		if (to >= 0)
			close(to); /* of the keeper: not the last one */
		say_done(FRONT_GIVEN, -ret);
	}
	alarm(FRONT_LIMIT_S);
	close_and_say(&fd, 1);
}

/* POSIX locks belong to the process, which may have any number of descriptors: nothing of that waits for a file system.
 */
static void read_before(pid_t pid, struct inspect_result *result)
{
	int ret;

	alarm(0);
	if (!before_are_few(pid))
		front_say(&(struct front_answer){.said = FRONT_READING}, NULL, -1);
	ret = before_read(&result->before, -1, pid, WIRE_OWNER_PROCESS, &result->st);
	if (ret < 0)
		snprintf(result->refused, sizeof(result->refused),
			 "the keeper cannot see which locks the program has, so that it could undo: %s",
			 strerror(-ret));
	alarm(FRONT_LIMIT_S);
}

static void look_at(struct front_answer *a, struct inspect_request *request)
{
	struct inspect_result result;

	if (inspect_now(request, &result) == 0 && !result.nameless && a->request.space == WIRE_RECORD &&
	    a->request.owner == WIRE_OWNER_PROCESS)
		read_before(request->peer.pid, &result);
	a->st = result.st;
	a->id = result.id;
	a->nameless = result.nameless;
	a->named_late = result.named_late;
	a->holds = result.holds;
	memcpy(a->refused, result.refused, sizeof(a->refused));
	memcpy(a->path, result.path, sizeof(a->path));
	if (result.fd < 0) { /* refused, or nameless */
		a->ready = true;
		return front_say(a, NULL, -1);
	}
	if (*a->refused) {
		front_say(a, NULL, -1);
		return close_and_say(&result.fd, 1);
	}
	a->before_count = (uint32_t)before_count(&result.before);
	a->ready = a->local;
	a->away = !a->local;
	alarm(0);
	front_say(a, before_locks(&result.before), a->local ? result.fd : -1);
	before_free(&result.before);
	if (a->local)
		close(result.fd);
	else
		pass_on(result.fd);
}

static void about_lock(const struct front_ask *ask, struct front_answer *a, struct inspect_request *request)
{
	static struct mounts *mounts;
	enum inspect_ground ground;
	uint64_t ino;

	if (!mounts)
		mounts = mounts_new();
	ground = inspect_ground(mounts, request->fd, &a->dev, &ino);
	a->looked = true;
	a->local = ground == INSPECT_LOCAL;
	if (ground == INSPECT_AWAY && is_hung(ask, a->dev)) {
		free(request->groups);
		return refuse(a,
			      "its file system does not answer the keeper: is the server that it is mounted from away?",
			      request->fd);
	}
	if (ground == INSPECT_AWAY)
		front_say(&(struct front_answer){.said = FRONT_LOOKING, .dev = a->dev}, NULL, -1);
	if (ground == INSPECT_NO_FILE || (ground == INSPECT_AWAY && inspect_is_no_file(request->fd))) {
		free(request->groups);
		a->dev = 0; /* what it does not close is not the file system's doing */
		return refuse(a, "neither a regular file nor a directory", request->fd);
	}
	look_at(a, request);
}

static void receive(const struct front_ask *ask, int socket)
{
	struct front_answer a = {.said = FRONT_QUESTION};
	struct inspect_request request = {.foreign = true};
	struct question_fds came;
	socklen_t len = sizeof(request.peer);
	int ret;

	a.n = question_receive(socket, &a.request, &came);
	a.received_ns = clock_now_ns();
	a.has_fd = came.count > 0;
	ret = getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &request.peer, &len);
	if (ret == 0)
		ret = inspect_peer_groups(socket, &request);
	close(socket);
	if (ret == 0 && a.n > 0 && question_check(&a.request, a.n, a.has_fd) == QUESTION_LOCK) {
		request.fd = came.fds[0];
		request.space = a.request.space;
		request.owner = a.request.owner;
		about_lock(ask, &a, &request); /* takes over descriptor and groups */
		return;
	}
	free(request.groups);
	a.ready = !came.count;
	if (ret != 0)
		a.n = -EIO;
	front_say(&a, NULL, -1);
	if (came.count)
		close_and_say(came.fds, came.count);
}

/* --- processes --- */

/* Nothing of the keeper's stays open: a front may outlive it. Only `fd`, which becomes FRONT_CONTROL. */
static void leave_all(int fd, const char *name)
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

__attribute__((noreturn)) static void front_main(int fd)
{
	sigset_t only;

	leave_all(fd, "dflock-front");
	signal(SIGALRM, SIG_DFL);
	sigemptyset(&only);
	sigaddset(&only, SIGALRM);
	sigprocmask(SIG_UNBLOCK, &only, NULL);
	for (;;) {
		struct front_ask ask;
		int came;

		listen_to_keeper(&ask, &came);
		alarm(FRONT_LIMIT_S);
		if (ask.op == FRONT_RECEIVE && came >= 0) {
			receive(&ask, came);
		} else if (ask.op == FRONT_BURY) {
			close_and_say(&came, came >= 0);
		} else if (ask.op == FRONT_SETTLE) {
			alarm(0);
			front_settle();
		}
		alarm(0);
	}
}

/* 'F': a front with the socket that came along. 'K': keep it. */
__attribute__((noreturn)) static void door_main(int fd)
{
	char what;
	int came;

	leave_all(fd, "dflock-door");
	signal(SIGCHLD, SIG_IGN);
	while (front_recv(FRONT_CONTROL, &what, 1, &came, 0) > 0) {
		if (what != 'F' || came < 0)
			continue;
		if (fork() == 0) {
			signal(SIGCHLD, SIG_DFL);
			front_main(came);
		}
		close(came); /* a front's socket: nothing of a user's is in it */
	}
	_exit(0);
}

static int door_say(int door, char what, int fd)
{
	struct iovec part = {.iov_base = &what, .iov_len = 1};

	return front_send(door, &part, 1, fd, MSG_DONTWAIT);
}

static int make_pair(int ends[2])
{
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
		return -errno;
	fcntl(ends[0], F_SETFL, O_NONBLOCK);
	return 0;
}

int front_start_door(void)
{
	int ends[2], ret = make_pair(ends);
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

int front_start(int door)
{
	int ends[2], ret = make_pair(ends);

	if (ret < 0)
		return ret;
	ret = door_say(door, 'F', ends[1]);
	close(ends[1]);
	if (ret < 0)
		close(ends[0]);
	return ret < 0 ? ret : ends[0];
}

int front_leave_with_door(int door, int fd)
{
	return door_say(door, 'K', fd);
}
