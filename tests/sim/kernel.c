/*
 * keeper/kernel/probe.h without threads. The locks themselves are the kernel's own: every program and every keeper of the
 * simulation has descriptions of its own of real files. Only the wait for a lock belongs to the scheduler: a probe that
 * waits tries again when a lock was let go on that host.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

#include "keeper/kernel/command.h"
#include "tests/sim/sim.h"

struct probes {
	struct host *host;
};

struct probe {
	struct host *host;
	unsigned life;
	int fd;
	struct probe_want want;
	probe_cb *cb;
	void *arg;
	probe_fire_fn *fire;
	void *fire_arg;
	bool told, waits, over;
	struct probe *next;
};
static struct probe *waiting; /* all that were ever started; the ones that are over stay until the process ends */

struct posted {
	struct probe *probe;
	enum probe_answer answer;
	int error;
};

static void answer_item(void *arg, uint64_t number)
{
	struct posted p = *(struct posted *)arg;

	free(arg);
	p.probe->cb(p.probe->arg, p.answer, p.error);
}

static bool lives(const struct probe *probe) { return host_lives(probe->host, probe->life); }

static void post_item(void *arg, uint64_t number)
{
	struct posted *p = arg;

	if (lives(p->probe))
		host_post(p->probe->host, answer_item, p, 0);
	else
		free(p);
}

/* What was fired wakes nobody: the loop finds the answer when it wakes for another reason. */
static void post(struct probe *probe, enum probe_answer answer, int error, bool last)
{
	bool fired = answer == PROBE_FREE && probe->fire && probe->fire(probe->fire_arg);
	struct posted *p = sim_new(sizeof(*p));

	*p = (struct posted){.probe = probe, .answer = answer, .error = error};
	probe->over = last;
	probe->waits = false;
	if (fired)
		sim_after(rng_delay(&probe->host->rng, 300 * MS), post_item, p, 0);
	else
		post_item(p, 0);
}

static int try_flock(int fd, int op)
{
	if (flock(fd, op | LOCK_NB) == 0)
		return 1;
	return errno == EWOULDBLOCK ? 0 : -errno;
}

static bool is_free(const struct probe *probe, short type)
{
	struct flock lock = {.l_type = type,
			     .l_whence = SEEK_SET,
			     .l_start = probe->want.from,
			     .l_len = probe->want.to == WIRE_EOF ? 0 : probe->want.to - probe->want.from};

	return fcntl(probe->fd, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}

/* again: it waited, for no more than it needs. */
static int try(const struct probe *probe, bool again, enum probe_answer *answer)
{
	bool shared = probe->want.shared_will_do;
	int ret = 0;

	*answer = PROBE_FREE;
	if (probe->want.space == WIRE_RECORD) {
		if (is_free(probe, F_WRLCK))
			return 1;
		*answer = PROBE_SHARED;
		return shared && is_free(probe, F_RDLCK);
	}
	if (!again || !shared)
		ret = try_flock(probe->fd, LOCK_EX);
	if (ret == 0 && shared) {
		ret = try_flock(probe->fd, LOCK_SH);
		*answer = PROBE_SHARED;
	}
	if (ret == 1) {
		lives_probe(probe->host, probe->fd, *answer == PROBE_SHARED, 'F');
		flock(probe->fd, LOCK_UN);
	}
	return ret;
}

static void look(void *arg, uint64_t again)
{
	struct probe *probe = arg;
	enum probe_answer answer;
	int ret;

	if (probe->over || !lives(probe) || (again && !probe->waits))
		return;
	ret = try(probe, again, &answer);
	if (ret > 0) {
		post(probe, answer, 0, true);
	} else if (ret < 0) {
		post(probe, PROBE_STOPPED, -ret, true);
	} else if (!again) {
		post(probe, PROBE_IN_USE, 0, !probe->want.wait);
		probe->waits = probe->want.wait && !probe->told;
		if (probe->want.wait && probe->told)
			post(probe, PROBE_STOPPED, 0, true);
	}
}

static void stop(void *arg, uint64_t number)
{
	struct probe *probe = arg;

	if (!probe->over && probe->waits && lives(probe))
		post(probe, PROBE_STOPPED, 0, true);
}

struct probes *probes_new(uv_loop_t *loop)
{
	struct probes *probes = sim_new(sizeof(*probes));

	probes->host = loop->data;
	return probes;
}

void probes_free(struct probes *probes) { free(probes); }

struct probe *probe_start(struct probes *probes, int fd, const struct probe_want *want, probe_cb *cb, void *arg)
{
	struct probe *probe = sim_new(sizeof(*probe));

	*probe = (struct probe){.host = probes->host,
				.life = probes->host->life,
				.fd = fd,
				.want = *want,
				.cb = cb,
				.arg = arg,
				.next = waiting};
	waiting = probe;
	if (want->space == WIRE_FLOCK)
		lives_probe(probes->host, fd, want->shared_will_do, 'P');
	/* On a network file system even the first look takes its time. */
	sim_after(rng_chance(&probes->host->rng, 50) ? rng_between(&probes->host->rng, 0, 300 * MS)
						     : rng_delay(&probes->host->rng, 20 * MS),
		  look, probe, false);
	return probe;
}

void probe_stop(struct probe *probe)
{
	probe->told = true;
	sim_after(rng_delay(&probe->host->rng, 20 * MS), stop, probe, 0);
}

bool probe_arm(struct probe *probe, probe_fire_fn *fire, void *arg)
{
	if (probe->over || probe->want.space != WIRE_FLOCK)
		return false;
	probe->fire = fire;
	probe->fire_arg = arg;
	return true;
}

void probe_disarm(struct probe *probe) { probe->fire = NULL; }

void kernel_drop(struct host *host)
{
	for (struct probe *probe = waiting; probe; probe = probe->next)
		if (probe->host == host)
			probe->over = true;
}

/* --- waits in the kernel --- */

void kernel_changed(struct host *host)
{
	for (struct probe *probe = waiting; probe; probe = probe->next)
		if (probe->host == host && probe->waits)
			sim_after(rng_delay(&host->rng, 5 * MS), look, probe, true);
	programs_look_again(host);
}

/* --- keeper/kernel/command.h --- */

void __wrap_comm_read(pid_t pid, char out[COMM_BYTES]);

void __wrap_comm_read(pid_t pid, char out[COMM_BYTES])
{
	(void)pid; /* it is no process of this machine */
	strcpy(out, "sim");
}
