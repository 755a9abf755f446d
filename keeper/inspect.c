/* See inspect.h. Everything here but inspect_start() and done() may run in a worker and touches its arguments alone. */
#include "keeper/inspect.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/fsuid.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "keeper/mounts.h"

struct inspect {
	struct work work; /* the first member */
	struct inspect_request request;
	inspect_cb *cb;
	void *arg;
	struct inspect_result result;
};

static void refuse(struct inspect_result *r, const char *what, int err)
{
	snprintf(r->refused, sizeof(r->refused), "%s%s%s", what, err ? ": " : "", err ? strerror(err) : "");
}

/* The lines "lock:\t1: FLOCK  ADVISORY  WRITE ..." of a descriptor's fdinfo are its own description's. */
static int read_fdinfo(int fd, struct caller_holds *holds, int *mount_id)
{
	char path[64], text[4096];
	ssize_t n;
	int info;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	info = open(path, O_RDONLY | O_CLOEXEC);
	if (info < 0)
		return -errno;
	n = read(info, text, sizeof(text) - 1); /* the flock lines come first, and there is one at the most */
	close(info);
	if (n < 0)
		return -errno;
	text[n] = '\0';
	*mount_id = -1;
	for (char *save, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		sscanf(line, "mnt_id: %d", mount_id);
		if (strncmp(line, "lock:", 5) != 0 || !strstr(line, " FLOCK "))
			continue;
		holds->exclusive |= strstr(line, " WRITE ") != NULL;
		holds->shared |= strstr(line, " READ ") != NULL;
	}
	return 0;
}

/* What the file is, and its name as the kernel has it: cut short is none. */
static int read_name(int fd, const char *link, struct stat *st, char name[PATH_MAX])
{
	bool was_gone, gone = false;
	ssize_t len;

	do { /* lock files are deleted all the time: the name of one that is has to be read after it was */
		was_gone = gone;
		len = readlink(link, name, PATH_MAX - 1);
		if (len < 0 || fstat(fd, st) != 0)
			return -errno;
		gone = st->st_nlink == 0;
	} while (gone && !was_gone);
	if (len >= PATH_MAX - 1)
		return -ENAMETOOLONG;
	name[len] = '\0';
	return 0;
}

/* " (deleted)" may also be part of a real name: the link count tells. */
static void cut_deleted(const struct stat *st, char *name)
{
	static const char deleted[] = " (deleted)";
	size_t len = strlen(name), cut = strlen(deleted);

	if (st->st_nlink == 0 && len > cut && strcmp(name + len - cut, deleted) == 0)
		name[len - cut] = '\0';
}

static int open_readable_or_not(const char *link)
{
	int flags = O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
	int fd = open(link, O_RDONLY | flags);

	if (fd < 0 && errno == EACCES)
		fd = open(link, O_WRONLY | flags);
	return fd < 0 ? -errno : fd;
}

#ifdef SYS_setgroups32
#define SETGROUPS SYS_setgroups32
#else
#define SETGROUPS SYS_setgroups
#endif

/* Of this thread alone: libc's setgroups() would change all. */
static int set_groups(const gid_t *groups, size_t count)
{
	return syscall(SETGROUPS, count, groups) == 0 ? 0 : -errno;
}

static int own_groups(gid_t **groups)
{
	int count = getgroups(0, NULL);

	*groups = count < 0 ? NULL : malloc((size_t)(count + 1) * sizeof(**groups));
	return *groups ? getgroups(count, *groups) : -1;
}

/* Opens with the rights of the user who passed the descriptor: file system ids and groups belong to the thread. */
static int reopen(const struct inspect_request *req, const char *link)
{
	int ret = -EPERM, own_count;
	gid_t *own;

	if (!req->foreign || geteuid() != 0)
		return open_readable_or_not(link);
	own_count = own_groups(&own);
	if (own_count < 0 || set_groups(req->groups, req->group_count) < 0) {
		free(own);
		return -EPERM;
	}
	setfsgid(req->peer.gid);
	setfsuid(req->peer.uid);
	/* -1 only asks. Root without CAP_SETUID would open it with more rights than the user has. */
	if ((uid_t)setfsuid(-1) == req->peer.uid && (gid_t)setfsgid(-1) == req->peer.gid)
		ret = open_readable_or_not(link);
	setfsuid(geteuid());
	setfsgid(getegid());
	if (set_groups(own, (size_t)own_count) < 0)
		abort(); /* a worker with the wrong rights: a fresh keeper does better */
	free(own);
	return ret;
}

/* Is this mount one of the keeper's own? */
static bool mount_is_ours(int mount_id)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char *line = NULL;
	size_t room = 0;
	bool found = false;

	while (f && !found && getline(&line, &room, f) > 0)
		found = atoi(line) == mount_id;
	free(line);
	if (f)
		fclose(f);
	return found;
}

/* A user could pass /var/lock/x from a mount of a namespace of his own: then our path leads elsewhere. Where no path
 * leads any more, only the mount tells. */
static bool path_leads_there(const struct inspect_result *r, int mount_id)
{
	struct stat st;

	if (r->st.st_nlink == 0)
		return mount_is_ours(mount_id);
	return stat(r->path, &st) == 0 && st.st_dev == r->st.st_dev && st.st_ino == r->st.st_ino;
}

/* Would this lock be refused because of somebody's? */
static bool record_in_the_way(int fd, short type, int64_t from, int64_t to)
{
	struct flock lock = {
		.l_type = type, .l_whence = SEEK_SET, .l_start = from, .l_len = to == WIRE_EOF ? 0 : to - from};

	return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/* flock: taken and dropped at once on a description of its own: shared works while others have it shared, exclusive
 * does not. Records: the kernel can be asked without taking anything. */
static bool test_shared(const struct inspect_request *req, const char *link)
{
	int fd = reopen(req, link);
	bool in_use = false;

	if (fd < 0)
		return false;
	if (req->space == WIRE_RECORD)
		in_use = !record_in_the_way(fd, F_RDLCK, req->from, req->to) &&
			 record_in_the_way(fd, F_WRLCK, req->from, req->to);
	else if (flock(fd, LOCK_SH | LOCK_NB) == 0)
		in_use = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
	close(fd);
	return in_use;
}

static void look(const struct inspect_request *req, struct inspect_result *r)
{
	int flags = fcntl(req->fd, F_GETFL);
	char link[64];
	int mount_id = -1, ret;

	if (flags < 0 || (flags & O_PATH))
		return refuse(r, "the descriptor is open for its path only (O_PATH)", 0);
	snprintf(link, sizeof(link), "/proc/self/fd/%d", req->fd);
	ret = read_name(req->fd, link, &r->st, r->path);
	if (ret < 0)
		return refuse(r, "its path cannot be read", -ret);
	if (!S_ISREG(r->st.st_mode) && !S_ISDIR(r->st.st_mode))
		return refuse(r, "neither a regular file nor a directory", 0);
	if (r->path[0] != '/')
		return refuse(r, "its path cannot be read", EINVAL);
	cut_deleted(&r->st, r->path);
	if (req->foreign || (req->space == WIRE_FLOCK && !req->unused)) {
		ret = read_fdinfo(req->fd, &r->holds, &mount_id);
		if (ret < 0)
			return refuse(r, "its fdinfo cannot be read", -ret);
	}
	if (req->foreign && !path_leads_there(r, mount_id))
		return refuse(r, "its path leads the keeper to another file (a mount of the program's own?)", 0);
	if (req->space == WIRE_RECORD && !req->test_shared) {
		ret = before_read(&r->before, req->fd, req->peer.pid, req->owner, &r->st);
		if (ret < 0)
			return refuse(r, "the keeper cannot see which locks the program has, so that it could undo",
				      -ret);
	}
	if (req->test_shared)
		r->shared_in_use = test_shared(req, link);
	if (req->known)
		return;
	ret = reopen(req, link);
	if (ret < 0)
		return refuse(r, "the keeper cannot open it again", -ret);
	r->fd = ret;
}

enum inspect_ground inspect_ground(struct mounts *mounts, int fd, uint64_t *dev, uint64_t *ino)
{
	struct statx stx;

	*dev = *ino = 0;
	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO | STATX_TYPE, &stx) != 0)
		return INSPECT_AWAY;
	*dev = makedev(stx.stx_dev_major, stx.stx_dev_minor);
	*ino = stx.stx_ino;
	if (!S_ISREG(stx.stx_mode) && !S_ISDIR(stx.stx_mode))
		return INSPECT_NO_FILE;
	return mounts_local(mounts, *dev) ? INSPECT_LOCAL : INSPECT_AWAY;
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

int inspect_now(const struct inspect_request *request, struct inspect_result *result)
{
	*result = (struct inspect_result){.fd = -1};
	look(request, result);
	close(request->fd);
	free(request->groups);
	if (*result->refused)
		before_free(&result->before);
	return *result->refused ? -1 : 0;
}

static void run(struct work *work)
{
	struct inspect *job = (struct inspect *)work;

	inspect_now(&job->request, &job->result);
}

static void done(struct work *work)
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
		*job = (struct inspect){.work = {.run = run, .done = done}, .request = *request, .cb = cb, .arg = arg};
		/* Nothing may be set after this: the worker runs. */
		if (workers_start(workers, dev, &job->work) == 0)
			return job;
	}
	free(job);
	return NULL;
}
