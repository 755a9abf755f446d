/*
 * See holders.h.
 *
 * Nothing here waits for a process that hangs: directories and files below /proc/PID that are opened here take the lock
 * of its descriptor table at the most, never that of its memory, nor the one that exec() holds while it reads a program
 * from a mount. kcmp() takes the latter's successor, which exec() holds only when a process has a single thread left:
 * it is asked about other threads alone.
 */
#include "keeper/kernel/holders.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "keeper/clock.h"
#include "keeper/kernel/errand.h"

#define TURN_NS    (5 * NS_PER_MS) /* HOLDERS_AT_ONCE: how long one descriptor table is looked at in one go */
#define CONFIRM_MS 20

/* A descriptor table that is not done with: of the process, or of a thread that has its own. */
struct rest {
	pid_t pid, tid; /* tid 0: the process */
	long at;        /* of the directory */
	bool known;     /* HOLDERS_LATER */
};

struct search {
	struct holders_search *ask;
	struct file_index index;
	struct procfs_text text;
	struct holder *found; /* of the process that is being looked at, unless HOLDERS_AT_ONCE */
	size_t found_count, found_room;
	struct rest *rests;
	size_t rest_count, rest_room;
	size_t unseen;
	int error;
};

/* One descriptor. */
struct look {
	struct search *search;
	pid_t pid;
	int fds;
	const char *fd;
	bool known;    /* the process was found before: it need not be confirmed again */
	bool compared; /* ... which file it is */
	size_t file;   /* then: or FILE_NONE */
	bool enough;   /* HOLDERS_LATER was returned */
};

/* Something of a process cannot be read. 0: it has ended; -EACCES: it may not be, or the process has made it too much
 * for the kernel. It is an error, at the end of the search, only where it is we who lack something. */
static int failed(struct search *s, int err)
{
	if (err == ENOENT || err == ESRCH)
		return 0;
	if (err == EMFILE || err == ENFILE)
		s->error = -err;
	return -EACCES;
}

/* --- which file a descriptor is of --- */

struct confirm {
	int fds;
	char fd[16];
	bool ok;
	uint64_t dev, ino;
};

static void run_confirm(void *memory)
{
	struct confirm *c = memory;
	struct statx st;

	c->ok = statx(c->fds, c->fd, AT_STATX_DONT_SYNC, STATX_INO, &st) == 0;
	c->dev = makedev(st.stx_dev_major, st.stx_dev_minor);
	c->ino = st.stx_ino;
}

static void free_confirm(void *memory)
{
	struct confirm *c = memory;

	close(c->fds);
	free(c);
}

/* What stat says of the descriptor. False: that cannot be learnt, or not now. */
static bool stat_descriptor(const struct look *look, uint64_t *dev, uint64_t *ino)
{
	struct confirm *c = calloc(1, sizeof(*c));
	struct errand *errand;
	bool ok = false;

	if (!c)
		return false;
	snprintf(c->fd, sizeof(c->fd), "%.15s", look->fd);
	c->fds = fcntl(look->fds, F_DUPFD_CLOEXEC, 3);
	errand = c->fds < 0 ? NULL : errand_start(run_confirm, free_confirm, c);
	if (c->fds < 0)
		free(c);
	if (!errand)
		return false;
	if (errand_wait(errand, CONFIRM_MS) && c->ok) {
		*dev = c->dev;
		*ino = c->ino;
		ok = true;
	}
	errand_leave(errand);
	return ok;
}

/* `first` has the number that the lock line shows. Where that may be another file's as well, stat decides; and where
 * stat does not answer, it is taken for the file: better one process too many. */
static size_t which_file(const struct look *look, size_t first, const struct procfs_lock *lock)
{
	const struct search *s = look->search;
	uint64_t dev, ino;

	if (look->known || file_is_plain(&s->ask->files[first]) || !stat_descriptor(look, &dev, &ino))
		return first;
	for (size_t f = first; f != FILE_NONE; f = file_index_find(&s->index, lock->dev, lock->ino, f))
		if (s->ask->files[f].dev == dev && s->ask->files[f].ino == ino)
			return f;
	return FILE_NONE;
}

/* --- what it has locked --- */

static int remember(struct search *s, const struct holder *h)
{
	if (s->found_count == s->found_room) {
		size_t room = s->found_room ? 2 * s->found_room : 8;
		struct holder *more = realloc(s->found, room * sizeof(*more));

		if (!more)
			return -ENOMEM;
		s->found = more;
		s->found_room = room;
	}
	s->found[s->found_count++] = *h;
	return 0;
}

#define OTHER_FILE (-4711) /* ends the reading of one fdinfo */

static int on_lock(void *arg, const struct procfs_lock *lock)
{
	struct look *look = arg;
	struct search *s = look->search;
	struct holder h = {.pid = look->pid,
			   .fd = atoi(look->fd),
			   .space = lock->space,
			   .owner = lock->owner,
			   .mode = lock->mode,
			   .from = lock->from,
			   .to = lock->to,
			   .locker = lock->locker,
			   .command = ""};
	size_t first = file_index_find(&s->index, lock->dev, lock->ino, FILE_NONE);
	int ret;

	if (first == FILE_NONE)
		return OTHER_FILE;
	ret = s->ask->seen ? s->ask->seen(s->ask->arg, lock) : 0;
	if (ret)
		return ret;
	if (!look->compared)
		look->file = which_file(look, first, lock);
	look->compared = true;
	if (look->file == FILE_NONE)
		return 0;
	h.file = look->file;
	if (!(s->ask->how & HOLDERS_AT_ONCE))
		return remember(s, &h);
	ret = s->ask->cb(s->ask->arg, &h);
	look->enough = look->enough || ret == HOLDERS_LATER;
	return ret == HOLDERS_LATER ? 0 : ret;
}

static int look_at_fd(struct look *look, int fdinfos)
{
	char link[12] = "";
	int ret;

	/* Most descriptors are none of a file, and readlink tells at a third of the price; and what drivers have to say
	 * in fdinfo may take long. Where it fails (a path longer than PATH_MAX), fdinfo decides. */
	if (readlinkat(look->fds, look->fd, link, sizeof(link) - 1) > 0 &&
	    (!strncmp(link, "socket:", 7) || !strncmp(link, "pipe:", 5) || !strncmp(link, "anon_inode:", 11)))
		return 0;
	ret = procfs_read(fdinfos, look->fd, &look->search->text);
	if (ret < 0)
		return failed(look->search, -ret);
	if (!strstr(look->search->text.text, "\nlock:"))
		return 0;
	ret = procfs_fdinfo(look->search->text.text, NULL, on_lock, look);
	return ret == OTHER_FILE ? 0 : ret;
}

/* --- descriptor tables --- */

static int keep_rest(struct search *s, const struct rest *rest)
{
	if (s->rest_count == s->rest_room) {
		size_t room = s->rest_room ? 2 * s->rest_room : 16;
		struct rest *more = realloc(s->rests, room * sizeof(*more));

		if (!more)
			return -ENOMEM;
		s->rests = more;
		s->rest_room = room;
	}
	s->rests[s->rest_count++] = *rest;
	return 0;
}

/* From rest->at on. What remains when its turn is over is kept for later. */
static int go_through(struct search *s, DIR *list, int fdinfos, const struct rest *rest)
{
	bool at_once = s->ask->how & HOLDERS_AT_ONCE;
	int64_t end = at_once ? clock_now_ns() + TURN_NS : 0;
	bool known = rest->known;
	struct dirent *e;
	int ret = 0;

	if (rest->at)
		seekdir(list, rest->at);
	while (!ret && (e = readdir(list))) {
		struct look look = {.search = s, .pid = rest->pid, .fds = dirfd(list), .fd = e->d_name, .known = known};

		if (!isdigit((unsigned char)e->d_name[0]))
			continue;
		ret = look_at_fd(&look, fdinfos);
		known = known || look.enough;
		if (look.enough && !s->ask->seen)
			return 0;
		if (!ret && at_once && (known ? !rest->known : clock_now_ns() > end))
			return keep_rest(
				s, &(struct rest){
					   .pid = rest->pid, .tid = rest->tid, .at = telldir(list), .known = known});
	}
	return ret;
}

/* -EACCES: it may not be looked into. */
static int look_at_table(struct search *s, int procfd, const struct rest *rest)
{
	char fd_name[64] = "fd", info_name[64] = "fdinfo";
	int r = 0, fds = -1, fdinfos = -1;
	DIR *list = NULL;

	if (rest->tid) {
		snprintf(fd_name, sizeof(fd_name), "task/%d/fd", (int)rest->tid);
		snprintf(info_name, sizeof(info_name), "task/%d/fdinfo", (int)rest->tid);
	}
	fds = openat(procfd, fd_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fdinfos = fds < 0 ? -1 : openat(procfd, info_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fds < 0 || fdinfos < 0 || !(list = fdopendir(fds)))
		r = failed(s, errno);
	else
		r = go_through(s, list, fdinfos, rest);
	if (list)
		closedir(list);
	else if (fds >= 0)
		close(fds);
	if (fdinfos >= 0)
		close(fdinfos);
	return r;
}

/*
 * A thread may have descriptors that /proc/PID/fd does not show: after unshare(CLONE_FILES), and all of them once the
 * first thread has ended. Where kcmp cannot say (seccomp), the thread is looked at.
 */
static int look_at_threads(struct search *s, int procfd, pid_t pid)
{
	int tasks = openat(procfd, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	struct dirent *e;
	DIR *list;

	if (tasks < 0)
		return 0;
	list = fdopendir(tasks);
	if (!list) {
		close(tasks);
		return -ENOMEM;
	}
	while (!r && (e = readdir(list))) {
		pid_t tid = (pid_t)strtol(e->d_name, NULL, 10);

		if (tid <= 0 || tid == pid || syscall(SYS_kcmp, pid, tid, KCMP_FILES, 0, 0) == 0)
			continue;
		r = look_at_table(s, procfd, &(struct rest){.pid = pid, .tid = tid});
	}
	closedir(list);
	return r;
}

/* --- processes --- */

static int compare(const void *a, const void *b)
{
	const struct holder *x = a, *y = b;

	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	if (x->space != y->space)
		return x->space < y->space ? -1 : 1;
	if (x->owner != y->owner)
		return x->owner < y->owner ? -1 : 1;
	if (x->mode != y->mode)
		return x->mode < y->mode ? -1 : 1;
	if (x->from != y->from)
		return x->from < y->from ? -1 : 1;
	if (x->to != y->to)
		return x->to < y->to ? -1 : 1;
	return x->locker < y->locker ? -1 : x->locker > y->locker;
}

static void read_start(struct search *s, int procfd, struct holder *h)
{
	struct timespec real, boot;
	struct procfs_stat stat;

	if (procfs_read(procfd, "stat", &s->text) < 0 || !procfs_stat(s->text.text, &stat))
		return;
	h->start_ticks = stat.started;
	if (clock_gettime(CLOCK_REALTIME, &real) || clock_gettime(CLOCK_BOOTTIME, &boot))
		return;
	h->started = real.tv_sec - boot.tv_sec + (int64_t)(h->start_ticks / (uint64_t)sysconf(_SC_CLK_TCK));
}

static int report(struct search *s, int procfd)
{
	struct holder about = {0};
	char command[COMMAND_BYTES] = "";
	int r = 0;

	if (!s->found_count)
		return 0;
	qsort(s->found, s->found_count, sizeof(*s->found), compare);
	if (s->ask->how & HOLDERS_COMMANDS)
		command_read(procfd, command);
	read_start(s, procfd, &about);
	for (size_t i = 0; i < s->found_count && !r; i++) {
		struct holder *h = &s->found[i];

		if (i && !compare(h - 1, h))
			continue;
		h->started = about.started;
		h->start_ticks = about.start_ticks;
		h->command = command;
		r = s->ask->cb(s->ask->arg, h);
	}
	return r;
}

static int look_at_process(struct search *s, int proc, const char *name, const struct rest *rest)
{
	/* Kept open: should the pid be reused, what is read through it fails instead of mixing two processes. */
	int procfd = openat(proc, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;

	s->found_count = 0;
	r = procfd < 0 ? failed(s, errno) : look_at_table(s, procfd, rest);
	if (procfd < 0 && !r)
		return 0;
	if (!r && !rest->at)
		r = look_at_threads(s, procfd, rest->pid);
	if (r == -EACCES) {
		s->unseen++;
		r = 0;
	}
	if (!r)
		r = report(s, procfd);
	if (procfd >= 0)
		close(procfd);
	return r;
}

/* One turn for each of those that are known, or are not. False: there were none. */
static bool take_turns(struct search *s, int proc, bool known, int *ret)
{
	size_t count = s->rest_count, kept = 0;
	bool any = false;

	for (size_t i = 0; i < count && *ret == 0; i++) {
		struct rest rest = s->rests[i];
		char name[16];

		if (rest.known != known) {
			s->rests[kept++] = rest;
			continue;
		}
		any = true;
		snprintf(name, sizeof(name), "%d", (int)rest.pid);
		*ret = look_at_process(s, proc, name, &rest);
	}
	/* Those that were kept anew stand behind. */
	if (s->rest_count > count)
		memmove(s->rests + kept, s->rests + count, (s->rest_count - count) * sizeof(*s->rests));
	s->rest_count -= count - kept;
	return any;
}

static int search_all(struct search *s)
{
	DIR *list = opendir("/proc");
	struct dirent *e;
	int r = 0;

	if (!list)
		return -errno;
	while (!r && (e = readdir(list))) {
		struct rest rest = {.pid = isdigit((unsigned char)e->d_name[0]) ? (pid_t)strtol(e->d_name, NULL, 10)
										: 0};

		if (rest.pid > 0 && (!s->ask->ignore_pid || rest.pid != s->ask->ignore_pid))
			r = look_at_process(s, dirfd(list), e->d_name, &rest);
	}
	while (!r && (take_turns(s, dirfd(list), false, &r) || take_turns(s, dirfd(list), true, &r)))
		;
	closedir(list);
	return r;
}

static int begin(struct search *s, struct holders_search *ask)
{
	*s = (struct search){.ask = ask};
	ask->unseen = 0;
	return file_index_build(&s->index, ask->files, ask->count);
}

static int end(struct search *s, int r)
{
	s->ask->unseen = s->unseen;
	file_index_free(&s->index);
	free(s->text.text);
	free(s->found);
	free(s->rests);
	return r ? r : s->error;
}

int holders_search(struct holders_search *ask)
{
	struct search s;
	int r = begin(&s, ask);

	if (!r)
		r = search_all(&s);
	return end(&s, r);
}

int holders_find(const struct holders_file *files, size_t count, pid_t ignore_pid, holders_cb *cb, void *arg,
		 size_t *unseen)
{
	struct holders_search ask = {.files = files,
				     .count = count,
				     .ignore_pid = ignore_pid,
				     .how = HOLDERS_COMMANDS,
				     .cb = cb,
				     .arg = arg};
	int r = holders_search(&ask);

	if (unseen)
		*unseen = ask.unseen;
	return r;
}

int holders_of_process(pid_t pid, const struct holders_file *file, holders_cb *cb, void *arg)
{
	struct holders_search ask = {.files = file, .count = 1, .cb = cb, .arg = arg};
	struct search s;
	char name[32];
	int r = begin(&s, &ask);

	snprintf(name, sizeof(name), "/proc/%d", (int)pid);
	if (!r)
		r = look_at_process(&s, AT_FDCWD, name, &(struct rest){.pid = pid});
	r = end(&s, r);
	return r ? r : ask.unseen ? -EACCES : 0;
}
