/* See family.h. */
#define HASH_NONFATAL_OOM         1
#define uthash_nonfatal_oom(item) ((item)->added = false) /* as hidden.c */
#include <uthash.h>

#include "keeper/kernel/family.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "procfs/procfs.h"

/* --- sets --- */

struct family_member {
	pid_t pid;
	int fd; /* family_show(); else -1 */
	uint64_t tag, marks;
	uint64_t started; /* 0: not known */
	bool added;
	UT_hash_handle hh;
};

size_t family_count(const struct family *family)
{
	return utarray_len(&family->pids);
}

pid_t family_at(const struct family *family, size_t i)
{
	return *(pid_t *)array_at(&family->pids, i);
}

static struct family_member *family_find(const struct family *family, pid_t pid)
{
	struct family_member *member;

	HASH_FIND(hh, family->members, &pid, sizeof(pid), member);
	return member;
}

bool family_has(const struct family *family, pid_t pid)
{
	return family_find(family, pid) != NULL;
}

void family_show(struct family *family, pid_t pid, int fd, uint64_t tag)
{
	struct family_member *member = family_find(family, pid);

	if (!member || member->fd >= 0)
		return;
	member->fd = fd;
	member->tag = tag;
}

int family_shown(const struct family *family, pid_t pid, uint64_t *tag)
{
	const struct family_member *member = family_find(family, pid);

	if (!member || member->fd < 0)
		return -1;
	*tag = member->tag;
	return member->fd;
}

bool family_mark(struct family *family, pid_t pid, uint64_t marks)
{
	struct family_member *member = family_find(family, pid);
	bool news = member && marks & ~member->marks;

	if (news)
		member->marks |= marks;
	return news;
}

uint64_t family_marks(const struct family *family, pid_t pid)
{
	const struct family_member *member = family_find(family, pid);

	return member ? member->marks : 0;
}

int family_add(struct family *family, pid_t pid)
{
	struct family_member *member;

	if (family_has(family, pid))
		return 0;
	member = malloc(sizeof(*member));
	if (!member)
		return -ENOMEM;
	*member = (struct family_member){.pid = pid, .fd = -1, .added = true};
	HASH_ADD(hh, family->members, pid, sizeof(pid), member);
	if (member->added && array_push(&family->pids, &pid, sizeof(pid)) == 0)
		return 0;
	if (member->added)
		HASH_DEL(family->members, member);
	free(member);
	return -ENOMEM;
}

void family_free(struct family *family)
{
	struct family_member *member, *next;

	HASH_ITER (hh, family->members, member, next) {
		HASH_DEL(family->members, member);
		free(member);
	}
	utarray_done(&family->pids);
	*family = (struct family){0};
}

static int family_copy(struct family *family, const struct family_member *from, uint64_t marks)
{
	int ret = family_add(family, from->pid);

	if (ret == 0)
		family_find(family, from->pid)->started = from->started;
	family_mark(family, from->pid, from->marks & marks);
	return ret;
}

bool family_member_has_ended(const struct family *family, pid_t pid)
{
	const struct family_member *member = family_find(family, pid);

	return member && member->started && family_process_has_ended(pid, member->started);
}

int family_add_living(struct family *family, const struct family *from, uint64_t marks)
{
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < family_count(from); i++) {
		const struct family_member *member = family_find(from, family_at(from, i));

		if (member->marks & marks && member->started &&
		    !family_process_has_ended(member->pid, member->started)) /* mutant: family-living */
			ret = family_copy(family, member, marks);
	}
	return ret;
}

void family_unmark(struct family *family, uint64_t marks)
{
	struct family left = {0};
	int ret = 0;

	if (!marks)
		return;
	for (size_t i = 0; ret == 0 && i < family_count(family); i++) {
		const struct family_member *member = family_find(family, family_at(family, i));

		if (member->marks & ~marks)
			ret = family_copy(&left, member, ~marks);
		if (member->marks & ~marks && member->fd >= 0)
			family_show(&left, member->pid, member->fd, member->tag);
	}
	family_free(ret ? &left : family);
	if (!ret)
		*family = left;
}

static int family_compare_parents(const void *a, const void *b)
{
	const struct procfs_stat *x = a, *y = b;

	return (x->parent > y->parent) - (x->parent < y->parent);
}

/* The first of the children of `parent`, or where they would be. */
static size_t family_first_child(const struct procfs_stat *all, size_t count, pid_t parent)
{
	size_t begin = 0;

	while (begin < count) {
		size_t middle = begin + (count - begin) / 2;

		if (all[middle].parent < parent)
			begin = middle + 1;
		else
			count = middle;
	}
	return begin;
}

static int family_add_children(struct family *family, pid_t parent, pid_t except, const struct procfs_stat *all,
			       size_t count, bool *again)
{
	const uint64_t marks = family_marks(family, parent);

	for (size_t j = family_first_child(all, count, parent); j < count && all[j].parent == parent; j++) {
		bool known = family_has(family, all[j].pid);

		if (all[j].pid == except)
			continue;
		if (family_add(family, all[j].pid) < 0)
			return -ENOMEM;
		*again |= family_mark(family, all[j].pid, marks) && known; /* mutant: family-again */
	}
	return 0;
}

int family_add_descendants_of(struct family *family, pid_t except, struct procfs_stat *all, size_t count)
{
	bool again = true;
	int ret = 0;

	if (count)
		qsort(all, count, sizeof(*all), family_compare_parents);
	/* One that was a member before may get marks after its children were looked at. */
	while (ret == 0 && again) {
		again = false;
		/* Members that are added on the way have children, too. */
		for (size_t i = 0; ret == 0 && i < family_count(family); i++)
			ret = family_add_children(family, family_at(family, i), except, all, count, &again);
	}
	for (size_t i = 0; i < count; i++) {
		struct family_member *member = family_find(family, all[i].pid);

		if (member && !member->started)
			member->started = all[i].started;
	}
	return ret;
}

int family_add_descendants(struct family *family, pid_t except)
{
	struct procfs_stat *all;
	size_t count;
	int ret;

	if (!family_count(family))
		return 0;
	ret = family_all(&all, &count);
	if (ret == 0)
		ret = family_add_descendants_of(family, except, all, count);
	free(all);
	return ret;
}

/* --- processes --- */

bool family_stat(pid_t pid, struct procfs_stat *stat)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	return procfs_stat_read(AT_FDCWD, path, stat);
}

bool family_owner(pid_t pid, uid_t *owner)
{
	struct stat st;
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	if (stat(path, &st) != 0)
		return false;
	*owner = st.st_uid;
	return true;
}

char family_state(pid_t pid)
{
	struct procfs_stat stat;

	return family_stat(pid, &stat) ? stat.state : 0;
}

uint64_t family_started(pid_t pid)
{
	struct procfs_stat stat;

	return family_stat(pid, &stat) ? stat.started : 0;
}

pid_t family_tracer(pid_t tid)
{
	struct procfs_status status;

	if (!procfs_status_read(tid, &status) || !status.tracer || !procfs_status_read(status.tracer, &status))
		return 0;
	return status.process;
}

/* A thread that was the first one of a process still has its number while others run: at most `threads` may be left of it. */
static bool family_is_over(pid_t tid, uint64_t started, unsigned threads)
{
	struct procfs_stat stat;
	char path[32], text[1024]; /* as procfs_stat_read() */
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)tid);
	n = procfs_head(AT_FDCWD, path, text, sizeof(text));
	if (n <= 0)
		return n == -ENOENT || n == -ESRCH; /* mutant: family-ended */
	return procfs_stat(text, &stat) &&
	       (stat.started != started || (strchr("ZX", stat.state) && stat.threads <= threads));
}

bool family_has_ended(pid_t tid, uint64_t started)
{
	return family_is_over(tid, started, UINT_MAX);
}

bool family_process_has_ended(pid_t pid, uint64_t started)
{
	return family_is_over(pid, started, 1);
}

int family_all(struct procfs_stat **all, size_t *count)
{
	UT_array found = {0};
	struct procfs_walk walk;
	struct procfs_stat stat;
	int ret = procfs_walk(&walk, AT_FDCWD, "/proc"), pid;

	while (ret == 0 && (pid = procfs_next(&walk)) >= 0)
		if (family_stat(pid, &stat))
			ret = array_push(&found, &stat, sizeof(stat));
	procfs_walk_end(&walk);
	if (ret < 0)
		utarray_done(&found);
	*all = ret < 0 ? NULL : array_items(&found);
	*count = ret < 0 ? 0 : utarray_len(&found);
	return ret;
}

/* --- threads --- */

int family_threads(pid_t pid, int (*cb)(void *arg, pid_t pid, pid_t tid), void *arg)
{
	struct procfs_walk walk;
	char path[32];
	int ret = 0, tid;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	if (procfs_walk(&walk, AT_FDCWD, path) == 0)
		while (ret == 0 && (tid = procfs_next(&walk)) >= 0)
			ret = cb(arg, pid, tid);
	procfs_walk_end(&walk);
	return ret;
}

struct family_states {
	const char *allowed;
	bool others;  /* a thread is in none of the states */
	bool stopped; /* one was stopped by a signal */
};

static int family_note_state(void *arg, pid_t pid, pid_t tid)
{
	struct family_states *states = arg;
	const char state = family_state(tid);

	(void)pid;
	states->stopped |= state == 'T';
	states->others |= !strchr(states->allowed, state); /* 0, of a thread that has gone, is found */
	return states->others;
}

/* Are all threads in one of these states, or gone? */
static bool family_is_in(pid_t pid, struct family_states *states)
{
	family_threads(pid, family_note_state, states);
	return !states->others;
}

bool family_is_stopped(pid_t pid)
{
	return family_is_in(pid, &(struct family_states){.allowed = "TtZX"});
}

bool family_is_held(pid_t pid)
{
	return family_is_in(pid, &(struct family_states){.allowed = "TtZXD"});
}

bool family_has_stop(pid_t pid)
{
	struct family_states states = {.allowed = "TZX"};

	return family_is_in(pid, &states) && states.stopped;
}
