/* See claims.h. */
#include "keeper/kernel/claims.h"

#include <errno.h>
#include <stdlib.h>

int claims_add(struct claims *c, const struct holders_file *file, enum wire_space space, int64_t from, int64_t to,
	       uint64_t tag)
{
	const struct claim claim = {.file = *file, .space = space, .from = from, .to = to, .tag = tag};

	return array_push(&c->all, &claim, sizeof(claim));
}

static int claims_compare_files(const struct holders_file *x, const struct holders_file *y)
{
	if (x->ino != y->ino)
		return x->ino < y->ino ? -1 : 1;
	if (x->dev != y->dev)
		return x->dev < y->dev ? -1 : 1;
	return (int)x->by_number - (int)y->by_number;
}

static int claims_compare(const void *a, const void *b)
{
	const struct claim *x = a, *y = b;
	int files = claims_compare_files(&x->file, &y->file);

	if (files)
		return files;
	if (x->space != y->space)
		return x->space < y->space ? -1 : 1;
	return x->from < y->from ? -1 : x->from > y->from;
}

static bool claims_same_run(const struct claim *x, const struct claim *y)
{
	return !claims_compare_files(&x->file, &y->file) && x->space == y->space;
}

size_t claims_count(const struct claims *c)
{
	return utarray_len(&c->all);
}

struct claim *claims_at(const struct claims *c, size_t i)
{
	return array_at(&c->all, i);
}

size_t claims_index(const struct claims *c, const struct claim *claim)
{
	return (size_t)(claim - (struct claim *)array_items(&c->all));
}

int claims_build(struct claims *c)
{
	const size_t count = claims_count(c);
	size_t f = 0;

	c->files = malloc((count + 1) * sizeof(*c->files));
	c->first = malloc((count + 1) * WIRE_SPACES * sizeof(*c->first) + sizeof(*c->first));
	if (!c->files || !c->first)
		return -ENOMEM;
	array_sort(&c->all, claims_compare);
	for (size_t i = 0; i < count; i++) {
		struct claim *claim = claims_at(c, i);

		claim->reach = claim->to;
		if (i && claims_same_run(claim - 1, claim) && claim[-1].reach > claim->reach)
			claim->reach = claim[-1].reach;
		if (!i || claims_compare_files(&claim[-1].file, &claim->file)) {
			c->files[c->file_count++] = claim->file;
			f = (c->file_count - 1) * WIRE_SPACES;
			for (int s = 0; s < WIRE_SPACES; s++)
				c->first[f + s] = i;
		}
		/* The start of the next space moves on for as long as this space goes on. */
		for (int s = claim->space + 1; s < WIRE_SPACES; s++)
			c->first[f + s] = i + 1;
	}
	c->first[c->file_count * WIRE_SPACES] = count;
	return 0;
}

void claims_free(struct claims *c)
{
	utarray_done(&c->all);
	free(c->files);
	free(c->first);
	*c = (struct claims){0};
}

/* How many of the claims from begin to end, which are ordered by `from`, begin before `to`. */
static size_t claims_begin_before(const struct claims *c, size_t begin, size_t end, int64_t to)
{
	while (begin < end) {
		size_t middle = begin + (end - begin) / 2;

		if (claims_at(c, middle)->from < to)
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
	size_t i = *next == SIZE_MAX ? claims_begin_before(c, begin, end, to) : *next;

	/* No claim up to this one has a larger `to` than its `reach`. */
	while (i > begin && claims_at(c, i - 1)->reach > from)
		if (claims_at(c, --i)->to > from) {
			*next = i;
			return claims_at(c, i);
		}
	*next = begin;
	return NULL;
}

static dev_t file_index_dev(const struct holders_file *f)
{
	return f->kernel_ino ? f->kernel_dev : f->dev;
}

static ino_t file_index_ino(const struct holders_file *f)
{
	return f->kernel_ino ? f->kernel_ino : f->ino;
}

bool file_index_is_plain(const struct holders_file *f)
{
	return file_index_dev(f) == f->dev && file_index_ino(f) == f->ino;
}

static size_t file_index_slot(const struct file_index *x, uint64_t dev, uint64_t ino)
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
		uint32_t *head = &x->heads[file_index_slot(x, file_index_dev(&files[i]), file_index_ino(&files[i]))];

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
	at = after == FILE_NONE ? x->heads[file_index_slot(x, dev, ino)] : x->nexts[after];
	while (at && (file_index_ino(&x->files[at - 1]) != ino || file_index_dev(&x->files[at - 1]) != dev))
		at = x->nexts[at - 1];
	return at ? at - 1 : FILE_NONE;
}
