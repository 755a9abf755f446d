/*
 * See front.h.
 *
 * Order: the front closes what a program passed before it answers the question, as the keeper does: the program's lock
 * lives on as long as a copy is open. It answers a malformed or refused question first: that caller need not wait for a
 * close.
 *
 * SIGALRM kills the front if it waits for something that a signal can end: a mount that hangs (killable), a socket that
 * lingers.
 */
#include "keeper/fronts/front.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "keeper/clock.h"
#include "keeper/fronts/frontmsg.h"
#include "keeper/fronts/keeping.h"
#include "keeper/fronts/question.h"
#include "keeper/kernel/before_job.h"
#include "keeper/kernel/mounts.h"
#include "keeper/kernel/onbehalf.h"
#include "wire/passing.h"

static void front_say_done(enum front_said said, int error)
{
	struct front_answer answer = {.said = said, .error = error};

	keeping_say(&answer, NULL, -1);
}

static void front_listen(struct front_ask *ask, int *fd)
{
	if (passing_receive_one(FRONT_CONTROL, ask, sizeof(*ask), fd, 0) != sizeof(*ask))
		_exit(0);
}

/* --- questions --- */

static void front_close_and_say(const int *fds, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		close(fds[i]);
	front_say_done(FRONT_READY, 0);
}

static void front_refuse(struct front_answer *a, const char *why, int fd)
{
	snprintf(a->refused, sizeof(a->refused), "%s", why);
	keeping_say(a, NULL, -1);
	front_close_and_say(&fd, 1);
}

static bool front_is_hung(const struct front_ask *ask, uint64_t dev)
{
	for (unsigned i = 0; i < ask->hung_count; i++)
		if (ask->hung[i] == dev)
			return true;
	return false;
}

/* Passes the description of a file that is not local to the front that keeps those of its device, or closes it. */
static void front_pass_on(int fd)
{
	struct front_ask ask, keep = {.op = FRONT_KEEP};
	struct iovec part = {.iov_base = &keep, .iov_len = sizeof(keep)};
	int to, ret;

	front_listen(&ask, &to);
	if (ask.op == FRONT_GIVE) {
		keep.id = ask.id;
		ret = to < 0 ? -EBADF : passing_send(to, &part, 1, fd, MSG_DONTWAIT);
		if (to >= 0)
			close(to); /* the keeper's copy, not the last one */
		front_say_done(FRONT_GIVEN, -ret);
	}
	alarm(FRONT_LIMIT_S);
	front_close_and_say(&fd, 1);
}

/* POSIX locks belong to the process, which may have any number of descriptors. Reading them asks no file system. */
static void front_read_before(pid_t pid, struct inspect_result *result)
{
	int ret;

	alarm(0);
	if (!before_are_few(pid))
		keeping_say(&(struct front_answer){.said = FRONT_READING}, NULL, -1);
	ret = before_read(&result->before, -1, pid, WIRE_OWNER_PROCESS, &result->st);
	if (ret < 0)
		snprintf(result->refused, sizeof(result->refused),
			 "the keeper cannot see which locks the program has, which it needs to undo a failed call: %s",
			 strerror(-ret));
	alarm(FRONT_LIMIT_S);
}

static void front_look_at(struct front_answer *a, struct inspect_request *request)
{
	struct inspect_result result;

	if (inspect_now(request, &result) == 0 && !result.nameless && a->request.space == WIRE_RECORD &&
	    a->request.owner == WIRE_OWNER_PROCESS)
		front_read_before(request->peer.pid, &result);
	a->st = result.st;
	a->id = result.id;
	a->nameless = result.nameless;
	a->named_late = result.named_late;
	a->gone_type = result.gone_type;
	a->holds = result.holds;
	memcpy(a->refused, result.refused, sizeof(a->refused));
	memcpy(a->path, result.path, sizeof(a->path));
	if (result.fd < 0) { /* refused, or nameless */
		a->ready = true;
		return keeping_say(a, NULL, -1);
	}
	if (*a->refused) {
		keeping_say(a, NULL, -1);
		return front_close_and_say(&result.fd, 1);
	}
	a->before_count = (uint32_t)before_count(&result.before);
	a->ready = a->local;
	a->away = !a->local;
	alarm(0);
	keeping_say(a, before_locks(&result.before), a->local ? result.fd : -1);
	before_free(&result.before);
	if (a->local)
		close(result.fd);
	else
		front_pass_on(result.fd);
}

static void front_about_lock(const struct front_ask *ask, struct front_answer *a, struct inspect_request *request)
{
	static struct mounts *mounts;
	enum inspect_ground ground;
	struct inspect_seen seen;

	if (!mounts)
		mounts = mounts_new();
	ground = inspect_ground(mounts, request->fd, &a->dev, &seen);
	a->looked = true;
	a->local = ground == INSPECT_LOCAL;
	if (ground == INSPECT_AWAY && front_is_hung(ask, a->dev)) {
		free(request->groups);
		return front_refuse(
			a, "its file system does not answer the keeper: is the server that it is mounted from away?",
			request->fd);
	}
	if (ground == INSPECT_AWAY)
		keeping_say(&(struct front_answer){.said = FRONT_LOOKING, .dev = a->dev}, NULL, -1);
	if (ground == INSPECT_NO_FILE || (ground == INSPECT_AWAY && inspect_is_no_file(request->fd))) {
		free(request->groups);
		a->dev = 0; /* a close that hangs is not the file system's doing */
		return front_refuse(a, "neither a regular file nor a directory", request->fd);
	}
	front_look_at(a, request);
}

static void front_receive(const struct front_ask *ask, int socket)
{
	struct front_answer a = {.said = FRONT_QUESTION};
	struct inspect_request request = {.foreign = true};
	struct question question = {.text = ""};
	struct passing came;
	struct onbehalf who;
	socklen_t len = sizeof(request.peer);
	int ret;

	a.n = question_receive(socket, &question, &came);
	a.request = question.request;
	_Static_assert(sizeof(a.path) >= sizeof(question.text), "a text has room where else a path is");
	memcpy(a.path, question.text, sizeof(question.text));
	a.received_ns = clock_now_ns();
	a.has_fd = came.count > 0;
	ret = getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &request.peer, &len);
	if (ret == 0)
		ret = inspect_peer_groups(socket, &request);
	close(socket);
	if (ret == 0 && a.n > 0 && question_check(&a.request, a.n, a.has_fd) == QUESTION_LOCK) {
		request.fd = came.fds[0];
		/* The keeper looks, too, and refuses who may not ask for the thread. */
		if (a.request.thread && onbehalf_look(&request.peer, a.request.thread, &who) == 0)
			request.peer.pid = who.pid;
		request.takes = a.request.op == WIRE_LOCK;
		request.space = a.request.space;
		request.mode = a.request.mode;
		request.owner = a.request.owner;
		front_about_lock(ask, &a, &request); /* takes over descriptor and groups */
		return;
	}
	free(request.groups);
	a.ready = !came.count;
	if (ret != 0)
		a.n = -EIO;
	keeping_say(&a, NULL, -1);
	if (came.count)
		front_close_and_say(came.fds, came.count);
}

void front_main(void)
{
	sigset_t only;

	signal(SIGALRM, SIG_DFL);
	sigemptyset(&only);
	sigaddset(&only, SIGALRM);
	sigprocmask(SIG_UNBLOCK, &only, NULL);
	for (;;) {
		struct front_ask ask;
		int came;

		front_listen(&ask, &came);
		alarm(FRONT_LIMIT_S);
		if (ask.op == FRONT_RECEIVE && came >= 0) {
			front_receive(&ask, came);
		} else if (ask.op == FRONT_BURY) {
			front_close_and_say(&came, came >= 0);
		} else if (ask.op == FRONT_SETTLE) {
			alarm(0);
			keeping_main();
		}
		alarm(0);
	}
}
