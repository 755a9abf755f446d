/*
 * The file of the table of leases: opening, checking and growing RUNTIME_DIR/leases. For table.c and its siblings; others
 * call table_open(). Knows nothing of leases, only what makes a file a table of ours.
 */
#ifndef DFLOCK_KEEPER_TABLE_FILE_H
#define DFLOCK_KEEPER_TABLE_FILE_H

#include "keeper/guard/table.h"

#define TABLE_HEAD_BYTES ((sizeof(struct table_head) + 4095) / 4096 * 4096)

/* The part of table_open() that does not concern leases. */
int table_file_open(struct table *table, int dir_fd, char *why, size_t why_size);
void table_file_close(struct table *table);
/* How many bytes of the table the parent needs in memory. Grows with table->room. */
size_t table_file_bytes(const struct table *table);
/* Makes room for this slot, the next one to be used, and some more. 0 or -errno. */
int table_file_grow(struct table *table, uint32_t slot);
/* Finds the bits of the slots that are not free, and how many are used. No keeper runs. */
void table_file_find_busy(struct table *table);
/* Until when the leases are sure, and when pins end, is not known: as if the leases had run out now. */
void table_file_doubt_times(struct table *table);
/*
 * Memory for the file's bytes from `from` to `to`, so that no access to them is a SIGBUS on a full file system; makes the file
 * that long. 0 or -errno, and then the file is as it was. Where the kernel cannot do it (ramfs), libc writes into each page that
 * has no bytes so far: no other process may be writing there.
 */
int table_file_allocate(int fd, uint64_t from, uint64_t to);
/* What to do about such an error, to be put behind its text; or "". */
const char *table_file_advice(int ret);
/* What the other files begin with that the next keeper takes up. */
struct table_file_mark {
	uint64_t magic, version;
	char boot[CLOCK_BOOT_BYTES];
};
/*
 * Opens such a file of the runtime directory, which only this user may read, and maps it. One of another boot, another version, or
 * another size is void. With `make`, one that is void or missing is made, with zeros behind its mark. 0; -ENOENT; -errno.
 */
int table_file_map(int dir_fd, const char *name, uint64_t magic, uint64_t version, size_t bytes, bool make, void **map);

#endif
