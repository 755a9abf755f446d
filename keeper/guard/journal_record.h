/*
 * One record of the journal, as it stands in the file: an entry, a change of one, or its end. Pure, but for
 * record_make()'s memory. What is read from a file is hostile until record_ok() has looked at it.
 */
#ifndef DFLOCK_KEEPER_JOURNAL_RECORD_H
#define DFLOCK_KEEPER_JOURNAL_RECORD_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "keeper/guard/journal.h"

enum record_kind { RECORD_ADD = 1, RECORD_FENCE, RECORD_REMOVE };

struct record {
	uint32_t bytes; /* whole record */
	uint32_t sum;   /* of what follows; its complement: struck out */
	uint8_t kind;
	uint8_t space, mode, reserved;
	uint16_t name_bytes, path_bytes; /* RECORD_ADD: NULs included; name and path follow */
	int64_t from, to;
	uint64_t fence, dev, ino;
	char token[STORE_TOKEN_BYTES];
	char text[];
};
#define RECORD_MAX (sizeof(struct record) + LOCK_NAME_BYTES + PATH_MAX + 8)

/* The caller frees it. NULL: no memory. record_ok() tells whether the entry has a place in a record. */
struct record *record_make(enum record_kind kind, const struct journal_entry *entry);
uint32_t record_sum(const struct record *record);
/* Is it whole and sound? room: bytes from there to the end of the file. */
bool record_ok(const struct record *record, size_t room);
/* Did the keeper that wrote it die in the middle of it? Then the file ends in it. */
bool record_torn(const struct record *record, size_t room);
/* What a RECORD_ADD says; its path is the record's. */
void record_entry(const struct record *record, struct journal_entry *entry);

#endif
