/* See claims.h. */
#include "keeper/kernel/claims.h"

#include <errno.h>
#include <stdlib.h>

static dev_t kernel_dev(const struct holders_file *f)
{
	return f->kernel_ino ? f->kernel_dev : f->dev;
}

static ino_t kernel_ino(const struct holders_file *f)
{
	return f->kernel_ino ? f->kernel_ino : f->ino;
}

bool file_is_plain(const struct holders_file *f)
{
	return kernel_dev(f) == f->dev && kernel_ino(f) == f->ino;
}

/* --- claims --- */

int claims_add(struct claims *c, const struct holders_file *file, enum wire_space space, int64_t from, int64_t to,
	       uint64_t tag)
{
	if (c->count == c->room) {
		size_t room = c->room ? 2 * c->room : 64;
		struct claim *all = realloc(c->all, room * sizeof(*all));

		if (!all)
			return -ENOMEM;
		c->all = all;
		c->room = room;
	}
	c->all[c->count++] = (struct claim){.file = *file, .space = space, .from = from, .to = to, .tag = tag};
	return 0;
}

static int compare_files(const struct holders_file *x, const struct holders_file *y)
{
	if (x->ino != y->ino)
		return x->ino < y->ino ? -1 : 1;
	return x->dev < y->dev ? -1 : x->dev > y->dev;
}

static int compare(const void *a, const void *b)
{
	const struct claim *x = a, *y = b;
	int files = compare_files(&x->file, &y->file);

	if (files)
		return files;
	if (x->space != y->space)
		return x->space < y->space ? -1 : 1;
	return x->from < y->from ? -1 : x->from > y->from;
}

static bool same_run(const struct claim *x, const struct claim *y)
{
	return !compare_files(&x->file, &y->file) && x->space == y->space;
}

int claims_build(struct claims *c)
{
	size_t f = 0;

	c->files = malloc((c->count + 1) * sizeof(*c->files));
	c->first = malloc((c->count + 1) * WIRE_SPACES * sizeof(*c->first) + sizeof(*c->first));
	if (!c->files || !c->first)
		return -ENOMEM;
	if (c->count)
		qsort(c->all, c->count, sizeof(*c->all), compare);
	for (size_t i = 0; i < c->count; i++) {
		struct claim *claim = &c->all[i];

		claim->reach = claim->to;
		if (i && same_run(claim - 1, claim) && claim[-1].reach > claim->reach)
			claim->reach = claim[-1].reach;
		if (!i || compare_files(&claim[-1].file, &claim->file)) {
			c->files[c->file_count++] = claim->file;
			f = (c->file_count - 1) * WIRE_SPACES;
			for (int s = 0; s < WIRE_SPACES; s++)
				c->first[f + s] = i;
		}
		/* Where the next space begins moves on while this one goes on. */
		for (int s = claim->space + 1; s < WIRE_SPACES; s++)
			c->first[f + s] = i + 1;
	}
	c->first[c->file_count * WIRE_SPACES] = c->count;
	return 0;
}

void claims_free(struct claims *c)
{
	free(c->all);
	free(c->files);
	free(c->first);
	*c = (struct claims){0};
}

/* How many of all[begin..end), which are ordered by `from`, begin before `to`. */
static size_t begin_before(const struct claims *c, size_t begin, size_t end, int64_t to)
{
	while (begin < end) {
		size_t middle = begin + (end - begin) / 2;

		if (c->all[middle].from < to)
			begin = middle + 1;
		else
			end = middle;
	}
	return begin;
}

struct claim *claims_next(const struct claims *c, size_t file, enum wire_space space, int64_t from, int64_t to,
			  size_t *next)
{
	size_t begin = c->first[file * WIRE_SPACES + space], end = c->first[file * WIRE_SPACES + space + 1];
	size_t i = *next == SIZE_MAX ? begin_before(c, begin, end, to) : *next;

	/* None before has a larger `to` than this one's reach. */
	while (i > begin && c->all[i - 1].reach > from)
		if (c->all[--i].to > from) {
			*next = i;
			return &c->all[i];
		}
	*next = begin;
	return NULL;
}

/* --- files by number --- */

static size_t slot_of(const struct file_index *x, uint64_t dev, uint64_t ino)
{
	uint64_t h = (ino + dev * 0x9e3779b97f4a7c15ull) * 0xff51afd7ed558ccdull;

	return (h ^ h >> 32) & x->mask;
}

int file_index_build(struct file_index *x, const struct holders_file *files, size_t count)
{
	size_t size = 16;

	while (size < 2 * count)
		size *= 2;
	*x = (struct file_index){.files = files, .mask = size - 1};
	x->heads = calloc(size, sizeof(*x->heads));
	x->nexts = calloc(count + 1, sizeof(*x->nexts));
	if (!x->heads || !x->nexts) {
		file_index_free(x);
		return -ENOMEM;
	}
	for (size_t i = count; i-- > 0;) {
		uint32_t *head = &x->heads[slot_of(x, kernel_dev(&files[i]), kernel_ino(&files[i]))];

		x->nexts[i] = *head;
		*head = (uint32_t)i + 1;
	}
	return 0;
}

void file_index_free(struct file_index *x)
{
	free(x->heads);
	free(x->nexts);
	*x = (struct file_index){0};
}

size_t file_index_find(const struct file_index *x, uint64_t dev, uint64_t ino, size_t after)
{
	uint32_t at;

	if (!x->heads)
		return FILE_NONE;
	at = after == FILE_NONE ? x->heads[slot_of(x, dev, ino)] : x->nexts[after];
	while (at && (kernel_ino(&x->files[at - 1]) != ino || kernel_dev(&x->files[at - 1]) != dev))
		at = x->nexts[at - 1];
	return at ? at - 1 : FILE_NONE;
}
