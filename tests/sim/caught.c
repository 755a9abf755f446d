/*
 * Programs under the net: a supervisor asks for them on behalf of the thread, and the kernel goes on with the call. Nothing looks
 * a second time. What is simulated: the supervisor that says "continue" as late as it likes, and dies between question and answer;
 * the window between that and the kernel lock; a thread that waits in the kernel and is called back; a stop, which a thread in the
 * window notices only when it has its lock. And keeper/kernel/seeout.h and onbehalf.h: the simulation knows which thread has left
 * its call.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

#include "keeper/kernel/family.h"
#include "keeper/kernel/onbehalf.h"
#include "keeper/kernel/seeout.h"
#include "shim/ask.h"
#include "wire/sys.h"
#include "tests/sim/sim.h"

#define SLOW  (900 * MS) /* longer than a pin */
#define STUCK (5 * SEC)  /* longer than a ttl */
#define AGAIN 1

/* --- the supervisor --- */

/* Before the call waits for another host, or fails because of one. */
static void caught_let_go(struct program *p, const struct intent *want)
{
	if (want->space != WIRE_FLOCK)
		return;
	flock(p->fd, LOCK_UN);
	kernel_changed(p->host);
}

static int caught_answer(struct program *p, const struct intent *want, const struct wire_reply *reply)
{
	switch (reply->verdict) {
	case WIRE_GRANTED:
		return sys_clock_ns(CLOCK_BOOTTIME) < reply->until_ns ? 0 : AGAIN;
	case WIRE_WOULD_BLOCK:
		caught_let_go(p, want);
		return -EWOULDBLOCK;
	case WIRE_REFUSED:
		return -ENOLCK;
	default:
		sim_fail("p%d got the verdict %u", p->id, reply->verdict);
	}
}

static int caught_converse(struct program *p, const struct intent *want, struct ask *ask)
{
	struct wire_reply reply;
	int ret;

	while ((ret = ask_receive(ask, &reply)) == 0 && reply.verdict == WIRE_WAITING)
		caught_let_go(p, want);
	return ret < 0 ? ret : caught_answer(p, want, &reply);
}

/* 0: the call may go on. A supervisor that dies is followed by one that asks about the same call. */
static int caught_ask(struct program *p, const struct intent *want, uint64_t number)
{
	const struct protect_by by = sim_by(p->host);
	int ret;

	do {
		struct wire_request request = ask_request(WIRE_LOCK, want, false);
		struct ask ask;

		request.thread = p->pid;
		request.call = number;
		ret = ask_open(&ask, &by, want, p->fd, 0);
		if (ret == 0)
			ret = ask_send(&ask, &by, request, p->fd);
		if (ret == 0 && rng_chance(&p->rng, 50))
			ret = AGAIN;
		else if (ret == 0)
			ret = caught_converse(p, want, &ask);
		ask_close(&ask);
		if (ret == 0 && rng_chance(&p->rng, 50))
			ret = AGAIN;
	} while (ret == AGAIN || ret == -ECONNRESET);
	return ret;
}

/* --- the call in the kernel --- */

static int caught_try(struct program *p, const struct intent *want)
{
	struct flock64 lock = intent_lock(intent_type(want), want->first, want->last);
	int ret;

	if (want->space == WIRE_FLOCK)
		ret = flock(p->fd, (want->mode == WIRE_SHARED ? LOCK_SH : LOCK_EX) | LOCK_NB);
	else
		ret = fcntl(p->fd, F_OFD_SETLK, &lock);
	ret = ret < 0 ? -errno : 0;
	kernel_changed(p->host); /* it may be less than before */
	return ret == -EAGAIN ? -EWOULDBLOCK : ret;
}

static int caught_in_kernel(struct program *p, const struct intent *want)
{
	int ret;

	p->in_window = true;
	program_sleep(p, rng_chance(&p->rng, 50) ? rng_between(&p->rng, 0, STUCK) : rng_delay(&p->rng, SLOW));
	ret = caught_try(p, want);
	p->in_window = false;
	while (ret == -EWOULDBLOCK && !want->nonblock) {
		if (p->called_back || p->frozen)
			return AGAIN;
		if (!program_wait_for_lock(p))
			return -EINTR;
		if (p->called_back)
			return AGAIN;
		ret = caught_try(p, want);
	}
	return ret;
}

int caught_call(struct program *p, const struct intent *want)
{
	int ret;

	do {
		p->number++;
		lives_call(p, 'c');
		p->called_back = p->left = false;
		p->in_call = true;
		ret = caught_ask(p, want, p->number);
		if (ret == -EINTR && p->called_back)
			ret = AGAIN;
		lives_call(p, ret == 0 ? 'g' : 'n');
		if (ret == 0) {
			ret = caught_in_kernel(p, want);
			if (ret == 0)
				lives_call(p, 'l');
			else if (!p->left)
				lives_call(p, 'o');
			/* A stop comes before the thread is back in the program. */
			while (p->frozen) {
				p->wakes = true;
				program_sleep(p, PROGRAM_FOREVER);
			}
			if (ret == 0)
				lives_call(p, 'r');
		}
		p->in_call = false;
	} while (ret == AGAIN);
	return ret;
}

/* --- keeper/kernel/seeout.h --- */

struct seeouts {
	struct host *host;
	unsigned life;
	seeout_cb *cb;
	void *arg;
};

struct seenout_one {
	struct seeouts *all;
	struct program *p;
	enum seeout_how how;
	size_t tag;
	uint64_t number; /* of the call that the program was in */
	bool calls_back;
	enum seeout_answer answer;
};

static bool lives(const struct seeouts *all) { return host_lives(all->host, all->life); }

static void answer_item(void *arg, uint64_t number)
{
	struct seenout_one one = *(struct seenout_one *)arg;

	free(arg);
	one.all->cb(one.all->arg, one.tag, one.answer);
}

static void wake_receiver(void *arg, uint64_t nap) { program_wake(arg, nap); }

/* What waits begins anew: in the kernel, or with the supervisor, which sees that the thread was woken. */
static void call_back(struct program *p)
{
	p->called_back = true;
	p->interrupted |= p->receives;
	if (p->waits_for_lock)
		programs_look_again(p->host);
	else if (p->receives)
		sim_after(0, wake_receiver, p, p->nap);
}

static void look(void *arg, uint64_t number)
{
	struct seenout_one *one = arg;
	struct program *p = one->p;

	if (!lives(one->all)) {
		free(one);
		return;
	}
	one->answer = SEEOUT_OUT;
	if (p && p->state != PROGRAM_ENDED && p->in_call && p->number == one->number &&
	    !(p->frozen && p->waits_for_lock)) {
		if (one->how == SEEOUT_GENTLY || (one->how == SEEOUT_PATIENTLY && p->waits_for_lock) ||
		    rng_chance(&p->host->rng, 100)) {
			one->answer = SEEOUT_REFUSED;
		} else {
			one->calls_back |= p->waits_for_lock || p->receives;
			call_back(p); /* it stops when it leaves the kernel */
			sim_after(rng_delay(&p->host->rng, 20 * MS), look, one, 0);
			return;
		}
	}
	if (one->answer == SEEOUT_OUT && one->calls_back)
		one->answer = SEEOUT_CALLED_BACK;
	host_post(one->all->host, answer_item, one, 0);
}

struct seeouts *seeouts_new(uv_loop_t *loop, seeout_cb *cb, void *arg)
{
	struct seeouts *all = sim_new(sizeof(*all));
	struct host *host = loop->data;

	*all = (struct seeouts){.host = host, .life = host->life, .cb = cb, .arg = arg};
	return all;
}

/* An answer may be under way: it stays. */
void seeouts_free(struct seeouts *all) { all->life = 0; }

int seeout_start(struct seeouts *all, pid_t tid, uint64_t started, enum seeout_how how, uid_t uid, size_t tag)
{
	struct seenout_one *one = sim_new(sizeof(*one));

	*one = (struct seenout_one){.all = all, .p = program_of_pid(tid), .how = how, .tag = tag};
	one->number = one->p ? one->p->number : 0;
	sim_after(rng_delay(&all->host->rng, 50 * MS), look, one, 0);
	return 0;
}

/* It may come too late at any time. */
void seeout_cancel(struct seeouts *all, size_t tag) {}

/* --- keeper/kernel/onbehalf.h, family.h --- */

int onbehalf_look(const struct ucred *peer, pid_t thread, struct onbehalf *out)
{
	*out = (struct onbehalf){.thread = thread, .pid = thread, .started = 1};
	return 0;
}

const char *onbehalf_why(int ret) { sim_fail("a question for a thread was not believed: %s", strerror(-ret)); }

uint64_t family_started(pid_t pid)
{
	const struct program *p = program_of_pid(pid);

	return p && p->state != PROGRAM_ENDED;
}

bool family_has_ended(pid_t tid, uint64_t started) { return family_started(tid) != started; }
bool family_process_has_ended(pid_t pid, uint64_t started) { return family_has_ended(pid, started); }

/* In the window a stop is pending, and no more. */
bool family_is_stopped(pid_t pid)
{
	const struct program *p = program_of_pid(pid);

	return !p || p->state == PROGRAM_ENDED || (p->frozen && !p->in_window);
}
