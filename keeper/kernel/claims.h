/*
 * What a search looks for: ranges of files, each with a tag by which its owner recognises it (a lease's slot, a row of
 * the status). Built once for a search. Then every lock that is found leads to the claims on its range without a look
 * at the others: by hash to the file, by binary search to the range.
 *
 * Pure memory. Built by one thread, then read by any.
 */
#ifndef DFLOCK_KEEPER_CLAIMS_H
#define DFLOCK_KEEPER_CLAIMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "keeper/array.h"
#include "wire/msg.h"

/*
 * A file: as fstat names it, and the kernel's number of it, which lock lines show (procfs.h). kernel_ino 0: both are
 * the same. by_number: dev and ino are the kernel's number, and every file with it is meant.
 */
struct holders_file {
	dev_t dev;
	ino_t ino;
	dev_t kernel_dev;
	ino_t kernel_ino;
	bool by_number;
};

/* A hash table from the kernel's number to files: tells which of the files of a search a lock line or a mapping is of. Several files may
 * have the same number (subvolumes of btrfs). */
struct file_index {
	const struct holders_file *files;
	uint32_t *heads, *nexts; /* index + 1; 0: none */
	size_t mask;
};

#define FILE_NONE SIZE_MAX

/* files stay as long as the index. 0 or -ENOMEM. */
int file_index_build(struct file_index *index, const struct holders_file *files, size_t count);
/* {0} is allowed. */
void file_index_free(struct file_index *index);
/* The first file with this number after `after` (FILE_NONE: of all), or FILE_NONE. */
size_t file_index_find(const struct file_index *index, uint64_t kernel_dev, uint64_t kernel_ino, size_t after);

/* Does the kernel's number alone identify this file? Otherwise another file may have the same number. */
bool file_index_is_plain(const struct holders_file *file);

struct claim {
	struct holders_file file;
	enum wire_space space;
	int64_t from, to;  /* half open */
	uint64_t tag;      /* the owner's */
	const void *whose; /* the owner, where a search has several; else NULL */
	int64_t reach;     /* claims_build(): the largest `to` up to here, of this file and space */
};

struct claims {
	UT_array all;               /* struct claim; claims_build(): by file, space, from */
	struct holders_file *files; /* each once */
	size_t file_count;
	size_t *first; /* for each file and space: where its claims begin; one more at the end */
};

/* Begin with {0}. 0, or -ENOMEM: it was not added. */
int claims_add(struct claims *claims, const struct holders_file *file, enum wire_space space, int64_t from, int64_t to,
	       uint64_t tag);
/* When all have been added. 0 or -ENOMEM. */
int claims_build(struct claims *claims);
void claims_free(struct claims *claims);

size_t claims_count(const struct claims *claims);
/* In the order of claims_build(). Valid until the next claims_add(). */
struct claim *claims_at(const struct claims *claims, size_t i);
/* The index of a claim: claims_at()'s i. */
size_t claims_index(const struct claims *claims, const struct claim *claim);

/*
 * The claims on files[file] that overlap a range, from the last to the first: *next is SIZE_MAX for the first call.
 * NULL: no more.
 */
struct claim *claims_next(const struct claims *claims, size_t file, enum wire_space space, int64_t from, int64_t to,
			  size_t *next);

#endif
