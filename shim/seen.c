#include "shim/seen.h"

#include <string.h>
#include <sys/stat.h>

#include "shim/seqcopy.h"
#include "shim/sys.h"

#define SEEN_FILES 64
#define SEEN_MASK  (STATX_TYPE | STATX_NLINK | STATX_INO | STATX_CTIME | STATX_MNT_ID)

static struct seen table[SEEN_FILES];
static uint32_t seqs[SEEN_FILES];

bool seen_key(int fd, int64_t stamp_ns, struct seen *key)
{
	struct statx stx;

	/* DONT_SYNC: no question to a file server for what is a short cut. */
	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, SEEN_MASK, &stx) < 0)
		return false;
	if ((stx.stx_mask & SEEN_MASK) != SEEN_MASK)
		return false;
	/* A directory has several links and still one name. */
	if (stx.stx_nlink > 1 && !S_ISDIR(stx.stx_mode))
		return false;
	*key = (struct seen){
		.dev = (uint64_t)stx.stx_dev_major << 32 | stx.stx_dev_minor,
		.ino = stx.stx_ino,
		.mount = stx.stx_mnt_id,
		.ctime_ns = stx.stx_ctime.tv_sec * 1000000000 + stx.stx_ctime.tv_nsec,
		.stamp_ns = stamp_ns,
	};
	return true;
}

static unsigned int slot_of(const struct seen *key)
{
	uint64_t mixed = (key->ino ^ key->dev << 20 ^ key->mount << 40) * 0x9e3779b97f4a7c15ull;

	return (unsigned int)(mixed >> 32) % SEEN_FILES;
}

bool seen_has(const struct seen *key)
{
	unsigned int i = slot_of(key);
	struct seen found;

	return seqcopy_read(&seqs[i], &found, &table[i], sizeof(found)) && memcmp(&found, key, sizeof(found)) == 0;
}

void seen_add(const struct seen *key)
{
	unsigned int i = slot_of(key);

	seqcopy_write(&seqs[i], &table[i], key, sizeof(*key));
}
