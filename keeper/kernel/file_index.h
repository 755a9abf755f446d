/*
 * A hash table from the kernel's number to files: tells which of the files of a search a lock line or a mapping is of.
 *
 * Pure memory. Built by one thread, then read by any.
 */
#ifndef DFLOCK_KEEPER_FILE_INDEX_H
#define DFLOCK_KEEPER_FILE_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

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

/* Several files may have the same number (subvolumes of btrfs). */
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

#endif
