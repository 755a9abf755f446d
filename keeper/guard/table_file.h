/*
 * The file of the table of leases: mapping and growing RUNTIME_DIR/leases. For table.c and its siblings; others
 * call table_open().
 */
#ifndef DFLOCK_KEEPER_TABLE_FILE_H
#define DFLOCK_KEEPER_TABLE_FILE_H

#include "keeper/guard/table.h"

#define TABLE_HEAD_BYTES ((sizeof(struct table_head) + 4095) / 4096 * 4096)

/* Maps table->fd. 0 or -errno. */
int table_file_mmap(struct table *table);
void table_file_close(struct table *table);
/* For how many slots the file has room. */
uint32_t table_file_room(int fd);
/* How many bytes of the table the parent needs in memory. Grows with table->room. */
size_t table_file_bytes(const struct table *table);
/* Makes room for this slot, the next one to be used, and some more. 0 or -errno. */
int table_file_grow(struct table *table, uint32_t slot);
/* Finds the bits of the slots that are not free, and how many are used. No keeper runs. */
void table_file_find_busy(struct table *table);
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

/* Is there a lease in a slot of this state, or one whose holders are to be killed? */
static inline bool table_is_leased(enum table_state state)
{
	return state == TABLE_HELD || state == TABLE_UNSURE || state == TABLE_LOST || state == TABLE_ENDING;
}

/* The file TABLE_STORES_NAME. */
struct table_stores {
	struct table_file_mark mark;
	struct table_member others[TABLE_MEMBERS - 1];
};
/* Maps it: table->others. 0 or -errno. */
int table_file_map_stores(struct table *table);
static inline struct table_stores *table_file_stores(const struct table *table)
{
	return (struct table_stores *)((char *)table->others - offsetof(struct table_stores, others));
}

/* Sums of what the table says: whether it can be believed. Pure. */
uint64_t table_sum(const void *data, size_t bytes);
/* Of what is before head->sum. Promised for every version (table.h). */
uint64_t table_head_sum(const struct table_head *head);
/* boot: table->boot. So a sum that fits is that of a lease of this boot, whatever the rest of the table says. Never 0. */
uint64_t table_slot_sum(const struct table_slot *slot, uint64_t generation, uint64_t boot);

#endif
