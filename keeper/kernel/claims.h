/*
 * What is searched for: ranges of files, each with whatever its owner wants to find again (a lease's slot, a row of the
 * status). Built once for a search; then every lock that is found leads to the claims on its range without a look at
 * the others: by hash to the file, by binary search to the range.
 *
 * Pure: memory alone. Built by one thread, then read by any.
 */
#ifndef DFLOCK_KEEPER_CLAIMS_H
#define DFLOCK_KEEPER_CLAIMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "wire/msg.h"

/*
 * A file: as fstat names it, and the kernel's number of it, which lock lines show (procfs.h). kernel_ino 0: both are
 * the same.
 */
struct holders_file {
	dev_t dev;
	ino_t ino;
	dev_t kernel_dev;
	ino_t kernel_ino;
};

struct claim {
	struct holders_file file;
	enum wire_space space;
	int64_t from, to; /* half open */
	uint64_t tag;       /* the owner's */
	int64_t reach;    /* claims_build(): the largest `to` up to here, of this file and space */
};

struct claims {
	struct claim *all; /* by file, space, from */
	size_t count, room;
	struct holders_file *files; /* each once */
	size_t file_count;
	size_t *first; /* for each file and space: where its claims begin; one more at the end */
};

/* Begin with {0}. 0 or -ENOMEM. */
int claims_add(struct claims *claims, const struct holders_file *file, enum wire_space space, int64_t from, int64_t to,
	       uint64_t tag);
/* When all have been added. 0 or -ENOMEM. */
int claims_build(struct claims *claims);
void claims_free(struct claims *claims);

/*
 * The claims on files[file] that overlap a range, from the last to the first: *next is SIZE_MAX for the first call.
 * NULL: no more.
 */
struct claim *claims_next(const struct claims *claims, size_t file, enum wire_space space, int64_t from, int64_t to,
			  size_t *next);

/* Files by the kernel's number. Several may have the same one (subvolumes of btrfs). */
struct file_index {
	const struct holders_file *files;
	uint32_t *heads, *nexts; /* index + 1; 0: none */
	size_t mask;
};

#define FILE_NONE SIZE_MAX

/* files stay as long as the index. 0 or -ENOMEM. */
int file_index_build(struct file_index *index, const struct holders_file *files, size_t count);
void file_index_free(struct file_index *index);
/* The first file with this number after `after` (FILE_NONE: of all), or FILE_NONE. */
size_t file_index_find(const struct file_index *index, uint64_t kernel_dev, uint64_t kernel_ino, size_t after);

/* Is the kernel's number all that tells files apart on its file system? Else another file may have the same one. */
bool file_is_plain(const struct holders_file *file);

#endif
