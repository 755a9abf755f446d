/*
 * See holders.h.
 *
 * Nothing here waits for a process that hangs: directories and files below /proc/PID that are opened here take at most
 * the lock of its descriptor table, never that of its memory, nor the one that exec() holds while it reads a program
 * from a mount. kcmp() takes a related lock, which exec() holds only when the process has a single thread left; so
 * kcmp() is asked about other threads only.
 */
#include "keeper/kernel/holders.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/nsfs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "keeper/array.h"
#include "keeper/clock.h"
#include "keeper/kernel/command.h"
#include "keeper/kernel/identity.h"
#include "procfs/procfs.h"
#include "wire/msg.h"

#define UNITE_MIN 1024
#define TURN_NS   (NS_PER_MS / 10) /* how long one descriptor table is looked at in one go, at first */
#define SLOW_NS                                                                                                        \
	(2 * NS_PER_MS) /* of a processor, beyond its turn: one descriptor has very many locks, and so may its copies */

/* When it is gone on with, in each round of turns. */
enum holders_class {
	CLASS_FIRST,
	CLASS_SLOW,  /* the user has slow ones: these take no longer than the first do */
	CLASS_KNOWN, /* HOLDERS_LATER: when there is no other */
};

/* A descriptor table that has not been read to its end: of the process, or of a thread that has its own. */
struct holders_rest {
	pid_t pid, tid; /* tid 0: the process */
	long at;        /* of the directory */
	enum holders_class class;
};

struct holders_state {
	struct holders_search *ask;
	struct file_index index;
	struct procfs_text text;
	UT_array found;  /* struct holder: of the process that is being looked at, unless HOLDERS_AT_ONCE */
	UT_array rests;  /* struct holders_rest */
	UT_array slow;   /* uid_t: users, but root, who have slow ones */
	size_t unite_at; /* when there are so many found, copies are dropped */
	int64_t turn_ns;
	size_t unseen;
	int error;
};

/* One descriptor. */
struct holders_look {
	struct holders_state *search;
	pid_t pid;
	int fds, fd;
	bool known;    /* the process was found before: it need not be confirmed again */
	bool compared; /* ... which file it is */
	size_t file;   /* then: or FILE_NONE */
	bool enough;   /* HOLDERS_LATER was returned */
};

/* The result when something of a process cannot be read. 0: the process has ended; -EACCES: the kernel does not allow
 * it, or the process has made it too much for the kernel. It is an error, at the end of the search, only if the
 * searching process lacks something. */
static int holders_failed(struct holders_state *s, int err)
{
	if (err == ENOENT || err == ESRCH)
		return 0;
	if (err == EMFILE || err == ENFILE)
		s->error = -err;
	return -EACCES;
}

/* --- what was found of a process --- */

static int holders_compare(const void *a, const void *b)
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

/* Each copy of a descriptor shows the same locks: keeps one of each. */
static void holders_unite(struct holders_state *s)
{
	struct holder *found = array_items(&s->found);
	size_t count = utarray_len(&s->found), kept = 0;

	array_sort(&s->found, holders_compare);
	for (size_t i = 0; i < count; i++)
		if (!kept || holders_compare(&found[kept - 1], &found[i]))
			found[kept++] = found[i];
	array_cut(&s->found, kept);
	s->unite_at = 2 * kept + UNITE_MIN;
}

/* --- one descriptor --- */

/* `first` has the number that the lock line shows. Where another file may have the same number, stat decides. If stat
 * does not answer, the descriptor counts as the file's: better one process too many. */
static size_t holders_which_file(const struct holders_look *look, size_t first, const struct procfs_lock *lock)
{
	const struct holders_state *s = look->search;
	const struct holders_file *files = s->ask->files;
	struct identity id;

	while (first != FILE_NONE && files[first].by_number)
		first = file_index_find(&s->index, lock->dev, lock->ino, first);
	if (first == FILE_NONE || look->known || file_index_is_plain(&files[first]) ||
	    !identity_by_stat(look->fds, look->fd, &id))
		return first;
	for (size_t f = first; f != FILE_NONE; f = file_index_find(&s->index, lock->dev, lock->ino, f))
		if (files[f].dev == id.dev && files[f].ino == id.ino && !files[f].by_number)
			return f;
	return FILE_NONE;
}

static int holders_tell(struct holders_look *look, const struct holder *h)
{
	struct holders_state *s = look->search;
	int ret;

	if (!(s->ask->how & HOLDERS_AT_ONCE)) {
		if (utarray_len(&s->found) >= s->unite_at) /* mutant: holders-unite */
			holders_unite(s);
		return array_push(&s->found, h, sizeof(*h));
	}
	ret = s->ask->cb(s->ask->arg, h);
	look->enough = look->enough || ret == HOLDERS_LATER;
	return ret == HOLDERS_LATER ? 0 : ret;
}

#define OTHER_FILE (-4711) /* ends the reading of one fdinfo */

static int holders_on_lock(void *arg, const struct procfs_lock *lock)
{
	struct holders_look *look = arg;
	struct holders_state *s = look->search;
	struct holder h = {.pid = look->pid,
			   .fd = look->fd,
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
		look->file = holders_which_file(look, first, lock);
	look->compared = true;
	for (h.file = first; !ret && h.file != FILE_NONE;
	     h.file = file_index_find(&s->index, lock->dev, lock->ino, h.file))
		if (h.file == look->file || s->ask->files[h.file].by_number)
			ret = holders_tell(look, &h);
	return ret;
}

/* Is this process a supervisor of the net (wire/msg.h)? Asked only where a lock was found. */
static bool holders_is_net(const struct holders_look *look)
{
	char link[sizeof(NETMARK_LINK) + 1], number[16], path[32], name[COMM_BYTES];
	ssize_t n;

	snprintf(number, sizeof(number), "%d", NETMARK_LISTENER);
	n = readlinkat(look->fds, number, link, sizeof(link));
	if (n != sizeof(NETMARK_LINK) - 1 || memcmp(link, NETMARK_LINK, (size_t)n) != 0)
		return false;
	snprintf(path, sizeof(path), "/proc/%d/comm", (int)look->pid);
	n = procfs_head(AT_FDCWD, path, name, sizeof(name));
	return n > 0 && strcmp(name, NETMARK_NAME "\n") == 0;
}

static int holders_look_at_fd(struct holders_look *look, int fdinfos)
{
	struct procfs_text *text = &look->search->text;
	char name[16];
	int ret;

	/* Most descriptors are not of a file, and the link tells that at a third of the price; also, drivers may take
	 * long to write their part of fdinfo. */
	if (procfs_kind(look->fds, look->fd) != PROCFS_FILE)
		return 0;
	snprintf(name, sizeof(name), "%d", look->fd);
	ret = procfs_read(fdinfos, name, text);
	if (ret < 0)
		return holders_failed(look->search, -ret);
	if (!strstr(text->text, "\nlock:") || holders_is_net(look)) /* mutant: holders-net */
		return 0;
	ret = procfs_fdinfo(text->text, NULL, holders_on_lock, look);
	return ret == OTHER_FILE ? 0 : ret;
}

/* --- users who have slow ones --- */

/*
 * Who made the user namespace of this process, if it is not the caller's: the one within the caller's, if they are nested. The users in it
 * are many, and all of them the maker's. false: it is the caller's, or root made it.
 */
static bool holders_maker(pid_t pid, uid_t *maker)
{
	char path[40];
	struct stat own, st;
	uid_t owner;
	int ns, outer;

	snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
	ns = stat("/proc/self/ns/user", &own) == 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	*maker = 0;
	while (ns >= 0) {
		const bool is_own = fstat(ns, &st) != 0 || (st.st_ino == own.st_ino && st.st_dev == own.st_dev);

		if (!is_own && ioctl(ns, NS_GET_OWNER_UID, &owner) == 0) /* mutant: holders-maker */
			*maker = owner;
		outer = is_own ? -1 : ioctl(ns, NS_GET_PARENT);
		close(ns);
		ns = outer;
	}
	return *maker != 0;
}

/* The real one: a user starts programs of other effective users. False: the process is gone. */
static bool holders_user(pid_t pid, uid_t *user)
{
	struct procfs_status about;

	if (!procfs_status_read(pid, &about))
		return false;
	if (!holders_maker(pid, user))
		*user = about.uids[0];
	return true;
}

static bool holders_is_slow(const struct holders_state *s, pid_t pid)
{
	size_t count = utarray_len(&s->slow);
	uid_t user;

	if (!count || !holders_user(pid, &user)) /* mutant: holders-slow */
		return false;
	for (size_t i = 0; i < count; i++)
		if (*(const uid_t *)array_at(&s->slow, i) == user)
			return true;
	return false;
}

/* Nobody could have root's processes put off by passing such a descriptor to one of them. */
static int holders_note_slow(struct holders_state *s, pid_t pid)
{
	uid_t user;

	if (holders_is_slow(s, pid) || !holders_user(pid, &user) || user == 0)
		return 0;
	return array_push(&s->slow, &user, sizeof(user));
}

static int holders_put_off(struct holders_state *s, pid_t pid, pid_t tid)
{
	return array_push(&s->rests, &(struct holders_rest){.pid = pid, .tid = tid, .class = CLASS_SLOW},
			  sizeof(struct holders_rest));
}

/* --- descriptor tables --- */

#define TURN_OVER 4712 /* without HOLDERS_AT_ONCE: nothing of the process is told, and the next turn begins anew */

static bool holders_have_turns(const struct holders_state *s)
{
	return s->ask->turn || s->ask->how & HOLDERS_AT_ONCE;
}

/* Reads from rest->at on. Keeps for later what remains when the turn is over. */
static int holders_go_through(struct holders_state *s, struct procfs_walk *fds, int fdinfos,
			      const struct holders_rest *rest)
{
	const bool turns = holders_have_turns(s);
	int64_t end = turns ? clock_now_ns() + s->turn_ns : 0;
	bool known = rest->class == CLASS_KNOWN;
	const bool was_known = known;
	int ret = 0, fd;

	if (rest->at)
		procfs_walk_to(fds, rest->at);
	while (!ret && (fd = procfs_next(fds)) >= 0) {
		struct holders_look look = {
			.search = s, .pid = rest->pid, .fds = procfs_walk_fd(fds), .fd = fd, .known = known};
		struct holders_rest left = *rest;

		ret = holders_look_at_fd(&look, fdinfos);
		known = known || look.enough;
		if (look.enough && !s->ask->seen)
			return 0;
		if (ret || !turns || (known == was_known && clock_now_ns() <= end))
			continue;
		left.at = procfs_walk_at(fds);
		left.class = known ? CLASS_KNOWN : rest->class;
		return s->ask->how & HOLDERS_AT_ONCE ? array_push(&s->rests, &left, sizeof(left)) : TURN_OVER;
	}
	return ret;
}

/* -EACCES: it may not be looked into. */
static int holders_look_at_table(struct holders_state *s, int procfd, const struct holders_rest *rest)
{
	char fd_name[64] = "fd", info_name[64] = "fdinfo";
	const bool turns = holders_have_turns(s);
	const int64_t before = turns ? clock_thread_ns() : 0;
	struct procfs_walk fds;
	int fdinfos = -1, ret;

	if (rest->tid) {
		snprintf(fd_name, sizeof(fd_name), "task/%d/fd", (int)rest->tid);
		snprintf(info_name, sizeof(info_name), "task/%d/fdinfo", (int)rest->tid);
	}
	ret = procfs_walk(&fds, procfd, fd_name);
	if (ret == 0) {
		fdinfos = openat(procfd, info_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		ret = fdinfos < 0 ? -errno : 0;
	}
	ret = ret < 0 ? holders_failed(s, -ret) : holders_go_through(s, &fds, fdinfos, rest);
	procfs_walk_end(&fds);
	if (fdinfos >= 0)
		close(fdinfos);
	if ((!ret || ret == TURN_OVER) && turns && clock_thread_ns() - before > s->turn_ns + SLOW_NS &&
	    holders_note_slow(s, rest->pid) < 0)
		ret = -ENOMEM;
	return ret;
}

/* A thread may have descriptors that /proc/PID/fd does not show. */
static int holders_look_at_threads(struct holders_state *s, int procfd, pid_t pid)
{
	struct procfs_walk tasks;
	int ret = procfs_walk(&tasks, procfd, "task");
	const bool slow = s->ask->how & HOLDERS_AT_ONCE && holders_is_slow(s, pid);
	pid_t tid;

	if (ret < 0)
		return ret == -ENOMEM ? ret : 0;
	while (!ret && (tid = procfs_next(&tasks)) >= 0)
		if (!procfs_shares_table(pid, tid))
			ret = slow ? holders_put_off(s, pid, tid)
				   : holders_look_at_table(s, procfd, &(struct holders_rest){.pid = pid, .tid = tid});
	procfs_walk_end(&tasks);
	return ret;
}

/* --- processes --- */

/* What is left of a first thread that has ended, and it has no descriptors, is root's in /proc. */
static bool holders_has_ended(int procfd)
{
	struct procfs_stat stat;

	return procfs_stat_read(procfd, "stat", &stat) && stat.state == 'Z';
}

static void holders_read_start(int procfd, struct holder *h)
{
	struct timespec real, boot;
	struct procfs_stat stat;

	if (!procfs_stat_read(procfd, "stat", &stat))
		return;
	h->start_ticks = stat.started;
	if (clock_gettime(CLOCK_REALTIME, &real) || clock_gettime(CLOCK_BOOTTIME, &boot))
		return;
	h->started = real.tv_sec - boot.tv_sec + (int64_t)(h->start_ticks / (uint64_t)sysconf(_SC_CLK_TCK));
}

static int holders_report(struct holders_state *s, int procfd)
{
	struct holder about = {0};
	char command[COMMAND_BYTES] = "";
	int ret = 0;

	if (!utarray_len(&s->found))
		return 0;
	holders_unite(s);
	if (s->ask->how & HOLDERS_COMMANDS)
		command_read(procfd, command);
	holders_read_start(procfd, &about);
	for (size_t i = 0; i < utarray_len(&s->found) && !ret; i++) {
		struct holder *h = array_at(&s->found, i);

		h->started = about.started;
		h->start_ticks = about.start_ticks;
		h->command = command;
		ret = s->ask->cb(s->ask->arg, h);
	}
	return ret;
}

static int holders_look_at_process(struct holders_state *s, const struct holders_rest *rest)
{
	char name[32];
	int procfd, ret;

	snprintf(name, sizeof(name), "/proc/%d", (int)rest->pid);
	/* Kept open: should the pid be reused, what is read through it fails instead of mixing two processes. */
	procfd = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	array_cut(&s->found, 0);
	ret = procfd < 0 ? holders_failed(s, errno) : holders_look_at_table(s, procfd, rest);
	if (procfd < 0 && !ret)
		return 0;
	if (ret == -EACCES && !rest->tid && holders_has_ended(procfd))
		ret = 0;
	if (!ret && !rest->at && !rest->tid)
		ret = holders_look_at_threads(s, procfd, rest->pid);
	if (ret == -EACCES) {
		s->unseen++;
		ret = 0;
	}
	if (ret == TURN_OVER)
		ret = array_push(&s->rests, rest, sizeof(*rest));
	else if (!ret)
		ret = holders_report(s, procfd);
	if (procfd >= 0)
		close(procfd);
	return ret;
}

static int holders_on_turn(const struct holders_state *s)
{
	return s->ask->turn && utarray_len(&s->rests) ? s->ask->turn(s->ask->arg) : 0;
}

/* One turn for each kept table of a class, but none is begun after until_ns. False: there were none. */
static bool holders_take_turns(struct holders_state *s, enum holders_class class, int64_t until_ns, int *ret)
{
	size_t count = utarray_len(&s->rests), kept = 0;
	bool any = false;

	for (size_t i = 0; i < count && *ret == 0; i++) {
		const struct holders_rest rest = *(struct holders_rest *)array_at(&s->rests, i);

		if (rest.class != class || (any && clock_now_ns() > until_ns)) {
			*(struct holders_rest *)array_at(&s->rests, kept++) = rest;
			continue;
		}
		any = true;
		*ret = holders_look_at_process(s, &rest);
		if (!*ret)
			*ret = holders_on_turn(s);
	}
	/* Tables that were kept again come after these. */
	if (count > kept)
		utarray_erase(&s->rests, kept, count - kept);
	return any;
}

static bool holders_take_round(struct holders_state *s, int *ret)
{
	const int64_t begin_ns = clock_now_ns();
	bool any = holders_take_turns(s, CLASS_FIRST, INT64_MAX, ret);
	const int64_t now = clock_now_ns(), until_ns = any ? now + (now - begin_ns) : INT64_MAX;

	any = holders_take_turns(s, CLASS_SLOW, until_ns, ret) || any;
	return any || holders_take_turns(s, CLASS_KNOWN, INT64_MAX, ret);
}

static int holders_search_all(struct holders_state *s)
{
	struct procfs_walk walk;
	int ret = procfs_walk(&walk, AT_FDCWD, "/proc");
	pid_t pid;

	while (!ret && (pid = procfs_next(&walk)) >= 0)
		if (!s->ask->ignore_pid || pid != s->ask->ignore_pid)
			ret = holders_is_slow(s, pid) ? holders_put_off(s, pid, 0)
						      : holders_look_at_process(s, &(struct holders_rest){.pid = pid});
	procfs_walk_end(&walk);
	return ret;
}

static int holders_search_these(struct holders_state *s)
{
	int ret = 0;

	for (size_t i = 0; i < s->ask->pid_count && !ret; i++)
		ret = holders_look_at_process(s, &(struct holders_rest){.pid = s->ask->pids[i]});
	return ret;
}

int holders_search(struct holders_search *ask)
{
	struct holders_state s = {.ask = ask, .turn_ns = TURN_NS, .unite_at = UNITE_MIN};
	int ret;

	ask->unseen = 0;
	ret = file_index_build(&s.index, ask->files, ask->count);
	if (!ret)
		ret = ask->pids ? holders_search_these(&s) : holders_search_all(&s);
	if (!ret)
		ret = holders_on_turn(&s);
	while (!ret && holders_take_round(&s, &ret))
		s.turn_ns *= s.turn_ns < INT64_MAX / 4 ? 2 : 1;
	ask->unseen = s.unseen;
	file_index_free(&s.index);
	procfs_free(&s.text);
	utarray_done(&s.found);
	utarray_done(&s.rests);
	utarray_done(&s.slow);
	return ret ? ret : s.error;
}

int holders_of_process(pid_t pid, const struct holders_file *file, holders_cb *cb, void *arg)
{
	struct holders_search ask = {.files = file, .count = 1, .pids = &pid, .pid_count = 1, .cb = cb, .arg = arg};
	int ret = holders_search(&ask);

	return ret ? ret : ask.unseen ? -EACCES : 0;
}

/* A thread that has not ended: what is left of a first one is root's in /proc. */
static pid_t sight_thread(pid_t pid)
{
	struct procfs_walk tasks;
	struct procfs_stat stat;
	char path[32];
	pid_t tid = pid;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (!procfs_stat_read(AT_FDCWD, path, &stat) || stat.state != 'Z')
		return pid;
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	if (procfs_walk(&tasks, AT_FDCWD, path) == 0)
		while (tid == pid && (tid = procfs_next(&tasks)) >= 0)
			;
	procfs_walk_end(&tasks);
	return tid < 0 ? pid : tid;
}

/* -errno if what it has cannot be seen. */
static int sight_look(pid_t tid)
{
	static const char *const names[] = {"fd", "fdinfo"};
	char path[40];

	for (int i = 0; i < 2; i++) {
		int fd;

		snprintf(path, sizeof(path), "/proc/%d/%s", (int)tid, names[i]);
		fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd < 0)
			return -errno;
		close(fd);
	}
	return 0;
}

enum sight sight_of(pid_t pid)
{
	int ret;

	if (pid <= 0)
		return SIGHT_GONE;
	ret = sight_look(pid);
	if (ret == -EACCES)
		ret = sight_look(sight_thread(pid));
	if (!ret)
		return SIGHT_OPEN;
	if (kill(pid, 0) != 0)
		return errno == EPERM ? SIGHT_BEYOND : SIGHT_GONE;
	/* Else hidepid=2 hides it, or no descriptor is left. */
	return ret == -EACCES || ret == -EPERM ? SIGHT_SIGNAL : SIGHT_BEYOND;
}
