/*
 * The file of the table of leases: opening, checking and growing RUNTIME_DIR/leases. For table.c and its siblings; others
 * call table_open(). Knows no lease: only what makes a table one of ours.
 */
#ifndef DFLOCK_KEEPER_TABLE_FILE_H
#define DFLOCK_KEEPER_TABLE_FILE_H

#include "keeper/guard/table.h"

#define TABLE_HEAD_BYTES ((sizeof(struct table_head) + 4095) / 4096 * 4096)

/* As table_open(), but for the leases. */
int table_file_open(struct table *table, int dir_fd, char *why, size_t why_size);
void table_file_close(struct table *table);
/* Bytes of the memory that the parent must not be without. They grow with table->room. */
size_t table_file_bytes(const struct table *table);
/* Makes room for this slot, which is the next, and some more. 0 or -errno. */
int table_file_grow(struct table *table, uint32_t slot);
/* Finds the bits of the slots that are not free, and how many are used. No keeper runs. */
void table_file_find_busy(struct table *table);
/* Until when the leases are sure, and when pins end, is not known: as if the leases had run out now. */
void table_file_doubt_times(struct table *table);
/* The file's first so many bytes have memory behind them from now on. 0 or -errno. */
int table_file_allocate(int fd, uint64_t bytes);

#endif
