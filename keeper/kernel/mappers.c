/*
 * Who has a file mapped: hidden_mappers() of hidden.h.
 *
 * The kernel locks the memory of a process to show its maps, and waits for that lock as long as it takes: a thread that
 * maps or unmaps something on a mount that does not answer has it. So the maps are read in errands. One goes through
 * the processes until it is done; if it does not get on for a moment, it is left behind, and another one goes on with
 * the next process.
 */
#include "keeper/kernel/hidden.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "keeper/kernel/errand.h"

#define STUCK_MS 20

struct mapper {
	pid_t pid;
	size_t file;
};

/* One errand's memory. The mutex is for what follows it; nobody waits for the kernel while holding it. */
struct tour {
	pid_t *pids;
	size_t count;
	struct holders_file *files;
	struct file_index index;
	pthread_mutex_t mutex;
	size_t at; /* pids before this are done */
	struct mapper *found;
	size_t found_count, found_room;
	bool no_memory;
	bool left; /* nobody wants to know any more */
};

static void tour_free(void *memory)
{
	struct tour *t = memory;

	file_index_free(&t->index);
	pthread_mutex_destroy(&t->mutex);
	free(t->pids);
	free(t->files);
	free(t->found);
	free(t);
}

static struct tour *tour_new(const pid_t *pids, size_t count, const struct holders_file *files, size_t file_count)
{
	struct tour *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	pthread_mutex_init(&t->mutex, NULL);
	t->pids = malloc((count + 1) * sizeof(*pids));
	t->files = malloc((file_count + 1) * sizeof(*files));
	if (!t->pids || !t->files) {
		tour_free(t);
		return NULL;
	}
	memcpy(t->pids, pids, count * sizeof(*pids));
	memcpy(t->files, files, file_count * sizeof(*files));
	t->count = count;
	if (file_index_build(&t->index, t->files, file_count) == 0)
		return t;
	tour_free(t);
	return NULL;
}

/* --- the errand --- */

static void add(struct tour *t, pid_t pid, size_t file)
{
	pthread_mutex_lock(&t->mutex);
	if (t->found_count == t->found_room) {
		size_t room = t->found_room ? 2 * t->found_room : 16;
		struct mapper *more = realloc(t->found, room * sizeof(*more));

		if (more) {
			t->found = more;
			t->found_room = room;
		}
	}
	if (t->found_count < t->found_room)
		t->found[t->found_count++] = (struct mapper){.pid = pid, .file = file};
	else
		t->no_memory = true;
	pthread_mutex_unlock(&t->mutex);
}

static void look_at(struct tour *t, pid_t pid)
{
	size_t room = 0, last = FILE_NONE;
	uint64_t dev, ino;
	char path[32], *line = NULL;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	f = fopen(path, "re");
	while (f && getline(&line, &room, f) > 0) {
		size_t file = FILE_NONE;

		if (!procfs_map_line(line, &dev, &ino))
			continue;
		while ((file = file_index_find(&t->index, dev, ino, file)) != FILE_NONE) {
			if (file != last) /* most have several mappings of a file one after the other */
				add(t, pid, file);
			last = file;
		}
	}
	free(line);
	if (f)
		fclose(f);
}

static bool step(struct tour *t, size_t at)
{
	bool left;

	pthread_mutex_lock(&t->mutex);
	t->at = at;
	left = t->left;
	pthread_mutex_unlock(&t->mutex);
	return !left && at < t->count;
}

static void run(void *memory)
{
	struct tour *t = memory;

	for (size_t i = 0; step(t, i); i++)
		look_at(t, t->pids[i]);
}

/* --- the caller --- */

static int list_processes(pid_t **pids, size_t *count)
{
	DIR *proc = opendir("/proc");
	size_t room = 0;
	struct dirent *d;

	*pids = NULL;
	*count = 0;
	if (!proc)
		return -errno;
	while ((d = readdir(proc))) {
		pid_t *more = *pids;

		if (!isdigit((unsigned char)d->d_name[0]))
			continue;
		if (*count == room) {
			room = room ? 2 * room : 256;
			more = realloc(*pids, room * sizeof(*more));
		}
		if (!more) {
			closedir(proc);
			return -ENOMEM;
		}
		*pids = more;
		(*pids)[(*count)++] = (pid_t)atoi(d->d_name);
	}
	closedir(proc);
	return 0;
}

/* Waits until it has ended or does not get on; tells what it has found. How many processes it is done with. */
static int wait_for(struct errand *errand, struct tour *t, hidden_mapper_cb *cb, void *arg, size_t *at)
{
	bool ended, stuck;
	size_t told = 0;
	int ret = 0;

	*at = 0;
	do {
		ended = errand_wait(errand, STUCK_MS);
		pthread_mutex_lock(&t->mutex);
		stuck = !ended && t->at == *at;
		*at = t->at;
		for (; ret == 0 && told < t->found_count; told++)
			ret = cb(arg, t->found[told].file, t->found[told].pid);
		if (ret == 0 && t->no_memory)
			ret = -ENOMEM;
		t->left = ret || stuck;
		pthread_mutex_unlock(&t->mutex);
	} while (!ret && !ended && !stuck);
	return ret;
}

int hidden_mappers(const struct holders_file *files, size_t count, hidden_mapper_cb *cb, void *arg, size_t *passed_over)
{
	size_t process_count;
	pid_t *pids;
	int ret = list_processes(&pids, &process_count);

	*passed_over = 0;
	for (size_t i = 0; ret == 0 && i < process_count;) {
		struct tour *tour = tour_new(pids + i, process_count - i, files, count);
		struct errand *errand = tour ? errand_start(run, tour_free, tour) : NULL;
		size_t done;

		if (!tour)
			ret = -ENOMEM;
		if (tour && !errand)
			ret = -EAGAIN; /* as many threads hang as may */
		if (!errand)
			break;
		ret = wait_for(errand, tour, cb, arg, &done);
		errand_leave(errand);
		i += done;
		if (ret == 0 && i < process_count) {
			++*passed_over;
			i++;
		}
	}
	free(pids);
	return ret;
}
