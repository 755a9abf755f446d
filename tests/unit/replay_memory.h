/* Cells in memory, for rules that run by store/replay/replay.h. What was there once keeps a version when it has
 * gone. */
#ifndef DFLOCK_TESTS_UNIT_REPLAY_MEMORY_H
#define DFLOCK_TESTS_UNIT_REPLAY_MEMORY_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/internal.h"
#include "store/replay/replay.h"

struct memory_cell {
	char *id; /* key, NUL, name */
	size_t id_len;
	const char *key, *name;
	char *value; /* NULL: it has gone */
	size_t len;
	uint64_t version;
	UT_hash_handle hh;
};

struct memory {
	struct memory_cell *cells;
	uint64_t version;
	int64_t now_us;
	char identity[64];
};

static inline struct memory_cell *memory_cell(struct memory *m, const char *key, const char *name, bool make)
{
	size_t key_len = strlen(key) + 1, len = key_len + strlen(name);
	struct memory_cell *cell = NULL;
	char *id = store_need(malloc(len + 1));

	memcpy(id, key, key_len);
	strcpy(id + key_len, name);
	HASH_FIND(hh, m->cells, id, len, cell);
	if (cell || !make) {
		free(id);
		return cell;
	}
	cell = store_need(calloc(1, sizeof(*cell)));
	*cell = (struct memory_cell){.id = id, .id_len = len, .key = id, .name = id + key_len};
	HASH_ADD_KEYPTR(hh, m->cells, cell->id, cell->id_len, cell);
	return cell;
}

/* Of the hash as a whole: that of its cell "*". */
static inline void memory_set(struct memory *m, const char *key, const char *name, const char *value, size_t len)
{
	struct memory_cell *cell = memory_cell(m, key, name, true);

	free(cell->value);
	cell->value = value ? store_need(malloc(len + 1)) : NULL;
	cell->len = len;
	if (value)
		memcpy(cell->value, value, len + 1);
	cell->version = memory_cell(m, key, "*", true)->version = ++m->version;
}

static inline void memory_clear(struct memory *m)
{
	struct memory_cell *cell, *next;

	HASH_ITER (hh, m->cells, cell, next)
		if (cell->value)
			memory_set(m, cell->key, cell->name, NULL, 0);
}

static inline void memory_free(struct memory *m)
{
	struct memory_cell *cell, *next;

	HASH_ITER (hh, m->cells, cell, next) {
		HASH_DEL(m->cells, cell);
		free(cell->value);
		free(cell->id);
		free(cell);
	}
}

/* A copy, in its own table. */
static inline void memory_copy(struct memory *to, const struct memory *from)
{
	struct memory_cell *cell, *next;

	memory_clear(to);
	HASH_ITER (hh, from->cells, cell, next)
		if (cell->value)
			memory_set(to, cell->key, cell->name, cell->value, cell->len);
}

static inline void memory_put_one(struct memory *m, struct replay_run *run, const char *key, const char *name)
{
	const struct memory_cell *cell = memory_cell(m, key, name, false);

	replay_put(run, key, name, cell ? cell->value : NULL, cell ? cell->len : 0, cell ? cell->version : 0);
}

/* One page with all. */
static inline void memory_put_page(struct memory *m, struct replay_run *run, const char *name)
{
	size_t len = 2, size = 2;
	struct memory_cell *cell, *next;
	char *text;

	HASH_ITER (hh, m->cells, cell, next)
		size += strlen(cell->key) + 1;
	text = store_need(malloc(size));
	memcpy(text, "0", 2);
	HASH_ITER (hh, m->cells, cell, next) {
		if (!cell->value || strcmp(cell->name, "$") != 0)
			continue;
		strcpy(text + len, cell->key);
		len += strlen(cell->key) + 1;
	}
	replay_put(run, "", name, text, len, 0);
	free(text);
}

static inline void memory_load(struct memory *m, struct replay_run *run)
{
	struct memory_cell *cell, *next;

	run->now_us = m->now_us;
	strcpy(run->identity, m->identity);
	for (struct replay_cell *w = run->wanted; w; w = w->next_wanted) {
		if (w->name[0] == '>') {
			memory_put_page(m, run, w->name);
			continue;
		}
		if (w->name[0] == '*' || w->name[0] == '?')
			HASH_ITER (hh, m->cells, cell, next)
				if (cell->name[0] == '=' && strcmp(cell->key, w->key) == 0)
					memory_put_one(m, run, cell->key, cell->name);
		memory_put_one(m, run, w->key, w->name);
	}
}

/* False: something that was read has changed, and nothing was written. */
static inline bool memory_commit(struct memory *m, struct replay_run *run)
{
	struct replay_cell *cell, *next;

	HASH_ITER (hh, run->cells, cell, next) {
		const struct memory_cell *now = memory_cell(m, cell->key, cell->name, false);

		if (cell->read && cell->name[0] != '?' && cell->name[0] != '>' &&
		    cell->version != (now ? now->version : 0))
			return false;
	}
	HASH_ITER (hh, run->cells, cell, next)
		if (cell->written)
			memory_set(m, cell->key, cell->name, cell->value, cell->len);
	return true;
}

#endif
