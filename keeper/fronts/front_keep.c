/* A front that keeps descriptions and asks the kernel about locks on them: see front.h, and away.c for the keeper's
 * side. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>
#include <uthash.h>
#include <uv.h>

#include "keeper/fronts/front.h"
#include "keeper/leases/inquiry.h"

struct front_fd {
	uint64_t id;
	int fd;
	UT_hash_handle hh;
};

struct front_probe {
	uint64_t id;
	struct front_fd *kept;
	struct probe_want want;
	struct probe *probe;
	UT_hash_handle hh;
};

static struct front_fd *front_fds;
static struct front_probe *front_probes;
static struct probes *probes;

static void say_probed(uint64_t probe, enum probe_answer answer, int error)
{
	struct front_answer a = {.said = FRONT_PROBED, .probe = probe, .answer = answer, .error = error};

	front_say(&a, NULL, -1);
}

/* Tested, not held (probe.h): a caller that takes the lock now has no pin, and asks before it relies on it. */
static void on_probe(void *arg, enum probe_answer answer, int error)
{
	struct front_probe *p = arg;

	if (p->want.space == WIRE_FLOCK && (answer == PROBE_FREE || answer == PROBE_SHARED))
		flock(p->kept->fd, LOCK_UN);
	say_probed(p->id, answer, error);
	if (answer == PROBE_IN_USE && p->want.wait)
		return;
	HASH_DEL(front_probes, p);
	free(p);
}

static void start_probe(const struct front_ask *ask, struct front_fd *kept)
{
	struct front_probe *p = kept ? calloc(1, sizeof(*p)) : NULL;

	if (p) {
		*p = (struct front_probe){.id = ask->probe, .kept = kept, .want = ask->want};
		p->probe = probe_start(probes, kept->fd, &p->want, on_probe, p);
	}
	if (p && p->probe) {
		HASH_ADD(hh, front_probes, id, sizeof(p->id), p);
		return;
	}
	free(p);
	say_probed(ask->probe, PROBE_STOPPED, kept ? EAGAIN : EBADF);
}

static void stop_probe(const struct front_ask *ask)
{
	struct front_probe *p;

	HASH_FIND(hh, front_probes, &ask->probe, sizeof(ask->probe), p);
	if (p)
		probe_stop(p->probe);
}

static void test_shared(const struct front_ask *ask, const struct front_fd *kept)
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

static void look_for_lock(const struct front_ask *ask, const struct front_fd *kept)
{
	struct front_answer a = {.said = FRONT_LOOKED, .probe = ask->probe, .found = -EBADF};

	if (kept)
		a.found = inquiry_look(kept->fd, &ask->range, &a.range);
	front_say(&a, NULL, -1);
}

static void keep(uint64_t id, int fd)
{
	struct front_fd *kept = fd >= 0 ? calloc(1, sizeof(*kept)) : NULL;

	if (!kept) {
		if (fd >= 0)
			close(fd);
		return;
	}
	kept->id = id;
	kept->fd = fd;
	HASH_ADD(hh, front_fds, id, sizeof(kept->id), kept);
}

static void forget(struct front_fd *kept)
{
	if (kept) {
		close(kept->fd);
		HASH_DEL(front_fds, kept);
		free(kept);
	}
	front_say(&(struct front_answer){.said = FRONT_FORGOT}, NULL, -1);
}

static void obey(const struct front_ask *ask, int fd)
{
	struct front_fd *kept;

	HASH_FIND(hh, front_fds, &ask->id, sizeof(ask->id), kept);
	switch (ask->op) {
	case FRONT_KEEP:
		return keep(ask->id, fd);
	case FRONT_FORGET:
		return forget(kept);
	case FRONT_PROBE:
		return start_probe(ask, kept);
	case FRONT_STOP:
		return stop_probe(ask);
	case FRONT_SHARED:
		return test_shared(ask, kept);
	case FRONT_WAY:
		return look_for_lock(ask, kept);
	default:
		return;
	}
}

static void on_ask(uv_poll_t *poll, int status, int events)
{
	struct front_ask ask;
	int fd;
	ssize_t n = front_recv(FRONT_CONTROL, &ask, sizeof(ask), &fd, MSG_DONTWAIT);

	(void)poll, (void)status, (void)events;
	if (n == -EAGAIN)
		return;
	if (n != sizeof(ask))
		_exit(0);
	obey(&ask, fd);
}

void front_settle(void)
{
	static uv_loop_t loop;
	static uv_poll_t poll;

	uv_loop_init(&loop);
	probes = probes_new(&loop);
	if (!probes || uv_poll_init(&loop, &poll, FRONT_CONTROL) != 0)
		_exit(1);
	fcntl(FRONT_CONTROL, F_SETFL, 0); /* libuv has made it non-blocking; what is said here waits */
	uv_poll_start(&poll, UV_READABLE, on_ask);
	uv_run(&loop, UV_RUN_DEFAULT);
	_exit(0);
}
