/*
 * See reopen.h. Three steps, each in a worker, and after each the loop decides about the next:
 *
 *   PATH    opens the path without asking for rights (O_PATH), compares the inode, and opens that for reading
 *   SEARCH  for all files that could not be opened: reads the list of locks, and looks at the descriptors of all processes
 *           for those that no path leads to. It takes no more than an O_PATH descriptor: opening a file may block, and
 *           one that does must not keep the others from being found
 *   OPEN    opens what SEARCH has found for reading
 *
 * Never by a copy of a process's own descriptor: that is its description, and a probe would drop its lock.
 *
 * Why "none is listed" may give the lease back (promise 2): the list is read after the lease was closed and its last pin
 * had ended (`since_ns` of PROBING is before `started_ns` of the job). A process that relies on a kernel lock had it
 * before its pin ended, or took it while the page showed the lease, which was closed before; so the list has it. A process
 * that takes the kernel lock later asks again. Unlike a probe, this holds nothing; see probing.c on records, where it is
 * the same.
 */
#include "keeper/leases/reopen.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/leases/keeper.h"
#include "keeper/clock.h"
#include "keeper/kernel/listed.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/queue.h"
#include "keeper/log.h"
#include "keeper/kernel/workers.h"
#include "procfs/procfs.h"

#define CACHED_TRIES 3   /* a mount or a rename elsewhere makes one fail */
#define UNUSED_MS    100 /* in which a lease is looked at again that nobody seems to use */
#define PAUSE_MS     100 /* before a lease that another host waits for is looked at again; doubles */
#define PAUSE_MAX_MS 5000
#define PAUSE_TIMES  10                 /* as long as looking took, at least */
#define SLOW_NS      (1000 * NS_PER_MS) /* after which a file system counts as one that does not answer */

/* "Devices" for workers_start(): a path to a local file may lead through a mount that hangs; and the search. */
#define DEVICE_PATHS  (~UINT64_C(0))
#define DEVICE_SEARCH (~UINT64_C(1))

enum step { STEP_NONE, STEP_PATH, STEP_WAIT, STEP_SEARCH, STEP_OPEN };

struct reopen {
	struct work work; /* the first member */
	struct keeper *keeper;
	struct file *file; /* NULL: freed meanwhile; the job is the last that knows of this */
	enum step step;
	int64_t started_ns; /* the first step */
	struct file_key key;
	bool local;
	char *path;  /* STEP_PATH */
	int path_fd; /* found: O_PATH; -1 */
	int fd;
	bool forbidden; /* it was found once, and could not be opened: the list is of use though it may be found again */
	int error;      /* why it could not be opened, though it was found; 0: it was not found */
	enum listed_answer listed[WIRE_SPACES];
	bool said;
	char trouble[160];
	struct reopen *prev, *next; /* keeper->reopens.searched: STEP_WAIT, or of one search */
};

struct reopen_search {
	struct work work; /* the first member */
	struct keeper *keeper;
	struct reopen *wanted;  /* a list; belongs to the worker until it is done */
	struct reopen **sorted; /* those that no path leads to */
	size_t count;
};

/* --- what may be done anywhere --- */

/* From the kernel's memory: no file server is asked. */
static bool reopen_is_file(int fd, const struct file_key *key)
{
	struct statx st;

	return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO, &st) == 0 && st.stx_ino == key->ino &&
	       makedev(st.stx_dev_major, st.stx_dev_minor) == key->dev;
}

/* A new description of what the O_PATH descriptor names. */
static int open_description(int path_fd)
{
	const int flags = O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
	char link[32];
	int fd;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", path_fd);
	fd = open(link, O_RDONLY | flags);
	if (fd < 0 && errno == EACCES)
		fd = open(link, O_WRONLY | flags);
	return fd < 0 ? -errno : fd;
}

int reopen_at_once(const struct file_key *key, bool local, const char *path)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_CACHED};
	int path_fd = -1, fd = -1;

	for (int i = 0; local && i < CACHED_TRIES && path_fd < 0; i++) {
		path_fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));
		if (path_fd < 0 && errno != EAGAIN)
			return -1;
	}
	if (path_fd < 0)
		return -1;
	if (reopen_is_file(path_fd, key))
		fd = open_description(path_fd);
	close(path_fd);
	return fd < 0 ? -1 : fd;
}

/* Is there one of the files of which no lock has been seen? */
static bool has_unlisted(struct reopen *wanted, const struct listed *listed)
{
	struct reopen *r;
	bool none = false;

	DL_FOREACH (wanted, r)
		for (int i = 0; i < WIRE_SPACES; i++) {
			r->listed[i] = listed_ask(listed, r->key.dev, r->key.ino, i);
			none |= r->listed[i] == LISTED_NONE;
		}
	return none;
}

static void ask_list(struct reopen *wanted)
{
	struct listed *listed = listed_read();

	for (int i = 1; has_unlisted(wanted, listed) && i < LISTED_READS; i++)
		listed_read_again(listed);
	has_unlisted(wanted, listed);
	listed_free(listed);
}

/* --- workers --- */

/* With path_fd, which is closed. */
static void open_found(struct reopen *r)
{
	int ret = open_description(r->path_fd);

	close(r->path_fd);
	r->path_fd = -1;
	r->fd = ret < 0 ? -1 : ret;
	r->error = ret < 0 ? -ret : 0;
	r->forbidden |= ret < 0;
}

static void run_path(struct work *work)
{
	struct reopen *r = (struct reopen *)work;

	r->path_fd = open(r->path, O_PATH | O_CLOEXEC);
	if (r->path_fd < 0)
		return;
	if (reopen_is_file(r->path_fd, &r->key)) {
		open_found(r);
		return;
	}
	close(r->path_fd);
	r->path_fd = -1;
}

static void run_open(struct work *work)
{
	open_found((struct reopen *)work);
}

static int by_key(const void *a, const void *b)
{
	const struct reopen *x = *(struct reopen *const *)a, *y = *(struct reopen *const *)b;

	if (x->key.ino != y->key.ino)
		return x->key.ino < y->key.ino ? -1 : 1;
	return x->key.dev < y->key.dev ? -1 : x->key.dev > y->key.dev;
}

static struct reopen *find_wanted(const struct reopen_search *search, const struct statx *st)
{
	struct reopen key = {.key = {.dev = makedev(st->stx_dev_major, st->stx_dev_minor), .ino = st->stx_ino}};
	struct reopen *wanted = &key, **found;

	found = bsearch(&wanted, search->sorted, search->count, sizeof(*search->sorted), by_key);
	return found ? *found : NULL;
}

static void reopen_look_at_descriptor(const struct reopen_search *search, int dir, int number)
{
	struct reopen *r;
	struct statx st;
	char name[16];

	snprintf(name, sizeof(name), "%d", number);
	if (statx(dir, name, AT_STATX_DONT_SYNC, STATX_INO, &st) != 0)
		return;
	r = find_wanted(search, &st);
	if (!r || r->path_fd >= 0)
		return;
	r->path_fd = openat(dir, name, O_PATH | O_CLOEXEC);
	if (r->path_fd >= 0 && !reopen_is_file(r->path_fd, &r->key)) { /* another one has the number by now */
		close(r->path_fd);
		r->path_fd = -1;
	}
}

static void reopen_look_at_process(const struct reopen_search *search, pid_t pid)
{
	struct procfs_walk fds;
	char path[32];
	int number;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	if (procfs_walk(&fds, AT_FDCWD, path) == 0)
		while ((number = procfs_next(&fds)) >= 0)
			if (procfs_kind(procfs_walk_fd(&fds), number) == PROCFS_FILE) /* most are of no file */
				reopen_look_at_descriptor(search, procfs_walk_fd(&fds), number);
	procfs_walk_end(&fds);
}

static void reopen_look_at_processes(const struct reopen_search *search)
{
	struct procfs_walk walk;
	pid_t pid;

	if (procfs_walk(&walk, AT_FDCWD, "/proc") == 0)
		while ((pid = procfs_next(&walk)) >= 0)
			reopen_look_at_process(search, pid);
	procfs_walk_end(&walk);
}

static void run_search(struct work *work)
{
	struct reopen_search *search = (struct reopen_search *)work;
	bool read_list = false;
	struct reopen *r;

	if (search->count) {
		qsort(search->sorted, search->count, sizeof(*search->sorted), by_key);
		reopen_look_at_processes(search);
	}
	DL_FOREACH (search->wanted, r)
		read_list |= r->path_fd < 0 || r->forbidden;
	if (read_list)
		ask_list(search->wanted);
}

/* --- the loop --- */

static void free_reopen(struct reopen *r)
{
	if (r->path_fd >= 0)
		close(r->path_fd); /* O_PATH: no file server is told */
	free(r->path);
	free(r);
}

static bool is_free(const struct reopen *r, enum wire_space space)
{
	return r->fd < 0 && r->listed[space] == LISTED_NONE;
}

static void note_trouble(struct reopen *r)
{
	static const char *const known[] = {[LISTED_UNKNOWN] = "; whether a process holds a lock on it cannot be known",
					    [LISTED_NONE] = "",
					    [LISTED_SOME] = "; a process holds a lock on it"};
	enum listed_answer worst =
		r->listed[0] == LISTED_NONE ? r->listed[1] : r->listed[0]; /* unknown is so for both */

	if (r->error)
		snprintf(r->trouble, sizeof(r->trouble), "its file cannot be opened (%s)%s", strerror(r->error),
			 known[worst]);
	else
		snprintf(r->trouble, sizeof(r->trouble),
			 "no path leads to its file, nor does a process that the keeper may look into%s", known[worst]);
}

static void say_trouble(struct reopen *r)
{
	if (r->said)
		return;
	r->said = true;
	log_error("%s: its lease is kept: %s; tried again when the lease is wanted elsewhere or has been unused for a "
		  "while",
		  r->file->path, reopen_trouble(r->file));
}

/* The lease is being asked about, and there is nothing to ask with. */
static void reopen_answer(struct reopen *r, struct lease *lease)
{
	int64_t took_ms = (clock_now_ns() - r->started_ns) / NS_PER_MS;

	if (r->started_ns <= lease->since_ns) { /* what was found is from before it was closed: again */
		lease_start_timer(lease, 1);
	} else if (is_free(r, lease->lock->space)) {
		queue_raise(lease, LEASE_EV_FREE);
	} else {
		say_trouble(r);
		lease->probe_pause_ms = lease->probe_pause_ms ? 2 * lease->probe_pause_ms : PAUSE_MS;
		if (lease->probe_pause_ms > PAUSE_MAX_MS)
			lease->probe_pause_ms = PAUSE_MAX_MS;
		if (lease->probe_pause_ms < took_ms * PAUSE_TIMES)
			lease->probe_pause_ms = took_ms * PAUSE_TIMES;
		queue_raise(lease, lease->recall >= RECALL_RULE ? LEASE_EV_IN_USE : LEASE_EV_KEPT);
	}
}

static void tell_lease(struct reopen *r, struct lease *lease)
{
	if (lease_is_probed(lease) || !lease_is_ours(lease->state))
		return;
	if (lease->state == LEASE_PROBING) {
		reopen_answer(r, lease);
	} else if (is_free(r, lease->lock->space)) {
		/* It was not closed when that was found out, but will not be used for long. */
		lease->linger_ns = UNUSED_MS * NS_PER_MS;
		if (lease->state == LEASE_HELD && lease->recall < RECALL_RULE)
			lease_start_timer(lease, UNUSED_MS);
	} else {
		say_trouble(r);
	}
}

static void tell_leases(struct reopen *r)
{
	struct file *file = r->file;
	struct lease *lease;

	for (int i = 0; i < WIRE_SPACES; i++)
		DL_FOREACH (file->locks[i].leases, lease)
			tell_lease(r, lease);
}

static void reopen_finish(struct reopen *r)
{
	struct file *file = r->file;
	int fd = r->fd;

	r->step = STEP_NONE;
	if (!file || r->keeper->leaving || file_is_open(file)) { /* a caller has brought one meanwhile */
		if (fd >= 0)
			file_close(r->keeper, r->key.dev, fd, r->local);
		r->fd = -1;
		if (!file)
			free_reopen(r);
		return;
	}
	if (fd < 0) {
		note_trouble(r);
		tell_leases(r);
		return;
	}
	file->fd = fd;
	if (r->said)
		log_info("%s: can be opened again", file->path);
	file_opened(file);
}

static void start_search(struct keeper *k);

static void on_done(struct work *work)
{
	struct reopen *r = (struct reopen *)work;
	struct keeper *k = r->keeper;

	if (!r->file || r->fd >= 0 || r->step != STEP_PATH) {
		reopen_finish(r);
	} else {
		r->step = STEP_WAIT;
		DL_APPEND(k->reopens.searched, r);
		start_search(k);
	}
	queue_settle(k);
}

static bool start_step(struct reopen *r, enum step step)
{
	r->step = step;
	r->work = (struct work){.run = step == STEP_PATH ? run_path : run_open, .done = on_done};
	return workers_start(r->keeper->workers, r->local ? DEVICE_PATHS : r->key.dev, &r->work) == 0;
}

static void on_searched(struct work *work)
{
	struct reopen_search *search = (struct reopen_search *)work;
	struct keeper *k = search->keeper;
	struct reopen *r, *next;

	k->reopens.searching = false;
	DL_FOREACH_SAFE (search->wanted, r, next) {
		DL_DELETE(search->wanted, r);
		if (!r->file || r->path_fd < 0)
			reopen_finish(r);
		else if (r->local) { /* does not block */
			open_found(r);
			reopen_finish(r);
		} else if (!start_step(r, STEP_OPEN))
			reopen_finish(r);
	}
	free(search->sorted);
	free(search);
	start_search(k);
	queue_settle(k);
}

/* One at a time, for all that wait for one. */
static void start_search(struct keeper *k)
{
	struct reopen_search *search;
	struct reopen *r;

	if (k->reopens.searching || !k->reopens.searched)
		return;
	search = calloc(1, sizeof(*search));
	if (search) {
		*search = (struct reopen_search){.work = {.run = run_search, .done = on_searched}, .keeper = k};
		DL_COUNT(k->reopens.searched, r, search->count);
		search->sorted = calloc(search->count, sizeof(struct reopen *));
	}
	if (!search || !search->sorted)
		abort(); /* leases that could never be given back: a fresh keeper does better */
	search->count = 0;
	DL_FOREACH (k->reopens.searched, r) {
		r->step = STEP_SEARCH;
		if (!r->error) /* else it was found, and only the list is of use */
			search->sorted[search->count++] = r;
	}
	search->wanted = k->reopens.searched;
	k->reopens.searched = NULL;
	k->reopens.searching = true;
	if (workers_start(k->workers, DEVICE_SEARCH, &search->work) < 0)
		abort();
}

/* No memory: as if there were no job; the next one who needs it tries again. */
static struct reopen *get_reopen(struct file *file)
{
	struct reopen *r = file->reopen ? file->reopen : calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	if (!file->reopen) {
		r->keeper = file->keeper;
		r->file = file;
		r->key = file->key;
		r->local = file->local;
		r->path_fd = r->fd = -1;
	}
	file->reopen = r;
	return r;
}

void reopen_file(struct file *file)
{
	struct reopen *r = !file_is_open(file) ? get_reopen(file) : NULL;
	char *path;

	if (!r || r->step != STEP_NONE)
		return;
	path = strdup(file->path); /* it may have changed */
	if (!path)
		return;
	free(r->path);
	r->path = path;
	r->started_ns = clock_now_ns();
	r->fd = -1;
	r->error = 0;
	for (int i = 0; i < WIRE_SPACES; i++)
		r->listed[i] = LISTED_UNKNOWN;
	if (!start_step(r, STEP_PATH))
		r->step = STEP_NONE;
}

void reopen_to_probe(struct lease *lease)
{
	struct file *file = lease->lock->file;

	reopen_file(file);
	lease_start_timer(lease, PAUSE_MAX_MS); /* LEASE_EV_STOPPED, and so here again, if no answer comes */
	if (file->reopen && reopen_trouble(file))
		say_trouble(file->reopen);
}

const char *reopen_trouble(const struct file *file)
{
	const struct reopen *r = file->reopen;

	if (file_is_open(file) || !r)
		return NULL;
	if (r->step != STEP_NONE && clock_now_ns() - r->started_ns > SLOW_NS)
		return "its file system has not answered the keeper";
	return *r->trouble ? r->trouble : NULL;
}

void reopen_forget(struct file *file)
{
	struct reopen *r = file->reopen;

	if (!r)
		return;
	file->reopen = NULL;
	r->file = NULL;
	if (r->step == STEP_NONE)
		free_reopen(r);
}
