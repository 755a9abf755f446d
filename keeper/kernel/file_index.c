/* See file_index.h. */
#include "keeper/kernel/file_index.h"

#include <errno.h>
#include <stdlib.h>

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
