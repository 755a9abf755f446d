/*
 * Why a record call that fails, or whose thread is cancelled in it, leaves its owner exactly the locks that it had.
 *
 * The kernel changes nothing when it refuses a lock, or when the wait for one is interrupted. So only what this call
 * itself took must be put back: when a grant had ended before the caller got the kernel lock, and then the lease is
 * refused. For that:
 *
 * 1. Before the call takes its first lock, it knows what the owner had in the range (learn): the keeper read that from
 *    the kernel when the question came, before this call had taken anything. The list is kept in this process, since
 *    the keeper may end. This is always what is put back, however often the call tries.
 * 2. No lock that was held becomes weaker before the call has succeeded. To take an exclusive lock makes the locks
 *    there stronger. A shared lock is taken only where nothing was held. Where the owner has an exclusive lock, that
 *    stays at first: it keeps out the same callers and more. It becomes shared in the last step (finish), which no
 *    other process can prevent, since the whole range is held.
 * 3. So to put back means to unlock, and to turn exclusive into shared. Neither waits, and neither can meet another
 *    owner's lock, as the earlier locks were never given up. Both may need memory; if there is none, a line says so.
 *
 * A shared lock over several gaps is not taken in one step, but no caller waits with a part of it: if another owner has
 * one gap, this call first lets go of the others, and after the wait it tries all of them anew.
 *
 * What this code cannot know: that another thread of the process (with OFD locks: another process with the same
 * description) locks or unlocks bytes of the same range at the same time. In the kernel, too, such callers share their
 * locks, and each may undo what the other did; so may a call that puts back.
 *
 * Cancellation acts while this call waits for an answer, or in the kernel. The cleanup handler closes the connection
 * and puts back, also the lock that the kernel may have given at the moment of the cancellation. It is registered with
 * the thread (oldlibc.h). At a jump out of a signal handler in the middle of a call, glibc runs it, too; musl leaves it
 * registered, and a later cancellation would run it on a stack frame that is gone. Programs that do so have one thread, so the
 * handler is not registered where there is only one thread; there the end of the thread is the end of the process.
 */
#include <errno.h>
#include <unistd.h>

#include "shim/call.h"
#include "shim/note.h"
#include "shim/oldlibc.h"
#include "shim/real.h"
#include "wire/sys.h"

OLDLIBC(pthread_testcancel, OLDLIBC_FIRST);
OLDLIBC(_pthread_cleanup_push, OLDLIBC_FIRST);
OLDLIBC(_pthread_cleanup_pop, OLDLIBC_FIRST);

struct record_call {
	struct call call; /* first: it is what the operations get */
	bool learnt;
	struct own own;
	struct {
		bool any;
		int64_t first, last;
	} taken; /* outside of this range, the call has changed nothing */
};

static int reclock_set(const struct record_call *r, short type, const struct stretch *s, bool wait)
{
	const struct intent *want = r->call.want;
	struct flock64 lock = intent_lock(type, s->first, s->last);

	return (want->raw ? real_syscall_fcntl : real_fcntl64)(r->call.fd, intent_command(want, false, wait), &lock) < 0
		       ? -errno
		       : 0;
}

/* Would the kernel refuse a lock of this mode on this descriptor (EBADF)? */
static int reclock_check(struct call *c)
{
	long flags = sys_fcntl(c->fd, F_GETFL, 0L);
	int wrong = c->want->mode == WIRE_SHARED ? O_WRONLY : O_RDONLY;

	/* Another error of F_GETFL (seccomp) says nothing about the lock. */
	return flags == -EBADF || (flags >= 0 && (flags & O_ACCMODE) == wrong) ? CALL_KERNEL : 0;
}

/* --- what was there before --- */

/*
 * The same as reclock_learn(), but from the kernel alone. Works where the answer is simple: the owner has nothing in
 * the whole range, or one lock that covers it. The kernel shows a caller the locks of all other owners, and of its own
 * only those of the other kind: POSIX locks to an OFD caller, and the reverse. So a lock that is shown to an OFD caller
 * and not to a POSIX caller is the caller's own POSIX lock. The pid alone says less: threads that unshared their
 * descriptors are other owners with the same pid.
 */
static int reclock_learn_here(struct record_call *r)
{
	const struct intent *want = r->call.want;
	bool posix = want->owner == WIRE_OWNER_PROCESS;
	struct flock64 lock = intent_lock(F_WRLCK, want->first, want->last), other = lock;
	int64_t last;

	if (real_fcntl64(r->call.fd, posix ? F_OFD_GETLK : F_GETLK64, &lock) < 0)
		return CALL_AGAIN;
	if (lock.l_type != F_UNLCK) {
		last = lock.l_len ? lock.l_start + lock.l_len - 1 : INTENT_LAST;
		if (!posix || lock.l_start > want->first || last < want->last || lock.l_pid != getpid() ||
		    real_fcntl64(r->call.fd, F_GETLK64, &other) < 0 || other.l_type != F_UNLCK)
			return CALL_AGAIN;
		own_add(&r->own, lock.l_type == F_RDLCK ? WIRE_SHARED : WIRE_EXCLUSIVE, want->from, want->to);
	}
	r->learnt = true;
	return 0;
}

/* Asks the keeper for one more lock of the owner's. Result as that of own_add(), or -errno after a line. */
static int reclock_learn_next(struct record_call *r)
{
	struct call *c = &r->call;
	const struct wire_request request = {
		.op = WIRE_BEFORE, .space = WIRE_RECORD, .from = r->own.next_from, .to = WIRE_EOF};
	struct wire_reply reply;
	int ret = ask_send(&c->ask, &c->look->by, request, -1);

	if (ret == 0)
		ret = ask_receive(&c->ask, &reply);
	if (ret < 0)
		return ret;
	if (reply.verdict == WIRE_REFUSED) {
		note_line(c->fd, reply.reason);
		return -ENOLCK;
	}
	return reply.verdict == WIRE_OK ? own_add(&r->own, reply.mode, reply.from, reply.to) : -EPROTO;
}

static int reclock_learn(struct call *c, const struct wire_reply *granted)
{
	struct record_call *r = (struct record_call *)c;
	bool asked = false;
	int ret = 0;

	if (r->learnt)
		return 0;
	own_release(&r->own);
	if (granted->from != 0 || granted->to != 0)
		ret = own_add(&r->own, granted->mode, granted->from, granted->to);
	while (ret == 0) {
		asked = true;
		ret = reclock_learn_next(r);
	}
	if (ret == -E2BIG || ret == -ENOMEM) {
		errno = -ret;
		note_refused(c->fd, "the process has too many locks in this range already: %m");
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

	while (r->taken.any && own_next(&r->own, &s)) {
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
		errno = -failed;
		note_refused(c->fd, "the locks that were there before cannot be put back; close the file: %m");
		return -ENOLCK;
	}
	r->taken.any = c->have = false;
	return 0;
}

/* --- the kernel lock --- */

/* The next stretch that must be taken; `s` as for own_next(). */
static bool reclock_next_missing(const struct record_call *r, struct stretch *s)
{
	if (r->call.want->mode == WIRE_SHARED) {
		while (own_next(&r->own, s))
			if (s->had == EARLIER_NONE)
				return true;
		return false;
	}
	if (s->begun)
		return false;
	*s = (struct stretch){.first = r->own.first, .last = r->own.last, .begun = true};
	return true;
}

static void reclock_add_taken(struct record_call *r, const struct stretch *s)
{
	r->taken.first = r->taken.any && r->taken.first < s->first ? r->taken.first : s->first;
	r->taken.last = r->taken.any && r->taken.last > s->last ? r->taken.last : s->last;
	r->taken.any = true;
}

/* Is another owner's lock in the way at this moment? */
static bool reclock_is_busy(const struct record_call *r, const struct stretch *s)
{
	struct flock64 lock = intent_lock(intent_type(r->call.want), s->first, s->last);

	return real_fcntl64(r->call.fd, intent_command(r->call.want, true, false), &lock) == 0 &&
	       lock.l_type != F_UNLCK;
}

/*
 * Takes all missing stretches without waiting. If that fails, *busy is the stretch that could not be taken. `look`: a
 * shared lock that fills gaps is first tested. To take a lock and let it go again would wake callers that wait for the
 * owner's locks beside it, and one of these could then find that it closes a cycle (EDEADLK), which this call must
 * find.
 */
static int reclock_take_missing(struct record_call *r, bool look, struct stretch *busy)
{
	int ret;

	*busy = (struct stretch){0};
	while (look && r->call.want->mode == WIRE_SHARED && r->own.count && reclock_next_missing(r, busy))
		if (reclock_is_busy(r, busy))
			return -EAGAIN;
	for (*busy = (struct stretch){0}; reclock_next_missing(r, busy); reclock_add_taken(r, busy)) {
		ret = reclock_set(r, intent_type(r->call.want), busy, false);
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
		/* Noted first: this thread may be cancelled in the call. */
		reclock_add_taken(r, &busy);
		ret = reclock_set(r, intent_type(r->call.want), &busy, true);
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

	/* The cancellation point that a waiting lock call is. */
	if (!c->want->nonblock && !c->want->raw && pthread_testcancel)
		pthread_testcancel();
	ret = reclock_learn_here(r);
	if (ret != 0)
		return ret;
	ret = reclock_take_missing(r, true, &busy);
	/* One thing may have changed since the kernel was asked: the lock that was found may be gone, or be another
	 * thread's. */
	if (ret == 0 && c->want->mode == WIRE_SHARED && r->own.count && !r->own.exclusive)
		ret = reclock_set(r, F_RDLCK, &busy, false);
	if (ret == 0) {
		c->have = true;
		return 0;
	}
	undone = reclock_put_back(c);
	own_release(&r->own);
	r->learnt = false;
	return undone < 0 ? undone : ret;
}

static int reclock_finish(struct call *c)
{
	const struct record_call *r = (const struct record_call *)c;
	const struct stretch all = {.first = r->own.first, .last = r->own.last};

	return c->want->mode == WIRE_SHARED && r->own.exclusive ? reclock_set(r, F_RDLCK, &all, false) : 0;
}

/* --- the call --- */

/* The cleanup handler of a cancelled thread. */
static void reclock_abandon(void *arg)
{
	struct record_call *r = arg;

	ask_close(&r->call.ask);
	reclock_put_back(&r->call);
	own_release(&r->own);
}

int acquire_record(int fd, const struct intent *want, struct protect_look *look)
{
	static const struct call_taking reclock_taking = {.try = reclock_try,
							  .check = reclock_check,
							  .learn = reclock_learn,
							  .take = reclock_take,
							  .let_go = reclock_put_back,
							  .finish = reclock_finish};
	struct oldlibc_cleanup cleanup;
	struct record_call r;
	struct flock64 lock;
	int ret;

	/* Not all of it: the list of earlier locks is large, and this is part of each lock call. */
	r.call = (struct call){.answer = acquire_answer,
			       .taking = &reclock_taking,
			       .fd = fd,
			       .want = want,
			       .look = look,
			       .ask.sock = -1};
	r.learnt = r.taken.any = false;
	own_init(&r.own, want->first, want->last);
	if (want->nonblock || want->raw || !_pthread_cleanup_push || real_single_threaded()) {
		ret = acquire(&r.call);
	} else {
		_pthread_cleanup_push(&cleanup, reclock_abandon, &r);
		ret = acquire(&r.call);
		_pthread_cleanup_pop(&cleanup, 0);
	}
	own_release(&r.own);
	if (ret != ASK_NETTED)
		return ret;
	/* The net's supervisor does all of it. No cancellation point. */
	lock = intent_lock(intent_type(want), want->first, want->last);
	return (int)sys_fcntl(fd, intent_command(want, false, !want->nonblock), &lock);
}
