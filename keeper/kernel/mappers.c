/* See census.h. */
#include "keeper/kernel/census.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "keeper/array.h"
#include "keeper/kernel/errand.h"
#include "procfs/procfs.h"

#define STUCK_MS 20
#define MAPS_MAX (1u << 21) /* of one process, which may go on making mappings ahead of the reader */

struct mapper {
	pid_t pid;
	size_t file;
};

/* One errand's memory. The mutex guards the fields after it; no thread waits for the kernel while it has the mutex. */
struct mappers_tour {
	pid_t *pids;
	size_t count;
	struct holders_file *files;
	struct file_index index;
	size_t last;   /* the file of the previous mapping, or FILE_NONE */
	unsigned maps; /* atomic: of the present process, read so far */
	pthread_mutex_t mutex;
	size_t at;      /* pids before this are done */
	UT_array found; /* struct mapper */
	bool no_memory;
	bool left; /* the caller has given it up */
};

static void mappers_tour_free(void *memory)
{
	struct mappers_tour *t = memory;

	file_index_free(&t->index);
	pthread_mutex_destroy(&t->mutex);
	free(t->pids);
	free(t->files);
	utarray_done(&t->found);
	free(t);
}

static struct mappers_tour *mappers_tour_new(const pid_t *pids, size_t count, const struct holders_file *files,
					     size_t file_count)
{
	struct mappers_tour *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	pthread_mutex_init(&t->mutex, NULL);
	t->pids = malloc((count + 1) * sizeof(*pids));
	t->files = malloc((file_count + 1) * sizeof(*files));
	if (!t->pids || !t->files) {
		mappers_tour_free(t);
		return NULL;
	}
	memcpy(t->pids, pids, count * sizeof(*pids));
	memcpy(t->files, files, file_count * sizeof(*files));
	t->count = count;
	if (file_index_build(&t->index, t->files, file_count) == 0)
		return t;
	mappers_tour_free(t);
	return NULL;
}

/* --- the errand --- */

static void mappers_add(struct mappers_tour *t, size_t file)
{
	const struct mapper mapper = {.pid = t->pids[t->at], .file = file};

	pthread_mutex_lock(&t->mutex);
	if (array_push(&t->found, &mapper, sizeof(mapper)) < 0)
		t->no_memory = true;
	pthread_mutex_unlock(&t->mutex);
}

static int mappers_on_map(void *arg, const struct procfs_map *map)
{
	struct mappers_tour *t = arg;
	size_t file = FILE_NONE;

	if (__atomic_add_fetch(&t->maps, 1, __ATOMIC_RELAXED) > MAPS_MAX)
		return 1;
	if (!map->ino)
		return 0;
	while ((file = file_index_find(&t->index, map->dev, map->ino, file)) != FILE_NONE) {
		if (file != t->last) /* most have several mappings of a file one after the other */
			mappers_add(t, file);
		t->last = file;
	}
	return 0;
}

static bool mappers_step(struct mappers_tour *t, size_t at)
{
	bool left;

	pthread_mutex_lock(&t->mutex);
	t->at = at;
	__atomic_store_n(&t->maps, 0, __ATOMIC_RELAXED);
	left = t->left;
	pthread_mutex_unlock(&t->mutex);
	t->last = FILE_NONE;
	return !left && at < t->count;
}

static void mappers_run(void *memory)
{
	struct mappers_tour *t = memory;

	for (size_t i = 0; mappers_step(t, i); i++)
		procfs_maps(t->pids[i], mappers_on_map, t); /* it may have ended, or may not be looked into */
}

/* --- the caller --- */

static int mappers_list(UT_array *pids)
{
	struct procfs_walk walk;
	int ret = procfs_walk(&walk, AT_FDCWD, "/proc");
	pid_t pid;

	while (ret == 0 && (pid = procfs_next(&walk)) >= 0)
		ret = array_push(pids, &pid, sizeof(pid));
	procfs_walk_end(&walk);
	return ret;
}

/* Waits until the errand has ended or makes no progress; passes on what it has found. *at: how many processes it is
 * done with. */
static int mappers_wait_for(struct errand *errand, struct mappers_tour *t, mappers_cb *cb, void *arg, size_t *at)
{
	unsigned before = 0, maps;
	bool ended, stuck;
	size_t told = 0;
	int ret = 0;

	*at = 0;
	do {
		ended = errand_wait(errand, STUCK_MS); /* mutant: mappers-look */
		pthread_mutex_lock(&t->mutex);
		maps = __atomic_load_n(&t->maps, __ATOMIC_RELAXED);
		stuck = !ended && t->at == *at && maps == before; /* mutant: mappers-stuck */
		*at = t->at;
		before = maps;
		for (; ret == 0 && told < utarray_len(&t->found); told++) {
			const struct mapper *mapper = array_at(&t->found, told);

			ret = cb(arg, mapper->file, mapper->pid);
		}
		if (ret == 0 && t->no_memory)
			ret = -ENOMEM;
		t->left = ret || stuck;
		pthread_mutex_unlock(&t->mutex);
	} while (!ret && !ended && !stuck);
	return ret;
}

int mappers_find(const struct holders_file *files, size_t count, mappers_cb *cb, void *arg, size_t *passed_over)
{
	UT_array pids = {0};
	int ret = mappers_list(&pids);
	size_t pid_count = utarray_len(&pids);

	*passed_over = 0;
	for (size_t i = 0; ret == 0 && i < pid_count;) {
		struct mappers_tour *tour = mappers_tour_new(array_at(&pids, i), pid_count - i, files, count);
		struct errand *errand = tour ? errand_start(mappers_run, mappers_tour_free, tour) : NULL;
		size_t done;

		if (!tour)
			ret = -ENOMEM;
		if (tour && !errand)
			ret = -EAGAIN; /* the limit of hanging threads is reached */
		if (!errand)
			break;
		ret = mappers_wait_for(errand, tour, cb, arg, &done);
		errand_leave(errand);
		i += done;
		if (ret == 0 && i < pid_count) {
			++*passed_over;
			i++;
		}
	}
	utarray_done(&pids);
	return ret;
}
