/* See inspect.h. Everything here except inspect_start() and done() may run in a worker, and touches only its
 * arguments. */
#include "keeper/kernel/inspect.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/fsuid.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "keeper/kernel/getlk.h"
#include "keeper/kernel/mounts.h"
#include "keeper/kernel/refind.h"
#include "wire/page.h"

struct inspect {
	struct work work; /* the first member */
	struct inspect_request request;
	inspect_cb *cb;
	void *arg;
	struct inspect_result result;
};

static void inspect_refuse(struct inspect_result *r, const char *what, int err)
{
	snprintf(r->refused, sizeof(r->refused), "%s%s%s", what, err ? ": " : "", err ? strerror(err) : "");
}

static int inspect_on_lock(void *arg, const struct procfs_lock *lock)
{
	struct caller_holds *holds = arg;

	if (lock->space == WIRE_FLOCK && lock->mode == WIRE_EXCLUSIVE)
		holds->exclusive = true;
	else if (lock->space == WIRE_FLOCK)
		holds->shared = true;
	return 0;
}

/* 0 or -errno. A name that was cut off counts as none. */
static int inspect_read_link(const char *link, char name[PATH_MAX])
{
	ssize_t len = readlink(link, name, PATH_MAX - 1);

	if (len < 0)
		return -errno;
	if (len >= PATH_MAX - 1)
		return -ENAMETOOLONG;
	name[len] = '\0';
	return 0;
}

/* Reads what the file is, and its name as the kernel has it. */
static int inspect_read_name(const struct inspect_request *req, const char *link, struct stat *st, char name[PATH_MAX])
{
	bool was_gone, gone = false;
	size_t before;
	int ret;

	/* When the name was read, the file still had it. */
	*st = req->seen.st;
	if (st->st_ino && st->st_nlink > 0) {
		ret = inspect_read_link(link, name);
		if (ret < 0 || !procfs_is_deleted(name, &before))
			return ret;
	}
	do { /* lock files are often deleted: the name of a deleted file must be read after the deletion */
		was_gone = gone;
		ret = inspect_read_link(link, name);
		if (fstat(req->fd, st) != 0)
			return -errno;
		gone = st->st_nlink == 0;
	} while (gone && !was_gone);
	return ret;
}

static bool inspect_path_leads_there(const struct inspect_result *r)
{
	struct stat st;

	return stat(r->path, &st) == 0 && st.st_dev == r->st.st_dev && st.st_ino == r->st.st_ino;
}

/* If that is part of the name, the path leads to the file. The link count alone does not tell: the file may have another name. */
static void inspect_cut_deleted(struct inspect_result *r)
{
	size_t before;

	r->deleted = r->st.st_nlink == 0;
	if (!procfs_is_deleted(r->path, &before) || r->named_late || (!r->deleted && inspect_path_leads_there(r)))
		return;
	r->deleted = true;
	r->path[before] = '\0';
}

/* Made by O_TMPFILE, or the description opened anew from /proc: the kernel calls such a file "#INODE" and deleted, also once
 * it has a name. */
static bool inspect_is_temporary(const struct inspect_request *req, const struct inspect_result *r)
{
	const char *name = strrchr(r->path, '/');
	unsigned long long inode;
	size_t before;
	int flags, end = 0;

	if (!procfs_is_deleted(r->path, &before))
		return false;
	flags = fcntl(req->fd, F_GETFL);
	if (flags >= 0 && (flags & O_TMPFILE) == O_TMPFILE)
		return true;
	return name && sscanf(name, "/#%llu (deleted)%n", &inode, &end) == 1 && end && !name[end] &&
	       inode == r->st.st_ino;
}

#ifdef SYS_setgroups32
#define SETGROUPS SYS_setgroups32
#else
#define SETGROUPS SYS_setgroups
#endif

/* For this thread only: libc's setgroups() would change all threads. */
static int inspect_set_groups(const gid_t *groups, size_t count)
{
	return syscall(SETGROUPS, count, groups) == 0 ? 0 : -errno;
}

static int inspect_own_groups(gid_t **groups)
{
	int count = getgroups(0, NULL);

	*groups = count < 0 ? NULL : malloc((size_t)(count + 1) * sizeof(**groups));
	return *groups ? getgroups(count, *groups) : -1;
}

/* Any other open() for reading breaks such a lease (F_SETLEASE), and the kernel gives it only to a file's only description. */
static bool inspect_would_break(const struct inspect_request *req)
{
	return fcntl(req->fd, F_GETLEASE) == F_WRLCK; /* mutant: file-lease */
}

/* Opens with the rights of the user who passed the descriptor: file system ids and groups belong to the thread. */
static int inspect_reopen(const struct inspect_request *req)
{
	int ret = -EPERM, own_count;
	gid_t *own;

	if (!req->foreign || geteuid() != 0)
		return refind_description(req->fd);
	own_count = inspect_own_groups(&own);
	if (own_count < 0 || inspect_set_groups(req->groups, req->group_count) < 0) {
		free(own);
		return -EPERM;
	}
	setfsgid(req->peer.gid);
	setfsuid(req->peer.uid);
	/* -1 only asks. Root without CAP_SETUID would open it with more rights than the user has. */
	if ((uid_t)setfsuid(-1) == req->peer.uid && (gid_t)setfsgid(-1) == req->peer.gid)
		ret = refind_description(req->fd);
	setfsuid(geteuid());
	setfsgid(getegid());
	if (inspect_set_groups(own, (size_t)own_count) < 0)
		abort(); /* a worker must not go on with the wrong rights: a fresh keeper does better */
	free(own);
	return ret;
}

/* A user could pass /var/lock/x from a mount in a namespace of the user's own: then the keeper's path leads elsewhere.
 * If no path leads to the file any more, only the mount tells. */
static bool inspect_path_is_ours(const struct inspect_result *r, int mount_id)
{
	return r->deleted ? identity_mount_is_ours(mount_id) : inspect_path_leads_there(r);
}

/* Would another lock be in the way of this one? */
static bool inspect_record_in_the_way(int fd, const struct inspect_request *req, enum wire_mode mode)
{
	struct store_range found;
	int ret = getlk_ask(fd, &(struct store_range){.mode = mode, .from = req->from, .to = req->to}, &found);

	return ret == 1 || ret == -EAGAIN;
}

/* flock: taken and dropped at once on a description of its own: shared works while others have it shared, exclusive
 * does not. Records: the kernel can be asked without taking anything. */
static bool inspect_test_shared(const struct inspect_request *req)
{
	int fd = inspect_reopen(req);
	bool in_use = false;

	if (fd < 0)
		return false;
	if (req->space == WIRE_RECORD)
		in_use = !inspect_record_in_the_way(fd, req, WIRE_SHARED) &&
			 inspect_record_in_the_way(fd, req, WIRE_EXCLUSIVE);
	else if (flock(fd, LOCK_SH | LOCK_NB) == 0)
		in_use = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
	close(fd);
	return in_use;
}

/* The kernel takes a record lock only on a description that is open for it (EBADF), and libdflock does not ask then. So only a
 * user who makes up questions would get a lease here that the kernel keeps from it. flock() takes any description. */
static bool inspect_may_lock(const struct inspect_request *req)
{
	int wrong = req->mode == WIRE_SHARED ? O_WRONLY : O_RDONLY, flags;

	if (!req->takes || req->space == WIRE_FLOCK)
		return true;
	flags = fcntl(req->fd, F_GETFL);
	return flags >= 0 && !(flags & O_PATH) && (flags & O_ACCMODE) != wrong; /* mutant: may-lock */
}

/* What the path tells of the file. False: it may not be served. */
static bool inspect_path(const struct inspect_request *req, struct inspect_result *r, int mount_id, bool gone)
{
	struct statfs fs = {.f_type = 0};

	if (!gone && !req->foreign && (!req->same_path || identity_mount_is_ours(mount_id)))
		return true;
	if (inspect_path_is_ours(r, mount_id))
		return true;
	if (gone && fstatfs(req->fd, &fs) == 0)
		r->gone_type = PAGE_COVERED_TYPE | (uint32_t)fs.f_type;
	else if (gone)
		inspect_refuse(r, "what its file system is cannot be found out", errno);
	else
		inspect_refuse(r,
			       "its path leads the keeper to another file or to none; in a container, mount its folder "
			       "from the host under the same path, or run a keeper in the container",
			       0);
	return r->gone_type != 0;
}

/* The file's name, and what kind of file it is. False: it may not be served, or has no name. */
static bool inspect_name(const struct inspect_request *req, struct inspect_result *r)
{
	char link[64];
	int ret;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", req->fd);
	ret = inspect_read_name(req, link, &r->st, r->path);
	if (ret == -ENAMETOOLONG) {
		r->path[0] = '\0';
		r->nameless = true;
	} else if (ret < 0) {
		inspect_refuse(r, "its path cannot be read", -ret);
	} else if (!S_ISREG(r->st.st_mode) && !S_ISDIR(r->st.st_mode)) {
		inspect_refuse(r, "neither a regular file nor a directory", 0);
	} else if (r->path[0] != '/') {
		inspect_refuse(r, "its path cannot be read", EINVAL);
	} else if (inspect_is_temporary(req, r)) {
		r->named_late = r->st.st_nlink > 0;
		r->nameless = !r->named_late;
	}
	if (r->nameless || *r->refused)
		return false;
	inspect_cut_deleted(r);
	return true;
}

/* The path of a file that was opened by its handle while no path to it was in memory. */
static bool inspect_is_root_of_its_own(const struct inspect_result *r)
{
	return !S_ISDIR(r->st.st_mode) && strcmp(r->path, "/") == 0;
}

/* Which file it is for the kernel, and what its description has. False: that cannot be seen. */
static bool inspect_fdinfo(const struct inspect_request *req, struct inspect_result *r, int *mount_id, bool *gone)
{
	struct procfs_fdinfo info = {.mount_id = -1};
	int ret = 0;

	if (!req->foreign && req->seen.id.ino && (req->unused || (req->known && req->space == WIRE_RECORD))) {
		r->id = req->seen.id;
	} else if (req->foreign || !req->known || req->space == WIRE_FLOCK) {
		ret = procfs_fdinfo_of(req->fd, &info, inspect_on_lock, &r->holds);
		if (ret < 0)
			inspect_refuse(r, "its fdinfo cannot be read", -ret);
		else
			r->id = identity_from(&info, req->peer.pid, &r->st, gone);
		if (req->unused)
			r->holds = (struct caller_holds){0};
	}
	*gone |= inspect_is_root_of_its_own(r);
	*mount_id = info.mount_id;
	return ret >= 0;
}

static void inspect_look(const struct inspect_request *req, struct inspect_result *r)
{
	bool gone = false;
	int mount_id, ret;

	if (!inspect_may_lock(req))
		return inspect_refuse(r,
				      req->mode == WIRE_SHARED ? "the descriptor is not open for reading"
							       : "the descriptor is not open for writing",
				      0);
	if (!req->known && inspect_would_break(req))
		return inspect_refuse(r, "it has a lease of the kernel (F_SETLEASE), which the keeper would break", 0);
	if (!inspect_name(req, r) || !inspect_fdinfo(req, r, &mount_id, &gone) || !inspect_path(req, r, mount_id, gone))
		return;
	if (req->space == WIRE_RECORD && req->owner == WIRE_OWNER_DESCRIPTION && !req->test_shared) {
		ret = own_of_description(&r->before, req->fd);
		if (ret < 0)
			return inspect_refuse(
				r,
				"the keeper cannot see which locks the program has, which it needs to undo a failed call",
				-ret);
	}
	if (req->test_shared)
		r->shared_in_use = inspect_test_shared(req);
	if (req->known)
		return;
	ret = inspect_reopen(req);
	if (ret < 0)
		return inspect_refuse(r, "the keeper cannot open it again", -ret);
	r->fd = ret;
}

struct holders_file inspect_file(const struct inspect_result *r)
{
	return (struct holders_file){
		.dev = r->st.st_dev, .ino = r->st.st_ino, .kernel_dev = r->id.dev, .kernel_ino = r->id.ino};
}

static bool inspect_read_status(int fd, struct statx *stx)
{
	return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO | STATX_TYPE | STATX_NLINK, stx) == 0;
}

static bool inspect_is_file(const struct statx *stx)
{
	return S_ISREG(stx->stx_mode) || S_ISDIR(stx->stx_mode);
}

enum inspect_ground inspect_ground(struct mounts *mounts, int fd, uint64_t *dev, struct inspect_seen *seen)
{
	struct statx stx;
	uint64_t ino;

	*seen = (struct inspect_seen){0};
	if (!mounts_local(mounts, fd, dev, &ino) || !inspect_read_status(fd, &stx))
		return INSPECT_AWAY;
	seen->id = (struct identity){.dev = *dev, .ino = ino ? ino : stx.stx_ino};
	*dev = makedev(stx.stx_dev_major, stx.stx_dev_minor);
	seen->st.st_dev = *dev;
	seen->st.st_ino = stx.stx_ino;
	seen->st.st_mode = stx.stx_mode;
	seen->st.st_nlink = stx.stx_nlink;
	return inspect_is_file(&stx) ? INSPECT_LOCAL : INSPECT_NO_FILE;
}

bool inspect_is_no_file(int fd)
{
	struct statx stx;

	return inspect_read_status(fd, &stx) && !inspect_is_file(&stx);
}

/* The groups that count are those of the peer when it connected, as is its uid. */
int inspect_peer_groups(int socket, struct inspect_request *request)
{
	socklen_t len = 0;

	if (getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, NULL, &len) == 0)
		return 0; /* none */
	request->groups = errno == ERANGE ? malloc(len) : NULL;
	if (!request->groups || getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, request->groups, &len) != 0)
		return -1;
	request->group_count = len / sizeof(gid_t);
	return 0;
}

int inspect_here(const struct inspect_request *request, struct inspect_result *result)
{
	*result = (struct inspect_result){.fd = -1};
	inspect_look(request, result);
	if (*result->refused)
		own_free(&result->before);
	return *result->refused ? -1 : 0;
}

int inspect_now(const struct inspect_request *request, struct inspect_result *result)
{
	int ret = inspect_here(request, result);

	close(request->fd);
	free(request->groups);
	return ret;
}

static void inspect_run(struct work *work)
{
	struct inspect *job = (struct inspect *)work;

	inspect_now(&job->request, &job->result);
}

static void inspect_done(struct work *work)
{
	struct inspect *job = (struct inspect *)work;

	job->cb(job->arg, &job->result);
	free(job);
}

struct inspect *inspect_start(struct workers *workers, uint64_t dev, const struct inspect_request *request,
			      inspect_cb *cb, void *arg)
{
	struct inspect *job = calloc(1, sizeof(*job));

	if (job) {
		*job = (struct inspect){
			.work = {.run = inspect_run, .done = inspect_done}, .request = *request, .cb = cb, .arg = arg};
		/* Nothing may be set after this: the worker runs. */
		if (workers_start(workers, dev, &job->work) == 0)
			return job;
	}
	free(job);
	return NULL;
}
