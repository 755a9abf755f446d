/* See decide.h. */
#include "net/decide.h"

#include <errno.h>
#include <linux/kcmp.h>
#include <sys/stat.h>
#include <unistd.h>

#include "procfs/procfs.h"
#include "shim/protect.h"
#include "wire/sys.h"

/* Does the kernel refuse such a lock by the way in which the file was opened? */
static bool want_is_refused(const struct want *want, const struct lockcall *call)
{
	const long mode = sys_fcntl(want->fd, F_GETFL, 0L) & O_ACCMODE;

	if (call->kind != LOCKCALL_TAKE || want->unread)
		return false;
	return want->lock.l_type == F_RDLCK ? mode == O_WRONLY : mode == O_RDONLY;
}

static int want_read_lock(struct want *want, struct thread *t, const struct lockcall *call, const struct flock64 *known)
{
	unsigned char bytes[LOCKCALL_BYTES];
	int ret;

	if (known) {
		want->lock = *known;
	} else {
		ret = thread_read(t, call->at, bytes, lockcall_form_bytes(call->form));
		want->unread = ret == -EFAULT;
		if (ret < 0)
			return want->unread ? 0 : ret;
		want->lock = lockcall_parse(call->form, bytes);
	}
	/* F_UNLCK; or a kind that the kernel does not know. */
	if (want->lock.l_type != F_RDLCK && want->lock.l_type != F_WRLCK)
		return WANT_KERNEL;
	return call->owner == WIRE_OWNER_DESCRIPTION && want->lock.l_pid != 0 ? WANT_KERNEL : 0;
}

int want_open(struct want *want, struct thread *t, const struct lockcall *call, const struct flock64 *known)
{
	int ret = 0;

	*want = (struct want){.fd = -1};
	if (call->kind == LOCKCALL_FLOCK && !intent_is_flock(call->op))
		return WANT_KERNEL;
	if (call->kind != LOCKCALL_FLOCK)
		ret = want_read_lock(want, t, call, known);
	if (ret != 0)
		return ret;
	want->fd = thread_copy(t, call->fd);
	if (want->fd < 0)
		return want->fd == -EBADF ? WANT_KERNEL : want->fd;
	return protect_kernel_refuses(want->fd) || want_is_refused(want, call) ? WANT_KERNEL : 0;
}

void want_close(struct want *want)
{
	if (want->fd >= 0)
		close(want->fd);
	want->fd = -1;
}

/*
 * The kernel looks at the end of the file once more when the call goes on, and the file may have grown until then. So a lock that
 * counts from there is asked for up to the end of all files. A file that shrinks meanwhile is not thought of: its program cannot
 * know either which bytes it locks.
 */
static void want_widen(struct intent *intent)
{
	intent->to = WIRE_EOF;
	intent->last = INTENT_LAST;
}

/* The kernel is to say nothing here: it may read what this process cannot, and take a lock that nobody knows. */
static int want_unread(const struct thread *t, const struct lockcall *call)
{
	const int ret = thread_may_read(t, call->at, lockcall_form_bytes(call->form));

	return ret == 0 ? -EIO : ret;
}

int want_resolve(struct want *want, const struct thread *t, const struct lockcall *call)
{
	int ret;

	if (call->kind == LOCKCALL_FLOCK)
		return intent_flock(call->op, &want->intent) ? 0 : -EINVAL;
	if (want->unread)
		return want_unread(t, call);
	want->intent = (struct intent){.owner = call->owner, .nonblock = !call->waits};
	ret = intent_record(want->fd, &want->lock, &want->intent);
	if (ret == 0 && call->kind == LOCKCALL_TAKE && want->lock.l_whence == SEEK_END)
		want_widen(&want->intent);
	return ret;
}

static bool want_is_same_file(int one, int other)
{
	const pid_t me = getpid();
	struct stat st[2];
	long ret = sys_raw(SYS_kcmp, me, me, KCMP_FILE, one, other);

	if (ret >= 0)
		return ret == 0;
	/* A kernel without kcmp(). */
	return fstat(one, &st[0]) == 0 && fstat(other, &st[1]) == 0 && st[0].st_dev == st[1].st_dev &&
	       st[0].st_ino == st[1].st_ino;
}

bool want_is_same(const struct want *want, struct thread *t, const struct lockcall *call)
{
	struct want now;
	bool same = want_open(&now, t, call, NULL) == 0 && want_is_same_file(want->fd, now.fd) &&
		    want_resolve(&now, t, call) == 0 && now.intent.mode == want->intent.mode &&
		    now.intent.from >= want->intent.from && now.intent.to <= want->intent.to;

	want_close(&now);
	return same;
}

/* --- what is in the way on this machine --- */

struct want_taken {
	const struct intent *intent;
	struct procfs_fdinfo info; /* of the copy */
	uint64_t dev, ino;         /* the kernel's number of the file */
	pid_t process;             /* of the thread */
	int others;                /* locks in the way that are not the owner's */
};

static int want_find_device(void *arg, const struct procfs_mount *mount)
{
	struct want_taken *taken = arg;

	if (mount->id != taken->info.mount_id)
		return 0;
	taken->dev = mount->dev;
	return 1;
}

static bool want_conflicts(const struct want_taken *taken, const struct procfs_lock *lock)
{
	const struct intent *intent = taken->intent;

	return lock->space == intent->space && lock->from < intent->to && intent->from < lock->to &&
	       (lock->mode == WIRE_EXCLUSIVE || intent->mode == WIRE_EXCLUSIVE);
}

static int want_count(void *arg, const struct procfs_lock *lock)
{
	struct want_taken *taken = arg;
	const bool own = lock->owner == WIRE_OWNER_PROCESS && taken->intent->owner == WIRE_OWNER_PROCESS &&
			 lock->locker == taken->process; /* mutant: want-own */

	taken->others += lock->dev == taken->dev && lock->ino == taken->ino && !own && want_conflicts(taken, lock);
	return 0;
}

/* The description's own locks are in the list of all, too. */
static int want_discount(void *arg, const struct procfs_lock *lock)
{
	struct want_taken *taken = arg;

	taken->others -= want_conflicts(taken, lock); /* mutant: want-description */
	return 0;
}

bool want_is_taken(const struct want *want, const struct thread *t)
{
	struct want_taken taken = {.intent = &want->intent};
	struct procfs_status status;
	struct stat st;
	FILE *mounts;
	int ret;

	if (fstat(want->fd, &st) < 0 || !procfs_status_read(t->tid, &status) ||
	    procfs_fdinfo_of(want->fd, &taken.info, want_discount, &taken) != 0)
		return false;
	taken.process = status.process;
	taken.dev = st.st_dev;
	taken.ino = taken.info.ino ? taken.info.ino : st.st_ino;
	mounts = procfs_mounts_open(0);
	if (mounts) {
		procfs_mounts(mounts, want_find_device, &taken);
		fclose(mounts);
	}
	ret = procfs_locks(want_count, &taken);
	return (ret == 0 || ret == -EAGAIN) && taken.others > 0;
}
