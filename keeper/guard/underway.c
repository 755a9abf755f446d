/* See underway.h. */
#include "keeper/guard/underway.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "keeper/guard/table_file.h"
#include "keeper/guard/table_words.h"

#define UNDERWAY_MAGIC   UINT64_C(0x79617772646e7564)
#define UNDERWAY_VERSION 1

struct underway_file {
	struct table_file_mark mark;
	uint64_t used; /* entries beyond this were never taken */
	struct underway_call calls[UNDERWAY_CALLS];
};

/* --- the file --- */

int underway_open(struct underway *u, int dir_fd)
{
	void *map;
	int ret = table_file_map(dir_fd, UNDERWAY_NAME, UNDERWAY_MAGIC, UNDERWAY_VERSION, sizeof(*u->file), true, &map);

	u->file = ret < 0 ? NULL : map;
	return ret;
}

void underway_close(struct underway *u)
{
	if (u->file)
		munmap(u->file, sizeof(*u->file));
	u->file = NULL;
}

const void *underway_bytes(const struct underway *u, size_t *bytes)
{
	*bytes = sizeof(*u->file);
	return u->file;
}

/* --- the entries --- */

static size_t underway_used(const struct underway *u)
{
	uint64_t used = u->file ? table_get64(&u->file->used) : 0;

	return used < UNDERWAY_CALLS ? used : UNDERWAY_CALLS;
}

static bool underway_is_same(const struct underway_call *a, const struct underway_call *b)
{
	return memcmp(a, b, offsetof(struct underway_call, taken)) == 0;
}

/* False: the entry is free. */
static bool underway_get(const struct underway *u, size_t at, struct underway_call *out)
{
	if (!table_get64(&u->file->calls[at].taken))
		return false;
	*out = u->file->calls[at];
	return true;
}

static bool underway_get_of(const struct underway *u, size_t at, int32_t thread, struct underway_call *out)
{
	return u->file->calls[at].thread == thread && underway_get(u, at, out);
}

size_t underway_count(const struct underway *u, uid_t uid, size_t *of_user)
{
	size_t used = underway_used(u), count = 0;

	*of_user = 0;
	for (size_t i = 0; i < used; i++) {
		const bool taken = table_get64(&u->file->calls[i].taken) != 0;

		count += taken;
		*of_user += taken && u->file->calls[i].uid == uid;
	}
	return count;
}

int underway_note(struct underway *u, const struct underway_call *call)
{
	size_t used = underway_used(u), free_at = used;
	struct underway_call *c, found;

	for (size_t i = 0; i < used; i++) {
		if (!table_get64(&u->file->calls[i].taken))
			free_at = i;
		else if (underway_get_of(u, i, call->thread, &found) && underway_is_same(&found, call))
			return 0;
	}
	if (!u->file || free_at >= UNDERWAY_CALLS)
		return -ENOSPC;
	c = &u->file->calls[free_at];
	table_put_bytes(c, call, offsetof(struct underway_call, taken));
	table_put64(&c->taken, 1);
	if (free_at == used)
		table_put64(&u->file->used, used + 1); /* mutant: underway-used */
	return 0;
}

static void underway_free(struct underway *u, size_t at)
{
	table_put64(&u->file->calls[at].taken, 0);
}

bool underway_begin(struct underway *u, int32_t thread, uint64_t started, uint64_t number)
{
	size_t used = underway_used(u);
	struct underway_call found;

	for (size_t i = 0; i < used; i++)
		if (underway_get_of(u, i, thread, &found) && found.started == started &&
		    (int64_t)(found.number - number) > 0) /* mutant: underway-stale */
			return false;
	for (size_t i = 0; i < used; i++)
		if (underway_get_of(u, i, thread, &found) && (found.started != started || found.number != number))
			underway_free(u, i);
	return true;
}

bool underway_is_on(const struct underway_call *c, uint64_t dev, uint64_t ino, uint32_t space, int64_t from, int64_t to)
{
	return c->dev == dev && c->ino == ino && c->space == space && c->from < to && from < c->to;
}

bool underway_any(const struct underway *u)
{
	struct underway_call call;
	size_t next = 0;

	return underway_next(u, &next, &call);
}

bool underway_next(const struct underway *u, size_t *next, struct underway_call *out)
{
	for (size_t used = underway_used(u); *next < used; (*next)++)
		if (underway_get(u, *next, out)) {
			(*next)++;
			return true;
		}
	return false;
}

bool underway_next_of(const struct underway *u, int32_t thread, size_t *next, struct underway_call *out)
{
	for (size_t used = underway_used(u); *next < used; (*next)++)
		if (underway_get_of(u, *next, thread, out)) {
			(*next)++;
			return true;
		}
	return false;
}

void underway_end(struct underway *u, const struct underway_call *call)
{
	size_t used = underway_used(u);

	for (size_t i = 0; i < used; i++)
		if (u->file->calls[i].taken && underway_is_same(&u->file->calls[i], call))
			underway_free(u, i);
}
