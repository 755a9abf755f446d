/*
 * See door.h.
 *
 * Order: the front closes what a program passed before it answers the question, as the keeper does: the program's lock
 * lives on as long as a copy is open. It answers a malformed or refused question first: that caller need not wait for a
 * close.
 *
 * SIGALRM kills the front if it waits for something that a signal can end: a mount that hangs (killable), a socket that
 * lingers.
 */
#include "keeper/fronts/door.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uthash.h>
#include <uv.h>

#include "keeper/clock.h"
#include "keeper/fronts/frontmsg.h"
#include "keeper/fronts/question.h"
#include "keeper/kernel/ownlocks.h"
#include "keeper/kernel/getlk.h"
#include "keeper/kernel/mounts.h"
#include "keeper/kernel/onbehalf.h"
#include "wire/passing.h"

/* Waits until the keeper has read it; if the keeper has ended, so does the front. before: answer->before_count of them; fd: -1 for none. */
static void front_say(const struct front_answer *answer, const struct own_lock *before, int fd)
{
	struct iovec parts[] = {{.iov_base = (void *)answer, .iov_len = sizeof(*answer)},
				{.iov_base = (void *)before, .iov_len = answer->before_count * sizeof(*before)}};

	int ret;

	while ((ret = passing_send(FRONT_CONTROL, parts, answer->before_count ? 2 : 1, fd, 0)) == -EINTR)
		;
	if (ret < 0)
		_exit(0);
}

/* --- a front that keeps descriptions and asks the kernel about locks on them: away.h is the keeper's side of it --- */

struct kept_fd {
	uint64_t id;
	int fd;
	UT_hash_handle hh;
};

struct kept_probe {
	uint64_t id;
	struct kept_fd *kept;
	struct probe_want want;
	struct probe *probe;
	UT_hash_handle hh;
};

static struct kept_fd *keeping_fds;
static struct kept_probe *keeping_probes;
static struct probes *keeping_threads;

static void keeping_say_probed(uint64_t probe, enum probe_answer answer, int error)
{
	struct front_answer a = {.said = FRONT_PROBED, .probe = probe, .answer = answer, .error = error};

	front_say(&a, NULL, -1);
}

static void keeping_on_probe(void *arg, enum probe_answer answer, int error)
{
	struct kept_probe *p = arg;

	keeping_say_probed(p->id, answer, error);
	if (answer == PROBE_IN_USE && p->want.wait)
		return;
	HASH_DEL(keeping_probes, p);
	free(p);
}

static void keeping_start_probe(const struct front_ask *ask, struct kept_fd *kept)
{
	struct kept_probe *p = kept ? calloc(1, sizeof(*p)) : NULL;

	if (p) {
		*p = (struct kept_probe){.id = ask->probe, .kept = kept, .want = ask->want};
		p->probe = probe_start(keeping_threads, kept->fd, &p->want, keeping_on_probe, p);
	}
	if (p && p->probe) {
		HASH_ADD(hh, keeping_probes, id, sizeof(p->id), p);
		return;
	}
	free(p);
	keeping_say_probed(ask->probe, PROBE_STOPPED, kept ? EAGAIN : EBADF);
}

static void keeping_stop_probe(const struct front_ask *ask)
{
	struct kept_probe *p;

	HASH_FIND(hh, keeping_probes, &ask->probe, sizeof(ask->probe), p);
	if (p)
		probe_stop(p->probe);
}

static void keeping_test_shared(const struct front_ask *ask, const struct kept_fd *kept)
{
	struct front_answer a = {.said = FRONT_TESTED, .probe = ask->probe};
	struct inspect_request request = {.known = true,
					  .test_shared = true,
					  .space = ask->want.space,
					  .from = ask->want.from,
					  .to = ask->want.to};
	struct inspect_result result;

	request.fd = kept ? fcntl(kept->fd, F_DUPFD_CLOEXEC, FRONT_CONTROL) : -1;
	if (request.fd >= 0) {
		inspect_now(&request, &result);
		a.shared = result.shared_in_use;
	}
	front_say(&a, NULL, -1);
}

static void keeping_getlk(const struct front_ask *ask, const struct kept_fd *kept)
{
	struct front_answer a = {.said = FRONT_LOOKED, .probe = ask->probe, .found = -EBADF};

	if (kept)
		a.found = getlk_ask_again(kept->fd, &ask->wanted, &a.in_the_way);
	front_say(&a, NULL, -1);
}

static void keeping_keep(uint64_t id, int fd)
{
	struct kept_fd *kept = fd >= 0 ? calloc(1, sizeof(*kept)) : NULL;

	if (!kept) {
		if (fd >= 0)
			close(fd);
		return;
	}
	kept->id = id;
	kept->fd = fd;
	HASH_ADD(hh, keeping_fds, id, sizeof(kept->id), kept);
}

static void keeping_forget(struct kept_fd *kept)
{
	if (kept) {
		close(kept->fd);
		HASH_DEL(keeping_fds, kept);
		free(kept);
	}
	front_say(&(struct front_answer){.said = FRONT_FORGOT}, NULL, -1);
}

static void keeping_obey(const struct front_ask *ask, int fd)
{
	struct kept_fd *kept;

	HASH_FIND(hh, keeping_fds, &ask->id, sizeof(ask->id), kept);
	switch (ask->op) {
	case FRONT_KEEP:
		return keeping_keep(ask->id, fd);
	case FRONT_FORGET:
		return keeping_forget(kept);
	case FRONT_PROBE:
		return keeping_start_probe(ask, kept);
	case FRONT_STOP:
		return keeping_stop_probe(ask);
	case FRONT_SHARED:
		return keeping_test_shared(ask, kept);
	case FRONT_GETLK:
		return keeping_getlk(ask, kept);
	default:
		return;
	}
}

static void keeping_on_ask(uv_poll_t *poll, int status, int events)
{
	struct front_ask ask;
	int fd;
	ssize_t n = passing_receive_one(FRONT_CONTROL, &ask, sizeof(ask), &fd, MSG_DONTWAIT);

	(void)poll, (void)status, (void)events;
	if (n == -EAGAIN)
		return;
	if (n != sizeof(ask))
		_exit(0);
	keeping_obey(&ask, fd);
}

/* Until the keeper has ended, or does not need the front any more. */
__attribute__((noreturn)) static void front_keep(void)
{
	static uv_loop_t loop;
	static uv_poll_t poll;

	uv_loop_init(&loop);
	keeping_threads = probes_new(&loop);
	if (!keeping_threads || uv_poll_init(&loop, &poll, FRONT_CONTROL) != 0)
		_exit(1);
	fcntl(FRONT_CONTROL, F_SETFL, 0); /* libuv has made it non-blocking, but sends here must wait */
	uv_poll_start(&poll, UV_READABLE, keeping_on_ask);
	uv_run(&loop, UV_RUN_DEFAULT);
	_exit(0);
}

static void front_say_done(enum front_said said, int error)
{
	struct front_answer answer = {.said = said, .error = error};

	front_say(&answer, NULL, -1);
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
	snprintf(a->file.refused, sizeof(a->file.refused), "%s", why);
	front_say(a, NULL, -1);
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
	const struct holders_file file = inspect_file(result);
	int ret;

	alarm(0);
	if (!own_is_quick(pid, &file))
		front_say(&(struct front_answer){.said = FRONT_READING}, NULL, -1);
	ret = own_of_process(&result->before, pid, &file);
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
	a->file = result;
	a->file.before = (struct own_locks){0};
	if (result.fd < 0) { /* refused, or nameless */
		a->ready = true;
		return front_say(a, NULL, -1);
	}
	if (*result.refused) {
		front_say(a, NULL, -1);
		return front_close_and_say(&result.fd, 1);
	}
	a->before_count = (uint32_t)own_count(&result.before);
	a->ready = a->local;
	a->away = !a->local;
	alarm(0);
	front_say(a, own_locks_all(&result.before), a->local ? result.fd : -1);
	own_free(&result.before);
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
		front_say(&(struct front_answer){.said = FRONT_LOOKING, .dev = a->dev}, NULL, -1);
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
	_Static_assert(sizeof(a.file.path) >= sizeof(question.text), "a text has room where else a path is");
	memcpy(a.file.path, question.text, sizeof(question.text));
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
	front_say(&a, NULL, -1);
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
			front_keep();
		}
		alarm(0);
	}
}
