/*
 * Grants (grants.h) in memory that outlives the keeper: RUNTIME_DIR/grants, a file on a tmpfs. The keeper writes each grant
 * there before its caller is told; the next keeper goes on with those of the leases that it takes up.
 *
 * What is written counts as a whole or not at all: each record has a sum. If the keeper dies while it writes, the grant is not
 * known to the next one, and that is the safe side (grants.h). It was not told to the caller either. A file of another boot,
 * another version, or another size is void. There is room for GRANTSFILE_RECORDS grants; further ones are not kept.
 *
 * Loop only. Neither allocates memory nor waits.
 */
#ifndef DFLOCK_KEEPER_GRANTSFILE_H
#define DFLOCK_KEEPER_GRANTSFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GRANTSFILE_NAME    "grants"
#define GRANTSFILE_RECORDS 4096

struct grantsfile_record {
	uint64_t dev, ino; /* struct file_key */
	int64_t at_ns, granted_ns, since;
	int32_t pid;
	uint32_t uid;
	uint32_t space;
	uint32_t reserved;
	uint64_t sum; /* of all of the above; 0: the record is free */
};

struct grantsfile_head;

/* Part of struct grants. All zero: closed. */
struct grantsfile {
	struct grantsfile_head *head; /* NULL: closed */
	size_t hint;                  /* where to look for a free record */
};

/* Opens what an earlier keeper has left; with `make`, makes it if there is none or it is void. 0; -ENOENT; -errno. */
int grantsfile_open(struct grantsfile *file, int dir_fd, bool make);
void grantsfile_close(struct grantsfile *file);

/* The keeper's last tick: the running clock, and CLOCK_BOOTTIME. Closed: 0, and nothing. */
int64_t grantsfile_ran_ns(const struct grantsfile *file);
int64_t grantsfile_ticked_ns(const struct grantsfile *file);
void grantsfile_tick(struct grantsfile *file, int64_t ran_ns, int64_t now_ns);

/* Record number 1 to GRANTSFILE_RECORDS. NULL: it is free, or torn. */
const struct grantsfile_record *grantsfile_get(const struct grantsfile *file, size_t number);
/* Writes a record; number 0: a free one. Returns its number; 0: there is no room, or the file is closed. */
size_t grantsfile_put(struct grantsfile *file, size_t number, const struct grantsfile_record *record);
/* number 0: nothing. */
void grantsfile_drop(struct grantsfile *file, size_t number);

#endif
