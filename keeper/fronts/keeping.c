/* See keeping.h. */
#include "keeper/fronts/keeping.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#include <uthash.h>
#include <uv.h>

#include "keeper/fronts/frontmsg.h"
#include "keeper/kernel/getlk.h"
#include "wire/passing.h"

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

void keeping_say(const struct front_answer *answer, const struct held *before, int fd)
{
	struct iovec parts[] = {{.iov_base = (void *)answer, .iov_len = sizeof(*answer)},
				{.iov_base = (void *)before, .iov_len = answer->before_count * sizeof(*before)}};

	int ret;

	while ((ret = passing_send(FRONT_CONTROL, parts, answer->before_count ? 2 : 1, fd, 0)) == -EINTR)
		;
	if (ret < 0)
		_exit(0);
}

static void keeping_say_probed(uint64_t probe, enum probe_answer answer, int error)
{
	struct front_answer a = {.said = FRONT_PROBED, .probe = probe, .answer = answer, .error = error};

	keeping_say(&a, NULL, -1);
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
	keeping_say(&a, NULL, -1);
}

static void keeping_getlk(const struct front_ask *ask, const struct kept_fd *kept)
{
	struct front_answer a = {.said = FRONT_LOOKED, .probe = ask->probe, .found = -EBADF};

	if (kept)
		a.found = getlk_ask_again(kept->fd, &ask->wanted, &a.in_the_way);
	keeping_say(&a, NULL, -1);
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
	keeping_say(&(struct front_answer){.said = FRONT_FORGOT}, NULL, -1);
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

void keeping_main(void)
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
