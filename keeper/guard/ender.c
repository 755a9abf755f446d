/*
 * See ender.h.
 *
 * Which processes. Those of the locks under slots of the table are found by relying.h; those of an order by the lock line: the
 * file, the space, and the process that took the lock. All that they have started ends with them: a job whose flock(1) has
 * ended must not work on beside the next one.
 *
 * Held too long. Why no process is ended that holds a lock briefly, however often. The keeper has judged that the last pin of
 * process P for this file and space ended kill_after_ms ago or earlier (grants.h), and gives an order: GIVEN, with a number.
 * Before it tells a caller of another grant that would count for P, it withdraws the order (grants_note()). The parent
 *   1. copies the order, finds the holders and tells them,
 *   2. looks once more: a process has a lock on this file, in this space, that P took,
 *   3. makes the order's word ASKED, if that still has the same number and says GIVEN, in one step,
 *   4. sends SIGTERM.
 * If 3 succeeds, the keeper has given P no pin from its judgement until 3. So the lock of 2 is older than kill_after_ms, by
 * grants.h. It may end between 2 and 4, some microseconds: then it was held too long, too. If the keeper withdraws the order
 * first, 3 fails and nothing is sent, whatever 2 has seen; if 3 comes first, P has not yet been told of its next grant. An order
 * of a keeper that died is good until the next one serves, since no caller is granted in between; that one takes all back
 * first (toolong_start()).
 */
#include "keeper/guard/ender.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "keeper/clock.h"
#include "keeper/guard/farewell.h"
#include "keeper/kernel/holders.h"
#include "keeper/guard/lastwords.h"
#include "keeper/guard/slots.h"
#include "keeper/log.h"

#define EXPIRE_SLOTS   (SLOTS_SURE_UNTIL | SLOTS_AS(ON_LOST_KILL))
#define EXPIRE_PARENTS 64                 /* ancestors of one process that are looked at */
#define LATE_GONE_NS   (5000 * NS_PER_MS) /* from SIGKILL until it is said that a process cannot be ended */
#define LATE_TICK_NS   (1000 * NS_PER_MS) /* more does not count between two looks: the machine slept */
#define LATE_TARGETS   1024

/* --- leases that run out --- */

void ender_signal(const struct family *family, int number)
{
	for (size_t i = 0; i < family_count(family); i++)
		if (family_at(family, i) != getpid())
			kill(family_at(family, i), number);
}

void ender_expire(struct ender *e, int64_t now_ns)
{
	struct table *t = e->relying->table;
	int64_t freeze_at = slots_freeze_at_ns(t), half = freeze_at + (slots_deadline_ns(t) - freeze_at) / 2;
	bool ask = now_ns < half;

	if (e->asked && ask)
		return;
	family_free(&e->targets);
	relying_find_unshown(e->relying, &e->targets, EXPIRE_SLOTS, NULL);
	if (family_count(&e->targets) && !e->killed) /* one that waits in the kernel is found again and again */
		deeds_add(
			t, EVENT_HOLDERS_KILLED, EXPIRE_SLOTS, &e->targets, family_count(&e->targets),
			"the store has not answered: %zu processes that hold locks, or were started by one that does, get %s",
			family_count(&e->targets), ask ? "SIGTERM" : "SIGKILL");
	if (!e->killed)
		deeds_count(t, ask ? DEEDS_EXPIRED_TERM : DEEDS_EXPIRED_KILL, family_count(&e->targets));
	farewell(t, EXPIRE_SLOTS, &e->targets, ask ? FAREWELL_ASK : FAREWELL_KILL, e->relying->keeper, true);
	ender_signal(&e->targets, ask ? SIGTERM : SIGKILL);
	e->asked = true;
	e->killed = e->killed || !ask;
}

bool ender_is_under_way(const struct ender *e)
{
	return e->asked && !e->killed;
}

/* One of them may have started the process since. */
bool ender_has_asked(const struct ender *e, pid_t pid)
{
	struct procfs_stat stat;

	if (!family_count(&e->targets) || e->killed)
		return false;
	for (int i = 0; i < EXPIRE_PARENTS && pid > 1; i++, pid = stat.parent)
		if (family_has(&e->targets, pid))
			return true;
		else if (!family_stat(pid, &stat))
			return false;
	return false;
}

void ender_forget(struct ender *e)
{
	family_free(&e->targets);
	e->asked = e->killed = false;
}

/* --- locks that are held too long --- */

struct late_target {
	pid_t pid;
	uint64_t started;
	bool refused; /* it may not be signalled */
};

struct late_look {
	const struct order *order;
	struct family *family;
};

static int late_on_holder(void *arg, const struct holder *h)
{
	const struct late_look *look = arg;

	if (h->space != look->order->space || (h->locker > 0 ? h->locker : 0) != look->order->locker || h->pid <= 1)
		return 0;
	return family_add(look->family, h->pid) < 0 ? -ENOMEM : HOLDERS_LATER;
}

/* Adds the processes that have the lock of the order. Are there any? */
static bool late_find(const struct ender *e, const struct order *o, struct family *family)
{
	struct late_look look = {.order = o, .family = family};

	holders_search(&(struct holders_search){.files = &o->file,
						.count = 1,
						.ignore_pid = e->relying->keeper,
						.how = HOLDERS_AT_ONCE,
						.cb = late_on_holder,
						.arg = &look});
	return family_count(family) > 0;
}

static void late_add_targets(struct ender_late *l, const struct family *family)
{
	for (size_t i = 0; i < family_count(family) && i < LATE_TARGETS; i++) {
		const struct late_target target = {.pid = family_at(family, i),
						   .started = family_started(family_at(family, i))};

		if (target.started)
			(void)!array_push(&l->targets, &target, sizeof(target)); /* without memory: the next order */
	}
}

static void late_speak(const struct ender *e, const struct ender_late *l)
{
	struct lastword words[LASTWORDS_MAX];
	size_t count = 0;

	for (; count < utarray_len(&l->targets) && count < LASTWORDS_MAX; count++) {
		const struct late_target *target = array_at(&l->targets, count);

		words[count] = (struct lastword){.pid = target->pid, .line = l->order.line};
	}
	lastwords(words, count, farewell_ms(e->relying->table), true);
}

/* 0; -ESRCH: it is gone; -EPERM: it is another user's than the process that took the lock. */
static int late_signal(const struct ender_late *l, const struct late_target *target, int number)
{
	int fd = (int)syscall(SYS_pidfd_open, target->pid, 0), ret = 0;
	uid_t owner;

	if (fd < 0)
		return -errno;
	if (family_has_ended(target->pid, target->started) || !family_owner(target->pid, &owner))
		ret = -ESRCH;
	else if (geteuid() == 0 && l->order.uid != 0 && l->order.uid != owner)
		ret = -EPERM;
	else if (syscall(SYS_pidfd_send_signal, fd, number, NULL, 0) < 0)
		ret = -errno;
	close(fd);
	return ret;
}

static void late_tell_refused(const struct ender_late *l, pid_t pid, int error)
{
	log_about(LINE_NOT_ENDED, &(struct log_about){.subject = l->order.what, .pid = pid},
		  "%s: held too long (kill_after_ms), but pid %d is not ended: %s", l->order.what, (int)pid,
		  error == -EPERM
			  ? "it is another user's than the process that took the lock, or the keeper may not signal "
			    "it; end it yourself"
			  : strerror(-error));
}

static void late_tell_signalled(const struct ender *e, const struct ender_late *l, size_t count)
{
	const struct order *o = &l->order;
	struct deed deed = {.kind = EVENT_HOLDERS_KILLED,
			    .processes = (uint32_t)count,
			    .dev = o->file.dev,
			    .ino = o->file.ino,
			    .order = 1 + (uint32_t)(l - e->late)};

	for (size_t i = 0; i < utarray_len(&l->targets) && deed.pid_count < DEEDS_PIDS; i++) {
		const struct late_target *target = array_at(&l->targets, i);

		if (!target->refused)
			deed.pids[deed.pid_count++] = target->pid;
	}
	deeds_count(e->relying->table, l->killed ? DEEDS_TOO_LONG_KILL : DEEDS_TOO_LONG_TERM, count);
	deeds_put(
		e->relying->table, &deed, &(struct log_about){.lock = o->name, .pid = deed.pids[0]},
		"HELD TOO LONG: %s, held for %lld ms, longer than kill_after_ms: %zu processes that have it, or were started by "
		"one that has, get %s (pid %d, ...)",
		o->what, (long long)o->held_ms, count, l->killed ? "SIGKILL" : "SIGTERM", (int)deed.pids[0]);
}

/* A process that may not be signalled is left out from then on, and the log names the first. False: nothing was sent. */
static bool late_signal_all(const struct ender *e, struct ender_late *l, bool *refused)
{
	size_t count = 0;

	*refused = false;
	for (size_t i = 0; i < utarray_len(&l->targets); i++) {
		struct late_target *target = array_at(&l->targets, i);
		int ret = target->refused ? -ESRCH : late_signal(l, target, l->killed ? SIGKILL : SIGTERM);

		count += ret == 0;
		if (ret == 0 || ret == -ESRCH)
			continue;
		target->refused = true;
		if (!*refused)
			late_tell_refused(l, target->pid, ret);
		*refused = true;
	}
	if (count)
		late_tell_signalled(e, l, count);
	return count > 0;
}

static void late_finish(struct ender_late *l, struct order *o, enum order_state state)
{
	order_move(o, l->order.word, state);
	l->order.word = ORDER_FREE;
	utarray_done(&l->targets);
}

/* The argument is at the top. */
static void late_begin(struct ender *e, struct ender_late *l, struct order *o, uint64_t word)
{
	struct family family = {0}, again = {0};
	bool certain, refused;

	*l = (struct ender_late){.order = *o, .left_ns = o->patience_ns};
	l->order.word = word;
	if (late_find(e, &l->order, &family)) {
		(void)!family_add_descendants(&family, getpid()); /* one that is missing is found the next time */
		late_add_targets(l, &family);
		late_speak(e, l);
	}
	certain = late_find(e, &l->order, &again); /* mutant: toolong-shown */
	if (certain)
		certain = order_move(o, word, ORDER_ASKED); /* mutant: toolong-young */
	if (certain)
		l->order.word = order_word(o);
	if (!certain)
		late_finish(l, o, ORDER_VAIN);
	else if (!late_signal_all(e, l, &refused))
		late_finish(l, o, refused ? ORDER_STUCK : ORDER_VAIN);
	family_free(&family);
	family_free(&again);
}

static const struct late_target *late_left(const struct ender_late *l)
{
	for (size_t i = 0; i < utarray_len(&l->targets); i++) {
		const struct late_target *target = array_at(&l->targets, i);

		if (!target->refused && !family_has_ended(target->pid, target->started))
			return target;
	}
	return NULL;
}

static void late_step(const struct ender *e, struct ender_late *l, struct order *o, int64_t passed_ns)
{
	const struct late_target *left = late_left(l);
	bool refused;

	l->left_ns -= passed_ns;
	if (!left)
		late_finish(l, o, ORDER_DONE);
	if (!left || l->left_ns > 0)
		return;
	if (!l->killed) {
		l->killed = true;
		l->left_ns = LATE_GONE_NS;
		late_signal_all(e, l, &refused);
		return;
	}
	log_about(
		LINE_NOT_ENDED, &(struct log_about){.subject = l->order.what, .pid = left->pid},
		"%s: held too long, but pid %d cannot be ended: it has got SIGKILL and is in state %c; it is not tried again",
		l->order.what, (int)left->pid, family_state(left->pid));
	late_finish(l, o, ORDER_STUCK);
}

/* One order begins in each look: its lines take time, and leases may run out meanwhile. */
bool ender_late(struct ender *e, int64_t now_ns, bool paused)
{
	int64_t passed_ns = now_ns - e->looked_ns < LATE_TICK_NS ? now_ns - e->looked_ns : LATE_TICK_NS;
	bool any = false, begun = paused;
	struct order *o;

	e->looked_ns = now_ns;
	for (size_t i = 0; (o = deeds_order(e->relying->table, i)); i++) {
		struct ender_late *l = &e->late[i];
		uint64_t word = order_word(o);

		if (l->order.word && !paused) {
			late_step(e, l, o, passed_ns);
		} else if (!l->order.word && order_state(word) == ORDER_GIVEN && !begun) {
			late_begin(e, l, o, word);
			begun = true;
		}
		any |= l->order.word || order_state(order_word(o)) == ORDER_GIVEN;
	}
	return any;
}
