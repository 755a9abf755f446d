/* See want.h. */
#include "net/want.h"

#include <errno.h>
#include <linux/kcmp.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim/protect.h"
#include "wire/sys.h"

/* Does the kernel refuse such a lock by the way in which the file was opened? */
static bool want_is_refused(const struct want *want, const struct lockcall *call)
{
	const long mode = sys_fcntl(want->fd, F_GETFL, 0L) & O_ACCMODE;

	if (call->kind != LOCKCALL_TAKE)
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
		if (ret < 0)
			return ret == -EFAULT ? WANT_KERNEL : ret;
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

int want_resolve(struct want *want, const struct lockcall *call)
{
	int ret;

	if (call->kind == LOCKCALL_FLOCK)
		return intent_flock(call->op, &want->intent) ? 0 : -EINVAL;
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
		    want_resolve(&now, call) == 0 && now.intent.mode == want->intent.mode &&
		    now.intent.from >= want->intent.from && now.intent.to <= want->intent.to;

	want_close(&now);
	return same;
}
