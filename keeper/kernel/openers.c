/* See openers.h. */
#include "keeper/kernel/openers.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "keeper/clock.h"
#include "procfs/procfs.h"

#define SEEK_AGAIN_NS    (600000 * NS_PER_MS) /* found: it may have been renamed */
#define NOWHERE_AGAIN_NS (300000 * NS_PER_MS)
#define FIRST_READS      3 /* listed.h: a lock may be missing in one */

/* --- the list --- */

struct openers_reading {
	struct openers *openers;
	size_t listed, over;
};

static struct opener_key openers_key(const struct procfs_lock *lock)
{
	return (struct opener_key){.dev = lock->dev, .ino = lock->ino, .locker = lock->locker};
}

struct opener *openers_find(struct openers *o, const struct opener_key *key)
{
	struct opener *opener;

	HASH_FIND(hh, o->all, key, sizeof(*key), opener);
	return opener;
}

static struct opener *openers_add(struct openers *o, const struct opener_key *key)
{
	struct opener *opener = HASH_COUNT(o->all) < OPENERS_MAX ? calloc(1, sizeof(*opener)) : NULL;

	if (!opener)
		return NULL;
	opener->key = *key;
	opener->before = !o->began; /* mutant: past-before */
	HASH_ADD(hh, o->all, key, sizeof(opener->key), opener);
	return opener;
}

static void openers_refresh(struct opener *opener, int64_t now)
{
	int64_t age = now - opener->sought_ns;

	if ((opener->state == OPENER_FOUND || opener->state == OPENER_OTHER) && age > SEEK_AGAIN_NS)
		openers_seek_again(opener);
	if (opener->state == OPENER_NOWHERE && age > NOWHERE_AGAIN_NS)
		openers_seek_again(opener);
}

static int openers_on_listed(void *arg, const struct procfs_lock *lock)
{
	struct openers_reading *reading = arg;
	struct openers *o = reading->openers;
	struct opener_key key = openers_key(lock);
	struct openers_lock seen = {.opener = openers_find(o, &key), .lock = *lock};

	reading->listed++;
	if (!seen.opener)
		seen.opener = openers_add(o, &key);
	if (!seen.opener) {
		reading->over++;
		return 0;
	}
	if (seen.opener->look != o->look) {
		openers_refresh(seen.opener, clock_now_ns());
		seen.opener->looks++;
	}
	seen.opener->look = o->look;
	if (seen.opener->unused)
		return 0;
	if (utarray_len(&o->locks) >= OPENERS_MAX) {
		reading->over++;
		return 0;
	}
	return array_push(&o->locks, &seen, sizeof(seen));
}

static void openers_remove(struct openers *o, struct opener *opener)
{
	HASH_DEL(o->all, opener);
	free(opener->paths);
	free(opener);
}

static int openers_read_list(struct openers *o)
{
	struct openers_reading reading = {.openers = o};
	struct opener *opener, *next;
	int ret = 0;

	for (int i = 0; i < (o->began ? 1 : FIRST_READS) && ret == 0; i++) {
		reading.listed = reading.over = 0;
		array_cut(&o->locks, 0);
		ret = procfs_locks(openers_on_listed, &reading);
	}
	o->listed = reading.listed;
	o->over = reading.over;
	if (ret < 0)
		return ret;
	HASH_ITER (hh, o->all, opener, next)
		if (opener->look != o->look)
			openers_remove(o, opener);
	return 0;
}

/* --- the descriptors --- */

struct openers_seek {
	struct openers *openers;
	struct procfs_text text;
	size_t left; /* openers that are sought */

	/* The descriptor that is looked at. */
	pid_t pid;
	int procfd, fds, fd;
	struct opener *found[8];
	size_t count;
};

static int openers_on_shown(void *arg, const struct procfs_lock *lock)
{
	struct openers_seek *s = arg;
	struct opener_key key = openers_key(lock);
	struct opener *opener = openers_find(s->openers, &key);

	if (!opener || opener->state != OPENER_NEW)
		return 0;
	for (size_t i = 0; i < s->count; i++)
		if (s->found[i] == opener)
			return 0;
	if (s->count < sizeof(s->found) / sizeof(*s->found))
		s->found[s->count++] = opener;
	return 0;
}

/* A keeper's own lock is a probe. */
static bool openers_is_keeper(int procfd)
{
	static const char name[] = "/dflockd", deleted[] = " (deleted)";
	char exe[PATH_MAX];
	ssize_t len = readlinkat(procfd, "exe", exe, sizeof(exe) - 1);
	char *end;

	if (len < 0)
		return false;
	exe[len] = '\0';
	end = exe + len;
	if (len > (ssize_t)strlen(deleted) && strcmp(end - strlen(deleted), deleted) == 0)
		*(end -= strlen(deleted)) = '\0';
	return end - exe >= (ssize_t)strlen(name) && strcmp(end - strlen(name), name) == 0;
}

static enum opener_state openers_learn(struct openers_seek *s, int mount_id, char **paths, bool *plain)
{
	static const char deleted[] = " (deleted)";
	char number[16], path[PATH_MAX];
	ssize_t len;

	*paths = NULL;
	snprintf(number, sizeof(number), "%d", s->fd);
	len = readlinkat(s->fds, number, path, sizeof(path) - 1);
	if (len <= 0 || len == (ssize_t)sizeof(path) - 1)
		return OPENER_NOWHERE;
	path[len] = '\0';
	if (*path != '/' || openers_is_keeper(s->procfd))
		return OPENER_OTHER;
	/* No other process can open it by this name, so it excludes none. */
	if (len > (ssize_t)strlen(deleted) && strcmp(path + len - strlen(deleted), deleted) == 0)
		return OPENER_OTHER;
	return mountmap_paths(&s->openers->mounts, s->pid, mount_id, path, paths, plain) < 0 ? OPENER_OTHER
											     : OPENER_FOUND;
}

static void openers_found(struct openers_seek *s, int mount_id)
{
	for (size_t i = 0; i < s->count; i++) {
		struct opener *opener = s->found[i];

		opener->pid = s->pid;
		opener->fd = s->fd;
		opener->state = openers_learn(s, mount_id, &opener->paths, &opener->plain);
		opener->sought_ns = clock_now_ns();
		s->left--;
	}
}

static int openers_seek_in_fd(struct openers_seek *s, int fdinfos)
{
	struct procfs_fdinfo info;
	char name[16];
	int ret;

	if (procfs_kind(s->fds, s->fd) != PROCFS_FILE)
		return 0;
	snprintf(name, sizeof(name), "%d", s->fd);
	ret = procfs_read(fdinfos, name, &s->text);
	if (ret < 0)
		return ret == -ENOMEM ? ret : 0; /* closed meanwhile */
	if (!strstr(s->text.text, "\nlock:"))
		return 0;
	s->count = 0;
	procfs_fdinfo(s->text.text, &info, openers_on_shown, s);
	openers_found(s, info.mount_id);
	return 0;
}

static bool openers_leaves(const struct openers *o)
{
	return o->leave && __atomic_load_n(o->leave, __ATOMIC_RELAXED);
}

/* What of it cannot be read shows nothing. */
static int openers_seek_in(struct openers_seek *s, pid_t pid)
{
	struct procfs_walk fds = {.dir = NULL};
	char name[32];
	int fdinfos = -1, ret = 0;

	snprintf(name, sizeof(name), "/proc/%d", (int)pid);
	s->pid = pid;
	s->procfd = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (s->procfd < 0)
		return errno == EMFILE || errno == ENFILE ? -errno : 0;
	if (procfs_walk(&fds, s->procfd, "fd") == 0)
		fdinfos = openat(s->procfd, "fdinfo", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fdinfos >= 0) {
		s->fds = procfs_walk_fd(&fds);
		while (ret == 0 && s->left && !openers_leaves(s->openers) && (s->fd = procfs_next(&fds)) >= 0)
			ret = openers_seek_in_fd(s, fdinfos);
		close(fdinfos);
	}
	procfs_walk_end(&fds);
	close(s->procfd);
	return ret;
}

static int openers_by_locker(const void *a, const void *b)
{
	const struct openers_lock *x = a, *y = b;

	return x->lock.locker < y->lock.locker ? -1 : x->lock.locker > y->lock.locker;
}

/* The processes that took a lock which is sought, each once. */
static int openers_seek_in_lockers(struct openers_seek *s)
{
	struct openers *o = s->openers;
	pid_t last = 0;
	int ret = 0;

	array_sort(&o->locks, openers_by_locker);
	for (size_t i = 0; i < utarray_len(&o->locks) && ret == 0 && s->left; i++) {
		const struct openers_lock *l = array_at(&o->locks, i);

		if (l->opener->state != OPENER_NEW || l->lock.locker <= 0 || l->lock.locker == last)
			continue;
		last = l->lock.locker;
		ret = openers_seek_in(s, last);
	}
	return ret;
}

/* A process that has inherited the descriptor of another one's lock, or whose locks say nothing of it (OFD). */
static int openers_seek_in_all(struct openers_seek *s)
{
	struct procfs_walk walk;
	int ret = procfs_walk(&walk, AT_FDCWD, "/proc");
	pid_t pid;

	while (ret == 0 && s->left && !openers_leaves(s->openers) && (pid = procfs_next(&walk)) >= 0)
		ret = openers_seek_in(s, pid);
	procfs_walk_end(&walk);
	return ret;
}

/* Most locks that nobody shows have only just been dropped: the second look at one is worth a search. */
static bool openers_is_worth_all(const struct opener *opener)
{
	return opener->state == OPENER_NEW && opener->looks > 1;
}

static size_t openers_count(const struct openers *o, bool worth_all)
{
	const struct opener *opener, *next;
	size_t count = 0;

	HASH_ITER (hh, o->all, opener, next)
		count += worth_all ? openers_is_worth_all(opener) : opener->state == OPENER_NEW;
	return count;
}

static int openers_seek(struct openers *o)
{
	struct openers_seek s = {.openers = o, .left = openers_count(o, false)};
	struct opener *opener, *next;
	int ret = s.left ? mountmap_refresh(&o->mounts) : 0;

	if (s.left && ret == 0)
		ret = openers_seek_in_lockers(&s);
	if (s.left && ret == 0 && openers_count(o, true))
		ret = openers_seek_in_all(&s);
	procfs_free(&s.text);
	if (ret == 0 && openers_leaves(o))
		ret = -ECANCELED;
	o->nowhere = 0;
	HASH_ITER (hh, o->all, opener, next) {
		if (ret == 0 && openers_is_worth_all(opener)) {
			opener->state = OPENER_NOWHERE;
			opener->sought_ns = clock_now_ns();
		}
		o->nowhere += opener->state == OPENER_NOWHERE;
	}
	return ret;
}

int openers_look(struct openers *o)
{
	int ret;

	o->look++;
	ret = openers_read_list(o);
	if (ret == 0)
		ret = openers_seek(o);
	if (ret == 0 && !o->over)
		o->began = true;
	return ret;
}

/* --- the owner --- */

void openers_free(struct openers *o)
{
	struct opener *opener, *next;

	HASH_ITER (hh, o->all, opener, next)
		openers_remove(o, opener);
	utarray_done(&o->locks);
	mountmap_free(&o->mounts);
}

void openers_seek_again(struct opener *opener)
{
	free(opener->paths);
	opener->paths = NULL;
	opener->state = OPENER_NEW;
	opener->unused = opener->alien = opener->checked = false;
}

void openers_begin_again(struct openers *o)
{
	struct opener *opener, *next;

	HASH_ITER (hh, o->all, opener, next) {
		opener->before = opener->before || opener->unused || opener->alien;
		openers_seek_again(opener);
	}
	o->began = false;
}

struct openers_wanted {
	const struct opener_key *key;
	enum wire_space space;
};

static int openers_on_wanted(void *arg, const struct procfs_lock *lock)
{
	const struct openers_wanted *wanted = arg;

	return lock->dev == wanted->key->dev && lock->ino == wanted->key->ino && lock->locker == wanted->key->locker &&
	       lock->space == wanted->space;
}

bool openers_shown(pid_t pid, int fd, const struct opener_key *key, enum wire_space space)
{
	struct openers_wanted wanted = {.key = key, .space = space};
	struct procfs_text text = {0};
	char name[64];
	bool shown;

	snprintf(name, sizeof(name), "/proc/%d/fdinfo/%d", (int)pid, fd);
	shown = procfs_read(AT_FDCWD, name, &text) == 0 &&
		procfs_fdinfo(text.text, NULL, openers_on_wanted, &wanted) == 1;
	procfs_free(&text);
	return shown;
}
