/*
 * See deeds.h.
 *
 * Which processes. The lock line says them: the file, the space, and the process that took the lock. All that they have started
 * ends with them: a job whose flock(1) has ended must not work on beside the next one.
 *
 * Held too long. Why no process is ended that holds a lock briefly, however often. The keeper has judged that the last pin of
 * process P for this file and space ended kill_after_ms ago or earlier (ages.h), and gives an order: GIVEN, with a number.
 * Before it tells a caller of another grant that would count for P, it withdraws the order (ages_note()). The parent
 *   1. copies the order, finds the holders and tells them,
 *   2. looks once more: a process has a lock on this file, in this space, that P took,
 *   3. makes the order's word ASKED, if that still has the same number and says GIVEN, in one step,
 *   4. sends SIGTERM.
 * If 3 succeeds, the keeper has given P no pin from its judgement until 3. So the lock of 2 is older than kill_after_ms, by
 * ages.h. It may end between 2 and 4, some microseconds: then it was held too long, too. If the keeper withdraws the order
 * first, 3 fails and nothing is sent, whatever 2 has seen; if 3 comes first, P has not yet been told of its next grant. An order
 * of a keeper that died is good until the next one serves, since no caller is granted in between; that one takes all back
 * first (toolong_start()).
 */

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "keeper/clock.h"
#include "keeper/guard/deeds.h"
#include "keeper/guard/farewell.h"
#include "keeper/guard/lastwords.h"
#include "keeper/guard/manager.h"
#include "keeper/guard/slots.h"
#include "keeper/kernel/holders.h"
#include "keeper/log.h"

#define ORDER_GONE_NS (5000 * NS_PER_MS) /* from SIGKILL until it is said that a process cannot be ended */
#define ORDER_TICK_NS (1000 * NS_PER_MS) /* more does not count between two looks: the machine slept */
#define ORDER_TARGETS 1024

struct order_target {
	pid_t pid;
	uint64_t started;
};

struct order_look {
	const struct orders *all;
	const struct order *order;
	struct family *family;
};

static int order_on_holder(void *arg, const struct holder *h)
{
	const struct order_look *look = arg;

	if (h->space != look->order->space || (h->locker > 0 ? h->locker : 0) != look->order->locker || h->pid <= 1)
		return 0;
	return family_add(look->family, h->pid) < 0 ? -ENOMEM : HOLDERS_LATER;
}

/* A search that takes long must not delay a freeze: what was found so far counts. */
static int order_on_turn(void *arg)
{
	const struct order_look *look = arg;

	manager_tick();
	return clock_now_ns() >= look->all->freeze_at_ns ? -ECANCELED : 0;
}

/* Adds the processes that have the lock of the order. Are there any? */
static bool order_find(const struct orders *all, const struct order *o, struct family *family)
{
	struct order_look look = {.all = all, .order = o, .family = family};

	holders_search(&(struct holders_search){.files = &o->file,
						.count = 1,
						.ignore_pid = all->keeper,
						.how = HOLDERS_AT_ONCE,
						.cb = order_on_holder,
						.turn = order_on_turn,
						.arg = &look});
	return family_count(family) > 0;
}

/* The members from `first` on. */
static void order_add_targets(struct order_work *l, const struct family *family, size_t first)
{
	for (size_t i = first; i < family_count(family) && i < ORDER_TARGETS; i++) {
		const struct order_target target = {.pid = family_at(family, i),
						    .started = family_started(family_at(family, i))};

		if (target.started)
			(void)!array_push(&l->targets, &target, sizeof(target)); /* without memory: the next order */
	}
}

static void order_speak(struct table *table, const struct order_work *l)
{
	struct lastword words[LASTWORDS_MAX];
	size_t count = 0;

	for (; count < utarray_len(&l->targets) && count < LASTWORDS_MAX; count++) {
		const struct order_target *target = array_at(&l->targets, count);

		words[count] = (struct lastword){.pid = target->pid, .line = l->order.line};
	}
	lastwords(words, count, farewell_ms(table), true);
}

/* 0; -ESRCH: it is gone; -EPERM: it is another user's than the process that took the lock. */
static int order_signal(const struct order_work *l, const struct order_target *target, int number)
{
	int fd = (int)syscall(SYS_pidfd_open, target->pid, 0), ret = 0;
	uid_t owner;

	if (fd < 0)
		return -errno;
	if (family_process_has_ended(target->pid, target->started) || !family_owner(target->pid, &owner))
		ret = -ESRCH;
	else if (geteuid() == 0 && l->order.uid != 0 && l->order.uid != owner)
		ret = -EPERM;
	else if (syscall(SYS_pidfd_send_signal, fd, number, NULL, 0) < 0)
		ret = -errno;
	close(fd);
	return ret;
}

static void order_tell_refused(const struct order_work *l, pid_t pid, int error)
{
	log_about(LINE_NOT_ENDED, &(struct log_about){.subject = l->order.what, .pid = pid},
		  "%s: held too long (kill_after_ms), but pid %d is not ended: %s", l->order.what, (int)pid,
		  error == -EPERM
			  ? "it is another user's than the process that took the lock, or the keeper may not signal "
			    "it; end it yourself"
			  : strerror(-error));
}

static void order_finish(struct order_work *l, struct order *o, enum order_state state)
{
	order_move(o, l->order.word, state);
	l->order.word = ORDER_FREE;
	utarray_done(&l->targets);
}

/* A process that has ended, or may not be signalled, is no target from then on, and the log names the first that may not. If nothing was
 * sent, the order is done with. */
static void order_signal_all(struct table *table, struct order_work *l, struct order *o)
{
	struct deed deed = {.kind = EVENT_HOLDERS_KILLED,
			    .dev = o->file.dev,
			    .ino = o->file.ino,
			    .order = 1 + (uint32_t)(o - order_at(table, 0))};
	bool refused = false;

	for (size_t i = 0; i < utarray_len(&l->targets);) {
		const struct order_target *target = array_at(&l->targets, i);
		int ret = order_signal(l, target, l->killed ? SIGKILL : SIGTERM);

		if (ret && ret != -ESRCH && !refused)
			order_tell_refused(l, target->pid, ret);
		refused |= ret && ret != -ESRCH;
		if (!ret && deed.processes++ < DEEDS_PIDS)
			deed.pids[deed.pid_count++] = target->pid;
		if (ret)
			utarray_erase(&l->targets, i, 1);
		else
			i++;
	}
	if (!deed.processes) {
		order_finish(l, o, refused ? ORDER_STUCK : l->killed ? ORDER_DONE : ORDER_VAIN);
		return;
	}
	deeds_count(table, l->killed ? DEEDS_TOO_LONG_KILL : DEEDS_TOO_LONG_TERM, deed.processes);
	deeds_put(
		table, &deed, &(struct log_about){.lock = l->order.name, .pid = deed.pids[0]},
		"HELD TOO LONG: %s, held for %lld ms, longer than kill_after_ms: %u processes that have it, or were started by "
		"one that has, get %s (pid %d, ...)",
		l->order.what, (long long)l->order.held_ms, deed.processes, l->killed ? "SIGKILL" : "SIGTERM",
		(int)deed.pids[0]);
}

/* The argument is at the top. */
static void order_begin(const struct orders *all, struct order_work *l, struct order *o, uint64_t word)
{
	struct family family = {0}, again = {0};
	bool certain;

	*l = (struct order_work){.order = *o, .left_ns = o->patience_ns};
	l->order.word = word;
	if (order_find(all, &l->order, &family)) {
		(void)!family_add_descendants(&family, getpid()); /* one that is missing is found the next time */
		order_add_targets(l, &family, 0);
		order_speak(all->table, l);
	}
	certain = order_find(all, &l->order, &again); /* mutant: toolong-shown */
	if (certain)
		certain = order_move(o, word, ORDER_ASKED); /* mutant: toolong-young */
	if (certain)
		l->order.word = order_word(o);
	if (certain)
		order_signal_all(all->table, l, o);
	else
		order_finish(l, o, ORDER_VAIN);
	family_free(&family);
	family_free(&again);
}

/* What the targets have started since they were asked to end. */
static void order_add_started(struct order_work *l)
{
	struct family family = {0};
	size_t known;

	for (size_t i = 0; i < utarray_len(&l->targets); i++) {
		const struct order_target *target = array_at(&l->targets, i);

		if (!family_process_has_ended(target->pid, target->started))
			(void)!family_add(&family, target->pid);
	}
	known = family_count(&family);
	(void)!family_add_descendants(&family, getpid());
	order_add_targets(l, &family, known);
	family_free(&family);
}

static const struct order_target *order_left(const struct order_work *l)
{
	for (size_t i = 0; i < utarray_len(&l->targets); i++) {
		const struct order_target *target = array_at(&l->targets, i);

		if (!family_process_has_ended(target->pid, target->started))
			return target;
	}
	return NULL;
}

static void order_step(struct table *table, struct order_work *l, struct order *o, int64_t passed_ns)
{
	const struct order_target *left = order_left(l);

	l->left_ns -= passed_ns;
	if (!left)
		order_finish(l, o, ORDER_DONE);
	if (!left || l->left_ns > 0)
		return;
	if (!l->killed) {
		l->killed = true;
		l->left_ns = ORDER_GONE_NS;
		order_add_started(l);
		order_signal_all(table, l, o);
		return;
	}
	log_about(
		LINE_NOT_ENDED, &(struct log_about){.subject = l->order.what, .pid = left->pid},
		"%s: held too long, but pid %d cannot be ended: it has got SIGKILL and is in state %c; it is not tried again",
		l->order.what, (int)left->pid, family_state(left->pid));
	order_finish(l, o, ORDER_STUCK);
}

/* One order begins in each look: its lines take time, and leases may run out meanwhile. */
bool orders_obey(struct orders *all, int64_t now_ns, bool paused)
{
	int64_t passed_ns = now_ns - all->looked_ns < ORDER_TICK_NS ? now_ns - all->looked_ns : ORDER_TICK_NS;
	bool any = false, begun = paused;
	struct order *o;

	all->looked_ns = now_ns;
	for (size_t i = 0; (o = order_at(all->table, i)); i++) {
		struct order_work *l = &all->works[i];
		uint64_t word = order_word(o);

		if (l->order.word && !paused) {
			order_step(all->table, l, o, passed_ns);
		} else if (!l->order.word && order_state(word) == ORDER_GIVEN && !begun) {
			order_begin(all, l, o, word);
			begun = true;
		}
		any |= l->order.word || order_state(order_word(o)) == ORDER_GIVEN;
	}
	return any;
}
