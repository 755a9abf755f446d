/*
 * What a search looks for: ranges of files, each with a tag by which its owner recognises it (a lease's slot, a row of
 * the status). Built once for a search. Then every lock that is found leads to the claims on its range without a look
 * at the others: by hash to the file, by binary search to the range.
 *
 * Pure memory. Built by one thread, then read by any.
 */
#ifndef DFLOCK_KEEPER_CLAIMS_H
#define DFLOCK_KEEPER_CLAIMS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "keeper/array.h"
#include "keeper/kernel/file_index.h"
#include "wire/msg.h"

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
