/*
 * The journal: what a restarted keeper needs to take up its leases. RUNTIME_DIR/journal, mode 0600, on a tmpfs.
 *
 * An entry is added before a request is sent that could grant, gets its fence before a caller is told, and is
 * removed before a release is sent. So an entry without a fence was never used by anybody, and a
 * lease without an entry is one that nobody relies on: the store's recall of its token is answered with a release.
 *
 * It says shared before the lease is made a shared one (shrink): what is put back after the store lost its memory is
 * never more than what others had to reckon with. Should the shrink not have been done, the store says so when the
 * lease is confirmed, and the entry follows before anybody is granted.
 *
 * Records are appended, each with its length and a checksum; a torn last record (the keeper died in the middle of
 * it) counts as not written. A journal of another boot is worth nothing: CLOCK_BOOTTIME starts anew, and no
 * process of then is left.
 */
#ifndef DFLOCK_KEEPER_JOURNAL_H
#define DFLOCK_KEEPER_JOURNAL_H

#include <stdint.h>

#include "store/store.h"

struct journal;

struct journal_entry {
	char token[STORE_TOKEN_BYTES];
	struct store_range range;
	uint64_t fence; /* 0: never granted, as far as anybody was told */
	uint64_t dev, ino;
	char name[LOCK_NAME_BYTES];
	const char *path; /* in journal_read_cb: valid during the call */
};
typedef void journal_entry_cb(void *arg, const struct journal_entry *entry);

/*
 * Opens the journal in the directory, or makes a new one. If there was one of this boot: *host gets the host
 * id that wrote it, *deadline_ns its last deadline, and cb is called for each live entry. A damaged or foreign one
 * is kept aside as journal.bad and said so in `why` (one line; else ""). NULL with errno set on failure.
 */
struct journal *journal_open(int dir_fd, char host[STORE_HOST_BYTES], int64_t *deadline_ns, journal_entry_cb *cb,
			     void *arg, char *why, size_t why_size);
void journal_close(struct journal *journal);

/* Each returns 0 or -errno; after a failure nothing that relies on the entry may be sent. -EINVAL: an empty name or
 * path, or one that is too long. */
int journal_add(struct journal *journal, const struct journal_entry *entry);
/* It was granted: range may be larger than that of the entry. */
int journal_granted(struct journal *journal, const char *token, uint64_t fence, const struct store_range *range);
int journal_set_fence(struct journal *journal, const char *token, uint64_t fence, enum wire_mode mode);
int journal_remove(struct journal *journal, const char *token);
int journal_set_deadline(struct journal *journal, int64_t deadline_ns);
/* The incarnation of the store that the leases are of. */
int journal_set_incarnation(struct journal *journal, const char *incarnation);
/* The one that was read; "" if there was none. Valid as long as the journal. */
const char *journal_incarnation(const struct journal *journal);

#endif
