/*
 * What the freezer does to processes, done to the simulation's programs: keeper/guard/stopped.h and keeper/kernel/family.h, and the
 * search for holders, which asks the real kernel what each program's descriptor has.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "keeper/kernel/family.h"
#include "keeper/kernel/census.h"
#include "keeper/guard/farewell.h"
#include "keeper/kernel/holders.h"
#include "keeper/guard/stopped.h"
#include "keeper/leases/hidden.h"
#include "tests/sim/sim.h"

int __wrap_holders_search(struct holders_search *ask);
enum sight __wrap_sight_of(pid_t pid);

/* --- keeper/guard/stopped.h: the table is the product's own --- */

void stopped_stop(struct stopped *s, pid_t pid, uint64_t stores)
{
	struct thread *known = threads_find(&s->threads, pid);
	struct program *p = program_of_pid(pid);

	if (known)
		known->stores |= stores;
	if (known || !p || p->state == PROGRAM_ENDED)
		return;
	if (!threads_add(
		    &s->threads,
		    &(struct thread){.pid = pid, .tid = pid, .how = THREAD_TRACED, .stopped = true, .stores = stores}))
		abort();
	program_freeze(p, true);
}

void stopped_collect(struct stopped *s)
{
	struct thread *t, *next;

	HASH_ITER (hh, s->threads.all, t, next)
		if (program_of_pid(t->pid)->state == PROGRAM_ENDED)
			threads_remove(&s->threads, t);
}

void stopped_limit(struct stopped *s, int64_t limit_ns) {}

uint64_t stopped_stores(const struct stopped *s)
{
	uint64_t stores = 0;

	for (const struct thread *t = s->threads.all; t; t = t->hh.next)
		stores |= t->stores;
	return stores;
}

bool stopped_may_go(const struct stopped *s, uint64_t still) { return s->threads.all; }

unsigned stopped_let_go(struct stopped *s, uint64_t still)
{
	unsigned count = threads_count(&s->threads);
	struct thread *t, *next;

	HASH_ITER (hh, s->threads.all, t, next) {
		t->stores &= still;
		if (t->stores)
			continue;
		program_freeze(program_of_pid(t->pid), false);
		threads_remove(&s->threads, t);
	}
	return count - threads_count(&s->threads);
}

/* No program here is stopped by a signal. */
void stopped_adopt(struct stopped *s, struct table_signalled *noted, size_t room) {}
bool signalled_continue_kin(struct signalled *signalled) { return false; }
void stopping_forget(struct host *host) { host->freezer = NULL; /* it goes with the process */ }

/* --- keeper/kernel/family.h: no program here has children --- */

/* No program of the simulator is another user's, and dflock break is root's. */
bool family_owner(pid_t pid, uid_t *owner)
{
	*owner = 0;
	return true;
}

bool family_stat(pid_t pid, struct procfs_stat *stat) { return false; }
int family_threads(pid_t pid, int (*each)(void *arg, pid_t pid, pid_t tid), void *arg) { return each(arg, pid, pid); }

char family_state(pid_t pid)
{
	const struct program *p = program_of_pid(pid);

	return !p || p->state == PROGRAM_ENDED ? 0 : p->frozen ? 't' : 'S';
}

bool family_is_held(pid_t pid)
{
	const struct program *p = program_of_pid(pid);

	return !p || p->state == PROGRAM_ENDED || p->frozen;
}

/* What `pids` has here. */
struct member_of_family {
	pid_t pid;
	uint64_t marks;
};

static struct member_of_family *family_entry(const struct family *family, size_t i)
{
	return array_at(&family->pids, i);
}

static struct member_of_family *family_find(const struct family *family, pid_t pid)
{
	for (size_t i = 0; i < family_count(family); i++)
		if (family_entry(family, i)->pid == pid)
			return family_entry(family, i);
	return NULL;
}

size_t family_count(const struct family *family) { return utarray_len(&family->pids); }
pid_t family_at(const struct family *family, size_t i) { return family_entry(family, i)->pid; }
bool family_has(const struct family *family, pid_t pid) { return family_find(family, pid) != NULL; }

int family_add(struct family *family, pid_t pid)
{
	const struct member_of_family member = {.pid = pid};

	return family_has(family, pid) ? 0 : array_push(&family->pids, &member, sizeof(member));
}

bool family_mark(struct family *family, pid_t pid, uint64_t marks)
{
	struct member_of_family *member = family_find(family, pid);
	bool news = member && marks & ~member->marks;

	if (member)
		member->marks |= marks;
	return news;
}

uint64_t family_marks(const struct family *family, pid_t pid)
{
	const struct member_of_family *member = family_find(family, pid);

	return member ? member->marks : 0;
}

void family_unmark(struct family *family, uint64_t marks)
{
	for (size_t i = 0; i < family_count(family);) {
		family_entry(family, i)->marks &= ~marks;
		if (family_entry(family, i)->marks)
			i++;
		else
			utarray_erase(&family->pids, i, 1);
	}
}

/* No number is used twice here. */
bool family_member_has_ended(const struct family *family, pid_t pid) { return !family_state(pid); }

int family_add_living(struct family *family, const struct family *from, uint64_t marks)
{
	for (size_t i = 0; i < family_count(from); i++) {
		const struct member_of_family *member = family_entry(from, i);

		if (!(member->marks & marks) || family_member_has_ended(from, member->pid))
			continue;
		if (family_add(family, member->pid) < 0)
			return -ENOMEM;
		family_mark(family, member->pid, member->marks & marks);
	}
	return 0;
}

void family_show(struct family *family, pid_t pid, int fd, uint64_t tag) {}
int family_add_descendants(struct family *family, pid_t except) { return 0; }

void family_free(struct family *family)
{
	utarray_done(&family->pids);
	*family = (struct family){0};
}

/* --- keeper/guard/farewell.h --- */

int farewell_ms(struct table *table) { return 0; }

/* The programs of the simulation have no standard error, and their numbers may be those of real processes. */
bool farewell(struct table *table, const struct family *family, enum farewell_end how, bool last) { return true; }

/* --- keeper/kernel/census.h and keeper/leases/hidden.h: every program here has a descriptor of what it locks --- */

int census_take(const struct claims *claims, struct holders_search *ask)
{
	ask->files = claims->files;
	ask->count = claims->file_count;
	return ask->count ? holders_search(ask) : 0;
}

enum sight __wrap_sight_of(pid_t pid) { return program_of_pid(pid) ? SIGHT_OPEN : SIGHT_GONE; }
void hidden_due(struct lease *lease) {}

/* --- keeper/kernel/holders.h --- */

struct reading {
	const struct holders_search *ask;
	const struct program *program;
	size_t file;
};

static int on_lock(void *arg, const struct procfs_lock *lock)
{
	const struct reading *r = arg;
	struct holder h = {.file = r->file,
			   .pid = r->program->pid,
			   .fd = r->program->fd,
			   .space = lock->space,
			   .owner = lock->owner,
			   .mode = lock->mode,
			   .from = lock->from,
			   .to = lock->to,
			   .locker = lock->locker,
			   .command = ""};
	int ret = r->ask->seen ? r->ask->seen(r->ask->arg, lock) : 0;

	if (ret == 0)
		ret = r->ask->cb(r->ask->arg, &h);
	return ret == HOLDERS_LATER ? 0 : ret;
}

static int read_locks(struct reading *r) { return procfs_fdinfo_of(r->program->fd, NULL, on_lock, r); }

int __wrap_holders_search(struct holders_search *ask)
{
	const struct host *host = task_host(task_now);
	int ret = 0;

	ask->unseen = 0;
	for (int i = 0; i < sim_program_count && ret == 0; i++) {
		const struct program *p = &sim_programs[i];
		struct stat st;

		if (p->host != host || p->fd < 0 || fstat(p->fd, &st) != 0)
			continue;
		for (size_t f = 0; f < ask->count && ret == 0; f++)
			if (ask->files[f].dev == st.st_dev && ask->files[f].ino == st.st_ino) {
				ret = read_locks(&(struct reading){.ask = ask, .program = p, .file = f});
				break;
			}
	}
	return ret;
}
