/*
 * What the freezer does to processes, done to the simulation's programs: keeper/stopped.h and keeper/family.h, and the
 * search for holders, which asks the real kernel what each program's descriptor has.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "keeper/family.h"
#include "keeper/hidden.h"
#include "keeper/holders.h"
#include "keeper/stopped.h"
#include "tests/sim/sim.h"

int __wrap_holders_find(const struct holders_file *files, size_t count, pid_t ignore_pid, holders_cb *cb, void *arg,
			size_t *unseen);

static struct program *find(pid_t pid)
{
	for (int i = 0; i < sim_program_count; i++)
		if (sim_programs[i].pid == pid)
			return &sim_programs[i];
	return NULL;
}

/* --- keeper/stopped.h --- */

void stopped_stop(struct stopped *s, pid_t pid)
{
	struct program *p = find(pid);
	struct thread *threads;

	for (size_t i = 0; i < s->count; i++)
		if (s->threads[i].pid == pid)
			return;
	if (!p || p->state == PROGRAM_ENDED)
		return;
	threads = realloc(s->threads, (s->count + 1) * sizeof(*threads));
	if (!threads)
		abort();
	s->threads = threads;
	s->threads[s->count++] = (struct thread){.pid = pid, .tid = pid, .stopped = true};
	s->changed = true;
	program_freeze(p, true);
}

void stopped_collect(struct stopped *s)
{
	for (size_t i = s->count; i-- > 0;)
		if (find(s->threads[i].pid)->state == PROGRAM_ENDED) {
			s->threads[i] = s->threads[--s->count];
			s->changed = true;
		}
}

bool stopped_all(const struct stopped *s)
{
	(void)s;
	return true;
}

bool stopped_all_held(const struct stopped *s)
{
	(void)s;
	return true;
}

void stopped_limit(struct stopped *s, int64_t limit_ns)
{
	(void)s, (void)limit_ns;
}

bool signalled_continue_kin(struct signalled *signalled)
{
	(void)signalled;
	return false;
}

void stopped_warn(struct stopped *s)
{
	(void)s;
}

void stopped_kill_rest(struct stopped *s)
{
	(void)s;
}

unsigned stopped_let_go(struct stopped *s)
{
	unsigned count = (unsigned)s->count;

	for (size_t i = 0; i < s->count; i++)
		program_freeze(find(s->threads[i].pid), false);
	s->count = 0;
	return count;
}

unsigned stopped_processes(const struct stopped *s)
{
	return (unsigned)s->count;
}

/* Nobody here is stopped by a signal. */
void stopped_adopt(struct stopped *s, struct fence_signalled *noted, size_t room)
{
	(void)s, (void)noted, (void)room;
}

void stopping_forget(struct host *host)
{
	host->freezer = NULL; /* it goes with the process */
}

/* --- keeper/family.h: no program here has children --- */

int family_add(struct family *family, pid_t pid)
{
	for (size_t i = 0; i < family->count; i++)
		if (family->pids[i] == pid)
			return 0;
	family->pids = realloc(family->pids, (family->count + 1) * sizeof(*family->pids));
	if (!family->pids)
		abort();
	family->pids[family->count++] = pid;
	return 0;
}

int family_add_descendants(struct family *family, pid_t except)
{
	(void)family, (void)except;
	return 0;
}

bool family_has(const struct family *family, pid_t pid)
{
	for (size_t i = 0; i < family->count; i++)
		if (family->pids[i] == pid)
			return true;
	return false;
}

void family_free(struct family *family)
{
	free(family->pids);
	*family = (struct family){0};
}

/* --- keeper/hidden.h: every program here has a descriptor of what it locks --- */

int hidden_begin(struct hidden *hidden, const struct holders_file *files, size_t count)
{
	*hidden = (struct hidden){.files = files, .file_count = count};
	return 0;
}

void hidden_seen(struct hidden *hidden, const struct holder *holder)
{
	(void)hidden, (void)holder;
}

int hidden_end(struct hidden *hidden)
{
	(void)hidden;
	return 0;
}

void hidden_free(struct hidden *hidden)
{
	(void)hidden;
}

int hidden_mappers(const struct holders_file *file, struct family *family)
{
	(void)file, (void)family;
	return 0;
}

/* --- keeper/holders.h --- */

static int read_locks(const struct program *p, size_t file, holders_cb *cb, void *arg)
{
	char path[64], line[256];
	struct holder h;
	FILE *f;
	int ret = 0;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", p->fd);
	f = fopen(path, "re");
	while (f && ret == 0 && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = '\0';
		if (!holders_parse_line(line, &h))
			continue;
		h.file = file;
		h.pid = p->pid;
		h.fd = p->fd;
		h.command = "";
		ret = cb(arg, &h);
	}
	if (f)
		fclose(f);
	return ret;
}

int __wrap_holders_find(const struct holders_file *files, size_t count, pid_t ignore_pid, holders_cb *cb, void *arg,
			size_t *unseen)
{
	const struct host *host = task_host(task_now);
	int ret = 0;

	(void)ignore_pid;
	if (unseen)
		*unseen = 0;
	for (int i = 0; i < sim_program_count && ret == 0; i++) {
		const struct program *p = &sim_programs[i];
		struct stat st;

		if (p->host != host || p->fd < 0 || fstat(p->fd, &st) != 0)
			continue;
		for (size_t f = 0; f < count && ret == 0; f++)
			if (files[f].dev == st.st_dev && files[f].ino == st.st_ino) {
				ret = read_locks(p, f, cb, arg);
				break;
			}
	}
	return ret;
}
