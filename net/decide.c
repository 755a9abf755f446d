/*
 * See decide.h. Why two hosts cannot both succeed: the keeper writes the call down as under way before it answers WIRE_GRANTED, and
 * its host's lease stays until it has seen the thread out of the call (wire/msg.h). Only a call with that answer is
 * continued; and one whose file is not protected. What cannot be found out is refused.
 */
#include "net/decide.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>

#include "net/ground.h"
#include "net/lockcall.h"
#include "net/shared.h"
#include "net/thread.h"
#include "procfs/procfs.h"
#include "shim/ask.h"
#include "shim/call.h"
#include "shim/name.h"
#include "shim/note.h"
#include "shim/protect.h"
#include "shim/report.h"
#include "wire/sys.h"

/* --- F_GETLK and its kin: a lock of another host is written into the program's memory, and the call succeeds. Else the kernel is to
 * say what local lock is in the way. Nothing is taken, so an answer that gets lost does no harm. --- */

/* If this process dies between the two steps, the other one must not take the answer for the question. */
static int decide_write(struct caught *caught, struct thread *t, const struct lockcall *call, const struct want *want,
			const struct flock64 *found)
{
	const size_t size = lockcall_form_bytes(call->form);
	unsigned char bytes[LOCKCALL_BYTES] = {0};
	int ret = thread_read(t, call->at, bytes, size);

	if (ret == 0)
		ret = thread_may_write(t, call->at, size);
	if (ret == 0)
		ret = lockcall_print(call->form, found, bytes);
	if (ret < 0)
		return ret;
	caught->question = want->lock;
	__atomic_store_n(&caught->has_question, true, __ATOMIC_RELEASE);
	return thread_write(t, call->at, bytes, size);
}

/* An answer as decide() gives it; -ENOLCK after a line; another -errno: a look has failed. *look is that of ground_look(), and *want is
 * resolved. */
static int decide_test(struct caught *caught, struct thread *t, const struct lockcall *call, struct want *want,
		       struct protect_look *look)
{
	struct flock64 found;
	struct behalf behalf;
	struct ask ask;
	int ret;

	switch (protect_ask(want->fd, look)) {
	case PROTECT_NO:
		return DECIDE_CONTINUE;
	case PROTECT_REFUSED:
		return -ENOLCK;
	case PROTECT_ASK:
		break;
	}
	want->intent.nonblock = true; /* a test never waits */
	ret = behalf_begin(&behalf, t, &ask);
	if (ret == 0)
		ret = blocker_ask(&ask, want->fd, &want->intent, look, &found);
	behalf_end(&behalf);
	if (ret <= 0)
		return ret < 0 ? ret : DECIDE_CONTINUE;
	return decide_write(caught, t, call, want, &found);
}

/* --- caught calls on protected files in the job's tally (wire/tally.h), for `dflock run --report` and `--require=taken`. What the kernel
 * then says to a call that was let go on, no supervisor knows. --- */

/* Looked for once, at the first call: the process that has made it waits for the job. */
static pthread_once_t tally_once = PTHREAD_ONCE_INIT;
static struct tally *job_tally;

static void decide_open_tally(void)
{
	job_tally = report_map(getenv(TALLY_ENV));
}

/* This call was decided: 0, it goes on with a grant; or it fails with -errno. busy: because another host has the lock. */
static void decide_count(const struct thread *t, const struct want *want, int ret, bool busy)
{
	char path[PATH_MAX];
	const struct tally_key key = {.program = t->command, .path = path, .space = want->intent.space};
	struct tally_entry *entry;

	pthread_once(&tally_once, decide_open_tally);
	if (!job_tally || name_read(want->fd, path) != 0)
		return;
	entry = tally_find(job_tally, &key);
	if (!entry)
		return;
	tally_add(entry, ret == 0 ? TALLY_CAUGHT : TALLY_CAUGHT_FAILED, 1); /* mutant: count-caught */
	if (busy)
		tally_add(entry, TALLY_CAUGHT_BUSY, 1);
}

/* Begin with the look at the descriptor. Not an errno. */
#define DECIDE_ANEW 3

/* How often a grant may have ended before the call could be continued. */
#define LATE_GRANTS 100

/* After a shorter time than this, the look at the descriptor counts still: the kernel, too, looks only once. */
#define LOOK_AGAIN_NS (10 * INT64_C(1000000))

/* How many descriptors a call that asks the keeper may need, and how many are left to all calls that do not ask. */
#define DESCRIPTORS_EACH   5
#define DESCRIPTORS_OTHERS 16

struct decision {
	struct call call; /* first: it is what the operations get */
	const struct thread *of;
	const struct want *want;
	bool told; /* which local processes are in the way */
	int64_t until_ns;
};

/* As the kernel does in a conversion that waits or fails. A record lock that is converted stays. For a thread that was killed meanwhile,
 * nothing is unlocked: another process may have locked the description since. */
static int decide_let_go(struct call *c)
{
	if (c->want->space != WIRE_FLOCK)
		return 0;
	if (!thread_is_in_call(((struct decision *)c)->of))
		return -ESRCH;
	flock(c->fd, LOCK_UN);
	return 0;
}

/* Nothing is taken here: the kernel goes on with the call. */
static int decide_try(struct call *c)
{
	(void)c;
	return CALL_AGAIN;
}

static int decide_learn(struct call *c, const struct wire_reply *granted)
{
	((struct decision *)c)->until_ns = granted->until_ns;
	if (c->late++ < LATE_GRANTS)
		return 0;
	note_refused(c->fd, "the keeper's grants have ended before they come; this machine has too much to do");
	return -ENOLCK;
}

/*
 * Takes nothing, too: the kernel does, after the supervisor's last look. With DFLOCK_VERBOSE, a line says which local processes the kernel
 * will wait for, or fail because of. acquire() first takes as if the call did not wait (c->want), and then tells by itself.
 */
static int decide_take(struct call *c)
{
	struct decision *d = (struct decision *)c;

	if (!c->want->nonblock || d->told || !blocker_tells() ||
	    !want_is_taken(d->want, d->of)) /* mutant: net-verbose */
		return 0;
	d->told = true;
	if (!d->want->intent.nonblock)
		return -EWOULDBLOCK;
	blocker_tell(c);
	return 0;
}

/* An error of a look: what the call may fail with, or -ENOLCK after a line. */
static int decide_error(int fd, int ret)
{
	if (ret >= 0 || ret == -ESRCH || ret == -EINVAL || ret == -EOVERFLOW || ret == -EFAULT || ret == -ENOLCK)
		return ret;
	errno = -ret;
	note_refused(fd, "what its thread locks cannot be found out: %m");
	return -ENOLCK;
}

/* Calls that ask the keeper may wait for long. They leave descriptors to those that need not wait, as to unlock: else these would fail. */
static int decide_acquire(struct call *c)
{
	static unsigned asking;
	struct rlimit limit;
	const unsigned now = __atomic_add_fetch(&asking, 1, __ATOMIC_RELAXED);
	int ret = -ENOLCK;

	if (now == 1 || getrlimit(RLIMIT_NOFILE, &limit) < 0 ||
	    now * DESCRIPTORS_EACH + DESCRIPTORS_OTHERS <= limit.rlim_cur)
		ret = acquire(c);
	else
		note_refused(c->fd,
			     "too many lock calls wait below this net: raise the limit of descriptors (ulimit -Hn)");
	__atomic_fetch_sub(&asking, 1, __ATOMIC_RELAXED);
	return ret;
}

static int decide_call(struct thread *t, const struct lockcall *call, struct want *want, struct protect_look *look,
		       int64_t *until_ns)
{
	static const struct call_taking taking = {
		.try = decide_try, .learn = decide_learn, .take = decide_take, .let_go = decide_let_go};
	struct decision d = {
		.call = {.answer = acquire_answer,
			 .taking = &taking,
			 .fd = want->fd,
			 .want = &want->intent,
			 .look = look},
		.of = t,
		.want = want,
	};
	const int64_t since_ns = sys_kernel_clock_ns(CLOCK_MONOTONIC);
	struct behalf behalf;
	int ret = behalf_begin(&behalf, t, &d.call.ask);

	if (ret == 0)
		ret = decide_acquire(&d.call);
	else
		ret = decide_error(want->fd, ret);
	behalf_end(&behalf);
	if (behalf.gone)
		return DECIDE_GONE;
	/* Without a signal for T, it goes on waiting. */
	if (ret == -EINTR)
		ret = behalf.signalled ? -DECIDE_RESTARTSYS : DECIDE_ANEW;
	if (ret == 0 || (ret < 0 && ret != -DECIDE_RESTARTSYS && ret != -ESRCH))
		decide_count(t, want, ret, ret == -EWOULDBLOCK && !look->refused);
	if (ret != 0 && ret != CALL_KERNEL)
		return ret;
	if (sys_kernel_clock_ns(CLOCK_MONOTONIC) - since_ns >= LOOK_AGAIN_NS && !want_is_same(want, t, call))
		return DECIDE_ANEW;
	*until_ns = ret == CALL_KERNEL ? 0 : d.until_ns;
	return DECIDE_CONTINUE;
}

/* A call whose lock cannot be known. */
static bool decide_is_kernels(const struct want *want, struct protect_look *look)
{
	return protect_is_kernels(want->fd) || (want->unread && protect_ask(want->fd, look) == PROTECT_NO);
}

/* What is found out of the call, and what follows. The copy in *want stays open. */
static int decide_look(struct caught *caught, struct thread *t, const struct lockcall *call, struct want *want,
		       int64_t *until_ns)
{
	struct protect_look look;
	bool elsewhere;
	int ret = want_open(want, t, call, caught->has_question ? &caught->question : NULL);

	if (ret != 0)
		return ret == WANT_KERNEL ? DECIDE_CONTINUE : decide_error(want->fd, ret);
	elsewhere = thread_is_elsewhere(t);
	if (!thread_is_in_call(t))
		return DECIDE_GONE;
	ret = ground_look(want->fd, &look, elsewhere);
	if (ret != 0)
		return ret == GROUND_KERNEL ? DECIDE_CONTINUE : ret;
	/* A bad range is refused here: the file may grow before the kernel looks, and then it would accept the range. */
	ret = want_resolve(want, t, call);
	if (ret < 0)
		return decide_is_kernels(want, &look) ? DECIDE_CONTINUE : decide_error(want->fd, ret);
	if (call->kind == LOCKCALL_TEST)
		return decide_error(want->fd, decide_test(caught, t, call, want, &look));
	return decide_call(t, call, want, &look, until_ns);
}

static int decide_for(struct caught *caught, struct thread *t, const struct lockcall *call, int64_t *until_ns)
{
	struct want want;
	int ret;

	do {
		*until_ns = 0;
		ret = decide_look(caught, t, call, &want, until_ns);
		want_close(&want);
	} while (ret == DECIDE_ANEW);
	return ret;
}

/*
 * Nothing that is done before waits for a user's memory or file. A user whose calls waited in all places would keep those of the others
 * from being received.
 */
static int decide_admit(struct caught *caught, const struct thread *t)
{
	struct procfs_status status;
	const bool known = geteuid() == 0 && procfs_status_read(t->tid, &status);

	if (!thread_is_in_call(t))
		return -ESRCH;
	if (!known || !status.uids[0] || shared_count(caught, status.uids[0]))
		return 0;
	note_line(-1, "lock refused: this user has more than its share of the lock calls that may wait below this net");
	return -ENOLCK;
}

int decide(struct caught *caught, int listener, int64_t *until_ns)
{
	struct lockcall call;
	struct thread t;
	int ret;

	*until_ns = 0;
	lockcall_read(&caught->notif.data, &call);
	if (call.kind == LOCKCALL_OTHER)
		return DECIDE_CONTINUE;
	if (call.kind == LOCKCALL_HELLO)
		return caught->notif.data.args[3] == netted_ground() ? 0 : -EEXIST;
	ret = thread_open(&t, listener, &caught->notif);
	note_out_for(&t);
	if (ret == 0)
		ret = decide_admit(caught, &t);
	ret = ret == 0 ? decide_for(caught, &t, &call, until_ns) : decide_error(-1, ret);
	note_out_for(NULL);
	thread_close(&t);
	return ret == -ESRCH ? DECIDE_GONE : ret;
}
