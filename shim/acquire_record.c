/*
 * Why a record call that fails, or whose thread is cancelled in it, leaves its owner exactly the locks that it had.
 *
 * The kernel changes nothing when it refuses a lock, or when the wait for one is interrupted. So only what this call
 * took itself must be put back, which happens when a grant was over before the kernel lock was there and then the lease
 * is not to be had. For that:
 *
 * 1. Before the first lock is taken, it is known what the owner had in the range (learn): the keeper has read it from
 *    the kernel when the question came, and this call has not taken anything yet. It is kept in this process, since
 *    the keeper may end. What is put back is always this, however often the call tries.
 * 2. Nothing that was held is made less before the call has succeeded. To take an exclusive lock makes more of what was
 *    there. A shared lock is only taken where nothing was held; where the owner has it exclusively, it stays so, which
 *    keeps out the same others and more, and becomes shared in the last step (finish), which nobody else can prevent,
 *    since the whole range is held.
 * 3. So to put back means to unlock, and to turn exclusive into shared: neither waits, and neither can meet anybody
 *    else's lock, as what was there before was never given up. Both may want memory; if there is none, a line says so.
 *
 * A shared lock over several gaps is not taken at once, but nobody waits with a part of it: if one gap is taken by
 * somebody else, the others are let go of first, and after the wait all are tried anew.
 *
 * What this cannot know: another thread of the process, or another one with the same description for OFD locks, that
 * locks or unlocks bytes of the same range at the same time. Those share their locks in the kernel, too, where either
 * may undo what the other did; a call that is put back may do so as well.
 *
 * Cancellation acts while this call waits for an answer, or in the kernel. The handler closes the connection and
 * puts back, also what the kernel may have given in the moment of the cancellation. It is registered with the thread
 * (the classic form of pthread_cleanup_push(), which needs libc alone). A program that jumps out of a signal handler in
 * the middle of a call leaves it registered, and a later cancellation would go astray; so not where there is
 * but one thread, which is where programs do that. There the end of the thread is that of the process.
 */
#include <errno.h>
#include <unistd.h>

#include "shim/acquire.h"
#include "shim/earlier.h"
#include "shim/note.h"
#include "shim/oldlibc.h"
#include "shim/real.h"
#include "shim/sys.h"

OLDLIBC(pthread_testcancel, OLDLIBC_FIRST);
OLDLIBC(__pthread_register_cancel, OLDLIBC_NPTL);
OLDLIBC(__pthread_unregister_cancel, OLDLIBC_NPTL);
OLDLIBC(__pthread_unwind_next, OLDLIBC_NPTL);

struct record_call {
	struct call call; /* first: it is what the operations get */
	bool learnt;
	struct earlier earlier;
	struct {
		bool any;
		int64_t first, last;
	} taken; /* outside of it, this call has changed nothing */
};

static int reclock_set(const struct record_call *r, short type, const struct stretch *s, bool wait)
{
	const struct intent *want = r->call.want;
	struct flock64 lock = {
		.l_type = type,
		.l_whence = SEEK_SET,
		.l_start = s->first,
		.l_len = intent_len(s->first, s->last),
	};
	int cmd = want->owner == WIRE_OWNER_PROCESS ? (wait ? F_SETLKW64 : F_SETLK64)
						    : (wait ? F_OFD_SETLKW : F_OFD_SETLK);

	return (want->raw ? real_syscall_fcntl : real_fcntl64)(r->call.fd, cmd, &lock) < 0 ? -errno : 0;
}

static short reclock_type(const struct record_call *r)
{
	return r->call.want->mode == WIRE_SHARED ? F_RDLCK : F_WRLCK;
}

/* Would the kernel refuse a lock of this mode on this descriptor (EBADF)? */
static int reclock_check(struct call *c)
{
	long flags = sys_fcntl(c->fd, F_GETFL, 0L);
	int wrong = c->want->mode == WIRE_SHARED ? O_WRONLY : O_RDONLY;

	/* Whatever else F_GETFL may fail with (seccomp) says nothing of the lock. */
	return flags == -EBADF || (flags >= 0 && (flags & O_ACCMODE) == wrong) ? ACQUIRE_KERNEL : 0;
}

/* --- what was there before --- */

/*
 * As reclock_learn(), but from the kernel alone, where that can be said at once: nothing in the whole range, or one lock of the
 * owner's that covers it. The kernel shows locks of another kind of owner only: POSIX locks to an OFD owner, and the
 * other way round; and all of others. So what is shown to an OFD owner and not to a POSIX one is the caller's own; the
 * pid says less, since threads that unshared their descriptors are other owners with the same pid.
 */
static int reclock_learn_here(struct record_call *r)
{
	const struct intent *want = r->call.want;
	bool posix = want->owner == WIRE_OWNER_PROCESS;
	const struct flock64 whole = {
		.l_type = F_WRLCK,
		.l_whence = SEEK_SET,
		.l_start = want->first,
		.l_len = intent_len(want->first, want->last),
	};
	struct flock64 lock = whole, other = whole;
	int64_t last;

	if (real_fcntl64(r->call.fd, posix ? F_OFD_GETLK : F_GETLK64, &lock) < 0)
		return CALL_AGAIN;
	if (lock.l_type != F_UNLCK) {
		last = lock.l_len ? lock.l_start + lock.l_len - 1 : INTENT_LAST;
		if (!posix || lock.l_start > want->first || last < want->last || lock.l_pid != getpid() ||
		    real_fcntl64(r->call.fd, F_GETLK64, &other) < 0 || other.l_type != F_UNLCK)
			return CALL_AGAIN;
		earlier_add(&r->earlier, lock.l_type == F_RDLCK ? WIRE_SHARED : WIRE_EXCLUSIVE, want->from, want->to);
	}
	r->learnt = true;
	return 0;
}

/* One more lock of the owner's, asked for. As earlier_add(), or -errno after a line. */
static int reclock_learn_next(struct record_call *r)
{
	struct call *c = &r->call;
	struct wire_reply reply;
	int ret = ask_before(&c->ask, &c->look->by, r->earlier.next_from);

	if (ret == 0)
		ret = ask_receive(&c->ask, &reply);
	if (ret < 0)
		return ret;
	if (reply.verdict == WIRE_REFUSED) {
		note_line(c->fd, reply.reason);
		return -ENOLCK;
	}
	return reply.verdict == WIRE_OK ? earlier_add(&r->earlier, reply.mode, reply.from, reply.to) : -EPROTO;
}

static int reclock_learn(struct call *c, const struct wire_reply *granted)
{
	struct record_call *r = (struct record_call *)c;
	bool asked = false;
	int ret = 0;

	if (r->learnt)
		return 0;
	earlier_release(&r->earlier);
	if (granted->from != 0 || granted->to != 0)
		ret = earlier_add(&r->earlier, granted->mode, granted->from, granted->to);
	while (ret == 0) {
		asked = true;
		ret = reclock_learn_next(r);
	}
	if (ret == -E2BIG || ret == -ENOMEM) {
		note_refused_errno(c->fd, "the process has too many locks in this range already", -ret);
		return -ENOLCK;
	}
	if (ret < 0)
		return ret;
	r->learnt = true;
	return asked ? CALL_AGAIN : 0;
}

/* Point 3 above. */
static int reclock_put_back(struct call *c)
{
	struct record_call *r = (struct record_call *)c;
	struct stretch s = {0};
	int ret = 0, failed = 0;

	while (r->taken.any && earlier_next(&r->earlier, &s)) {
		if (s.last < r->taken.first || s.first > r->taken.last)
			continue;
		do {
			if (s.had == EARLIER_NONE)
				ret = reclock_set(r, F_UNLCK, &s, false);
			else if (s.had == WIRE_SHARED && c->want->mode == WIRE_EXCLUSIVE)
				ret = reclock_set(r, F_RDLCK, &s, false);
			else
				ret = 0;
		} while (ret == -EINTR);
		if (ret < 0)
			failed = ret;
	}
	if (failed) {
		note_refused_errno(c->fd, "and what was locked before cannot be put back; close the file", -failed);
		return -ENOLCK;
	}
	r->taken.any = c->have = false;
	return 0;
}

/* --- the kernel lock --- */

/* The next stretch to be taken; s as for earlier_next(). */
static bool reclock_next_missing(const struct record_call *r, struct stretch *s)
{
	if (r->call.want->mode == WIRE_SHARED) {
		while (earlier_next(&r->earlier, s))
			if (s->had == EARLIER_NONE)
				return true;
		return false;
	}
	if (s->begun)
		return false;
	*s = (struct stretch){.first = r->earlier.first, .last = r->earlier.last, .begun = true};
	return true;
}

static void reclock_add_taken(struct record_call *r, const struct stretch *s)
{
	r->taken.first = r->taken.any && r->taken.first < s->first ? r->taken.first : s->first;
	r->taken.last = r->taken.any && r->taken.last > s->last ? r->taken.last : s->last;
	r->taken.any = true;
}

/* Is there somebody else's lock in the way, just now? */
static bool reclock_is_busy(const struct record_call *r, const struct stretch *s)
{
	struct flock64 lock = {
		.l_type = reclock_type(r),
		.l_whence = SEEK_SET,
		.l_start = s->first,
		.l_len = intent_len(s->first, s->last),
	};

	return real_fcntl64(r->call.fd, r->call.want->owner == WIRE_OWNER_PROCESS ? F_GETLK64 : F_OFD_GETLK, &lock) ==
		       0 &&
	       lock.l_type != F_UNLCK;
}

/*
 * Without waiting. If that fails, *busy is where. look: first of all, where a shared lock is to fill gaps; for to take
 * one and let it go again wakes those who wait for the owner's locks beside it, and one of these could then find that
 * he closes a cycle, which is this call's to find.
 */
static int reclock_take_missing(struct record_call *r, bool look, struct stretch *busy)
{
	int ret;

	*busy = (struct stretch){0};
	while (look && r->call.want->mode == WIRE_SHARED && r->earlier.count && reclock_next_missing(r, busy))
		if (reclock_is_busy(r, busy))
			return -EAGAIN;
	for (*busy = (struct stretch){0}; reclock_next_missing(r, busy); reclock_add_taken(r, busy)) {
		ret = reclock_set(r, reclock_type(r), busy, false);
		if (ret < 0)
			return ret;
	}
	return 0;
}

static int reclock_take(struct call *c)
{
	struct record_call *r = (struct record_call *)c;
	struct stretch busy;
	bool waited = false;
	int ret, undone;

	while ((ret = reclock_take_missing(r, !waited, &busy)) < 0) {
		undone = reclock_put_back(c);
		if (undone < 0)
			return undone;
		if (c->want->nonblock || (ret != -EAGAIN && ret != -EACCES))
			return ret;
		/* Noted before: this thread may be cancelled in the call. */
		reclock_add_taken(r, &busy);
		ret = reclock_set(r, reclock_type(r), &busy, true);
		waited = true;
		if (ret < 0) {
			r->taken.any = false;
			return ret;
		}
	}
	c->have = true;
	return 0;
}

static int reclock_try(struct call *c)
{
	struct record_call *r = (struct record_call *)c;
	struct stretch busy;
	int ret, undone;

	/* As before a lock that waits. */
	if (!c->want->nonblock && !c->want->raw && pthread_testcancel)
		pthread_testcancel();
	ret = reclock_learn_here(r);
	if (ret != 0)
		return ret;
	ret = reclock_take_missing(r, true, &busy);
	/* Of what was looked at, one thing may have changed: that lock may be gone, or another thread's. */
	if (ret == 0 && c->want->mode == WIRE_SHARED && r->earlier.count && !r->earlier.exclusive)
		ret = reclock_set(r, F_RDLCK, &busy, false);
	if (ret == 0) {
		c->have = true;
		return 0;
	}
	undone = reclock_put_back(c);
	earlier_release(&r->earlier);
	r->learnt = false;
	return undone < 0 ? undone : ret;
}

static int reclock_finish(struct call *c)
{
	const struct record_call *r = (const struct record_call *)c;
	const struct stretch all = {.first = r->earlier.first, .last = r->earlier.last};

	return c->want->mode == WIRE_SHARED && r->earlier.exclusive ? reclock_set(r, F_RDLCK, &all, false) : 0;
}

/* --- the call --- */

/* The thread is cancelled. */
static void reclock_abandon(void *arg)
{
	struct record_call *r = arg;

	ask_close(&r->call.ask);
	reclock_put_back(&r->call);
	earlier_release(&r->earlier);
}

int acquire_record(int fd, const struct intent *want, struct protect_look *look)
{
	static const struct call_taking reclock_taking = {
		.try = reclock_try, .check = reclock_check, .learn = reclock_learn, .take = reclock_take, .let_go = reclock_put_back, .finish = reclock_finish};
	static const struct call_kind reclock_kind = {.op = WIRE_LOCK, .answer = acquire_answer, .taking = &reclock_taking};
	struct record_call r = {.call = {.kind = &reclock_kind, .fd = fd, .want = want, .look = look, .ask.sock = -1}};
	int ret;

	earlier_init(&r.earlier, want->first, want->last);
	if (want->nonblock || want->raw || !__pthread_register_cancel || real_single_threaded()) {
		ret = acquire(&r.call);
	} else {
		pthread_cleanup_push(reclock_abandon, &r);
		ret = acquire(&r.call);
		pthread_cleanup_pop(0);
	}
	earlier_release(&r.earlier);
	return ret;
}
