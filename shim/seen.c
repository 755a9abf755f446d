#include "shim/seen.h"

#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "shim/sys.h"
#include "wire/seqcopy.h"

/* If a change is older than this, the next one certainly gets another time: two ticks, or the two seconds of vfat,
 * whose times are whole seconds. */
#define YOUNG_NS       20000000
#define YOUNG_WHOLE_NS 2000000000

#define SEEN_FILES 64
#define SEEN_MASK  (STATX_TYPE | STATX_NLINK | STATX_INO | STATX_CTIME | STATX_MNT_ID)

struct seen_entry {
	struct seen_key key;
	struct seen seen;
};

static struct seen_entry seen_table[SEEN_FILES];
static uint32_t seen_seqs[SEEN_FILES];

static bool seen_is_young(const struct statx_timestamp *ctime)
{
	int64_t age_ns = sys_clock_ns(CLOCK_REALTIME_COARSE) - (ctime->tv_sec * 1000000000 + ctime->tv_nsec);

	return age_ns < (ctime->tv_nsec ? YOUNG_NS : YOUNG_WHOLE_NS);
}

bool seen_key(int fd, int64_t stamp_ns, struct seen_key *key)
{
	struct statx stx;

	*key = (struct seen_key){0};
	/* DONT_SYNC: a short cut must not wait for a file server. */
	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, SEEN_MASK, &stx) < 0)
		return false;
	if (!(stx.stx_mask & STATX_INO) || !(S_ISREG(stx.stx_mode) || S_ISDIR(stx.stx_mode)))
		return false;
	*key = (struct seen_key){
		.dev = makedev(stx.stx_dev_major, stx.stx_dev_minor),
		.ino = stx.stx_ino,
		.mount = stx.stx_mnt_id,
		.ctime_ns = stx.stx_ctime.tv_sec * 1000000000 + stx.stx_ctime.tv_nsec,
		.stamp_ns = stamp_ns,
	};
	/* A directory has several links but one name. */
	return (stx.stx_mask & SEEN_MASK) == SEEN_MASK && (stx.stx_nlink <= 1 || S_ISDIR(stx.stx_mode)) &&
	       !seen_is_young(&stx.stx_ctime);
}

static unsigned int seen_slot_of(const struct seen_key *key)
{
	uint64_t mixed = (key->ino ^ key->dev << 20 ^ key->mount << 40) * 0x9e3779b97f4a7c15ull;

	return (unsigned int)(mixed >> 32) % SEEN_FILES;
}

bool seen_find(const struct seen_key *key, struct seen *seen)
{
	unsigned int i = seen_slot_of(key);
	struct seen_entry found;

	if (!seqcopy_read(&seen_seqs[i], &found, &seen_table[i], sizeof(found)) ||
	    memcmp(&found.key, key, sizeof(*key)) != 0)
		return false;
	*seen = found.seen;
	return true;
}

void seen_add(const struct seen_key *key, const struct seen *seen)
{
	unsigned int i = seen_slot_of(key);
	struct seen_entry entry;

	memset(&entry, 0, sizeof(entry)); /* padding, too, on 32-bit systems */
	entry.key = *key;
	entry.seen = *seen;
	seqcopy_write(&seen_seqs[i], &seen_table[i], &entry, sizeof(entry));
}
