#include "shim/ask.h"

#include <string.h>
#include <sys/auxv.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/un.h>

#include "shim/real.h"
#include "shim/note.h"
#include "shim/settings.h"
#include "wire/sys.h"
#include "wire/passing.h"
#include "wire/rundir.h"
#include "wire/text.h"

/* Magic, version and size of a message of any version. */
#define HEAD_BYTES 8

bool ask_is_patient(const struct ask *ask)
{
	return !ask->nonblock && (ask->patient || protect_on_refused(ask->fd) == WIRE_ON_REFUSED_WAIT);
}

int ask_unserved(struct ask *ask, const char *what, bool absent)
{
	if (!ask_is_patient(ask)) {
		note_refused(ask->fd, "%s", what);
		return -ENOLCK;
	}
	if (!ask->told)
		note_waiting(ask->fd, what);
	ask->told = true;
	ask->absent = absent;
	return ASK_LATER;
}

/*
 * Sets the socket's time limit before a system call that may wait. A caller that waits must have no limit: with one,
 * the kernel gives EINTR also after handlers with SA_RESTART. A caller that does not wait must have one.
 */
static int ask_limit(const struct ask *ask, int option)
{
	struct timeval tv;
	int64_t left_ns;

	if (!ask->nonblock && !ask->over)
		return 0;
	left_ns = ask->nonblock ? ask->deadline_ns - sys_clock_ns(CLOCK_MONOTONIC) : ASK_LOOK_MS * INT64_C(1000000);
	/* A limit of 0 would mean no limit. */
	if (left_ns < 1000)
		return -EAGAIN;
	tv.tv_sec = left_ns / 1000000000;
	tv.tv_usec = left_ns % 1000000000 / 1000;
	return setsockopt(ask->sock, SOL_SOCKET, option, &tv, sizeof(tv)) < 0 ? -errno : 0;
}

/* Is a system call on the socket that failed with `ret` to be repeated? */
static bool ask_goes_on(const struct ask *ask, int64_t ret)
{
	if (ret != -EINTR && (ret != -EAGAIN || ask->nonblock))
		return false;
	return ask->nonblock || (ask->over && !ask->over(ask));
}

/* The result for the caller of a system call on the socket that failed with `ret`. Callers that do not wait have
 * repeated calls that gave EINTR. */
static int ask_failed(const struct ask *ask, const char *what, int ret)
{
	switch (ret) {
	case -EINTR:
	case -ECONNRESET:
		return ret;
	case -EPIPE:
		return -ECONNRESET;
	case -EAGAIN:
		if (!ask->nonblock && ask->over) /* its wait is over */
			return -EINTR;
		note_refused(ask->fd,
			     "the keeper does not answer; look at `dflock status`, or end it with `dflock stop`");
		return -ENOLCK;
	case -ETOOMANYREFS:
		note_refused(ask->fd, "too many descriptors of this user are under way in sockets; try again, or raise "
				      "the limit of open files (ulimit -n)");
		return -ENOLCK;
	default:
		errno = -ret;
		note_refused(ask->fd, "%s: %m", what);
		return -ENOLCK;
	}
}

/* DFLOCK_RUNTIME_DIR may be another user's directory, where anything may listen; a keeper of ours runs as root or as
 * us. Root without a number here: rundir_owner_counts(). */
static int ask_check_peer(const struct ask *ask, const char *dir, uid_t euid)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	if (getsockopt(ask->sock, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0) {
		note_refused(ask->fd, "the keeper's user cannot be found out: %m");
		return -ENOLCK;
	}
	if (rundir_owner_counts(dir, peer.uid, euid))
		return 0;
	note_refused(
		ask->fd,
		"the keeper of %s runs as uid %u, and this process as uid %u; leave DFLOCK_RUNTIME_DIR out, or set "
		"it to a directory of this user's",
		dir, peer.uid, rundir_uid(euid));
	return -ENOLCK;
}

static void ask_address(struct sockaddr_un *addr, const char *dir)
{
	*addr = (struct sockaddr_un){.sun_family = AF_UNIX};
	text_print(addr->sun_path, sizeof(addr->sun_path), "%s/" WIRE_SOCKET_NAME, dir);
}

bool ask_is_answered(const char *dir)
{
	long sock = sys(socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), ret;
	struct sockaddr_un addr;

	if (sock < 0)
		return false;
	ask_address(&addr, dir);
	ret = sys(connect, sock, &addr, (long)sizeof(addr));
	sys(close, sock);
	return ret == 0 || ret == -EAGAIN; /* EAGAIN: it listens, and has much to do */
}

/* Connects once. -ENOENT, -ECONNREFUSED: there is no keeper. */
static int ask_connect(struct ask *ask, const char *dir, uid_t euid)
{
	struct sockaddr_un addr;
	long ret;

	if (!dir[0])
		return -ENOENT;
	ask_address(&addr, dir);
	ask->sock = sys_above_stdio((int)sys(socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
	if (ask->sock < 0) {
		errno = -ask->sock;
		note_refused(ask->fd, "no connection to the keeper can be made: %m");
		return -ENOLCK;
	}
	abandoned_note(ask);
	do {
		ret = ask_limit(ask, SO_SNDTIMEO);
		if (ret == 0)
			ret = ask->connect ? ask->connect(ask, &addr)
					   : sys(connect, ask->sock, &addr, (long)sizeof(addr));
	} while (ask_goes_on(ask, ret));
	if (ret < 0 && ret != -ENOENT && ret != -ECONNREFUSED)
		ret = ask_failed(ask, "the keeper cannot be reached", (int)ret);
	if (ret == 0)
		ret = ask_check_peer(ask, dir, euid);
	if (ret < 0)
		ask_close(ask);
	return (int)ret;
}

/* 100, 200, 400, 800 ms, in which the keeper's parent, or a service manager, restarts it. 0 or -EINTR. */
static int ask_pause_before(struct ask *ask, int attempt)
{
	struct timespec left = {.tv_nsec = 100000000l << (attempt < 3 ? attempt : 3)};
	const int ret = ask->nonblock ? -EPERM : await_pause(ask, left.tv_nsec);

	/* Where there is no timer, signals do not shorten the pause: nanosleep() does not tell a handler with SA_RESTART from one without. */
	if (ret < 0 && ret != -EINTR)
		while (sys(nanosleep, &left, &left) == -EINTR)
			;
	return ret == -EINTR ? ret : 0;
}

static bool ask_is_absent(int ret)
{
	return ret == -ENOENT || ret == -ECONNREFUSED;
}

/* Starts a keeper and connects to it, or to one that another process started. `ret`: the error of the first
 * connection. */
static int ask_start_and_connect(struct ask *ask, const struct protect_by *by, int attempt, int ret)
{
	char why[WIRE_REASON_BYTES], unfound[WIRE_REASON_BYTES], dir[PLACE_DIR_BYTES];
	int started;

	if (ask->fd != NOTE_JOB && protect_kernel_refuses(ask->fd))
		return -EBADF;
	if (ask->fd != NOTE_JOB && start_is_restricted() && netted_is_caught())
		return ASK_NETTED;
	started = start_keeper(by, ask->nonblock, why, sizeof(why));
	/* A keeper ran here, and this process cannot start another one: the keeper's parent will. */
	if (started == -EPERM && ret != -ENOENT && attempt < ASK_ATTEMPTS - 1 && !ask->told)
		started = ask_pause_before(ask, attempt);
	if (started == -EINTR)
		return started;
	if (ask->fd == NOTE_JOB) /* a new keeper has as long as one that was there */
		ask->deadline_ns = sys_clock_ns(CLOCK_MONOTONIC) + ASK_JOB_PATIENCE_NS;
	/* The keeper may have made the directory. */
	ret = rundir_find(&settings_get()->place, by->euid, dir, unfound, sizeof(unfound));
	if (ret < 0 && ret != -ENOENT) {
		note_refused(ask->fd, "%s", unfound);
		return -ENOLCK;
	}
	ret = ask_connect(ask, dir, by->euid);
	if (ask_is_absent(ret) && started < 0)
		return ask_unserved(ask, why, true);
	return ask_is_absent(ret) ? -ECONNRESET : ret;
}

int ask_open(struct ask *ask, const struct protect_by *by, const struct intent *want, int fd, int attempt)
{
	const int64_t patience_ns = fd == NOTE_JOB ? ASK_JOB_PATIENCE_NS : ASK_PATIENCE_NS;
	int ret = -ECONNRESET;

	*ask = (struct ask){
		.sock = -1,
		.fd = fd,
		.nonblock = want->nonblock,
		.cancellable = want->space == WIRE_RECORD && !want->nonblock && !want->raw,
		.deadline_ns = want->nonblock ? sys_clock_ns(CLOCK_MONOTONIC) + patience_ns : 0,
		.patient = ask->patient,
		.told = ask->told,
		.thread = ask->thread,
		.call = ask->call,
		.command = ask->command,
		.connect = ask->connect,
		.over = ask->over,
		.as = ask->as,
	};
	if (attempt < ASK_DOUBTS)
		ret = ask_connect(ask, by->dir, by->euid);
	if (ask_is_absent(ret) || ret == -ECONNRESET)
		ret = ask_start_and_connect(ask, by, attempt, ret);
	return ret;
}

/* The kernel's name of the program, as it was when it was started: its file's, or its script's. The keeper would need three
 * system calls to read the present one. */
static void ask_name(char name[WIRE_COMMAND_BYTES])
{
	const char *path = (const char *)getauxval(AT_EXECFN), *slash = path ? strrchr(path, '/') : NULL;

	text_print(name, WIRE_COMMAND_BYTES, "%s", slash ? slash + 1 : path ? path : "");
}

int64_t ask_clock_ns(void)
{
	return sys_kernel_clock_ns(CLOCK_BOOTTIME);
}

int ask_send(struct ask *ask, const struct protect_by *by, struct wire_request request, int fd)
{
	const struct iovec iov = {.iov_base = &request, .iov_len = sizeof(request)};
	int ret;

	request.magic = WIRE_MAGIC;
	request.version = WIRE_VERSION;
	request.size = sizeof(request);
	request.config = by->mine.id;
	request.config_path = by->mine.path_hash;
	request.thread = ask->thread;
	request.call = ask->call;
	if (ask->thread)
		memcpy(request.command, ask->command, WIRE_COMMAND_BYTES);
	else
		ask_name(request.command);
	do {
		ret = ask_limit(ask, SO_SNDTIMEO);
		if (ret < 0)
			break;
		request.sent_ns = ask_clock_ns();
		ret = passing_send(ask->sock, &iov, 1, fd, 0);
	} while (ask_goes_on(ask, ret));
	/* The keeper has closed the connection. It may have sent an answer before that ("too many callers"): receive
	 * it. */
	if (ret == -EPIPE || ret == -ECONNRESET)
		return 0;
	if (ret == -EBADF && fd >= 0 && protect_kernel_refuses(fd)) /* another thread has closed it */
		return -EBADF;
	return ret < 0 ? ask_failed(ask, "the keeper cannot be asked", ret) : 0;
}

/* The keeper is trusted, but a keeper of another version, or a program that is no keeper, may listen there. */
static int ask_check_form(struct ask *ask, const struct wire_reply *reply, size_t size)
{
	if (size < HEAD_BYTES || reply->magic != WIRE_MAGIC)
		note_refused(ask->fd, "what listens on the keeper's socket is no keeper; end it");
	else if (reply->version != WIRE_VERSION)
		return ask_unserved(ask,
				    "the keeper is of another version than this library; end it with `dflock stop`, "
				    "the next lock starts the right one",
				    false);
	else if (size != sizeof(*reply) || reply->size != sizeof(*reply) ||
		 !memchr(reply->reason, '\0', sizeof(reply->reason)))
		note_refused(ask->fd, "the keeper's answer is malformed; end it with `dflock stop`");
	else
		return 0;
	return -ENOLCK;
}

static long ask_receive_raw(const struct ask *ask, struct wire_reply *reply)
{
	ssize_t n;

	if (!ask->cancellable)
		return sys(recvfrom, ask->sock, reply, (long)sizeof(*reply), MSG_TRUNC, NULL, NULL);
	/* libc's recv(), since deferred cancellation acts only in libc's own calls. */
	n = recv(ask->sock, reply, sizeof(*reply), MSG_TRUNC);
	return n < 0 ? -errno : n;
}

int ask_receive(struct ask *ask, struct wire_reply *reply)
{
	long ret;

	do {
		ret = ask_limit(ask, SO_RCVTIMEO);
		if (ret == 0)
			ret = ask_receive_raw(ask, reply);
	} while (ask_goes_on(ask, ret));
	/* The keeper closed the connection without having read the question: the kernel reports that first, and gives
	 * an answer that was sent before only to the next call. */
	if (ret == -ECONNRESET)
		ret = ask_receive_raw(ask, reply);
	if (ret < 0)
		return ask_failed(ask, "no answer from the keeper", (int)ret);
	if (ret == 0)
		return -ECONNRESET;
	return ask_check_form(ask, reply, (size_t)ret);
}

/*
 * All anonymous inodes (timerfd, eventfd, epoll) have one number, and inode numbers of sockets come again. A socket's cookie
 * does not; and the timers of await.c have an interval that no program sets, with a number in it. The two kinds differ in the
 * highest bit.
 */
uint64_t ask_identity(int fd, uint64_t unknown)
{
	struct itimerspec timer;
	uint64_t cookie;
	socklen_t size = sizeof(cookie);

	if (getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0)
		return cookie;
	if (errno != ENOTSOCK)
		return errno == EBADF ? 0 : unknown;
	if (sys(timerfd_gettime, fd, &timer) == 0 && timer.it_interval.tv_sec == ASK_TIMER_MARK_S)
		return UINT64_C(1) << 63 | (uint64_t)timer.it_interval.tv_nsec;
	return 0;
}

void ask_hang_up(int sock, uint64_t identity)
{
	if (identity && ask_identity(sock, identity) != identity)
		return;
	/* A child that another thread or a signal handler forked may have a copy of the socket; the keeper must see the end
	 * now. */
	sys(shutdown, sock, SHUT_RDWR);
	sys(close, sock);
}

void ask_close(struct ask *ask)
{
	if (ask->sock < 0)
		return;
	abandoned_forget(ask);
	/* Meanwhile another thread may have closed all descriptors of the program, and opened its own. */
	ask_hang_up(ask->sock, ask->identity);
	ask->sock = -1;
}
