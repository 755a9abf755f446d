#include "shim/recent.h"

#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "wire/sys.h"
#include "wire/seqcopy.h"

/* If a change is older than this, the next one certainly gets another time: two ticks, or the two seconds of vfat,
 * whose times are whole seconds. */
#define YOUNG_NS       20000000
#define YOUNG_WHOLE_NS 2000000000

#define RECENT_FILES 64
#define RECENT_MASK  (STATX_TYPE | STATX_NLINK | STATX_INO | STATX_CTIME)

struct seen_entry {
	struct recent_key key;
	struct recent seen;
};

static struct seen_entry seen_table[RECENT_FILES];
static uint32_t seen_seqs[RECENT_FILES];
static uint32_t seen_era;

/* An empty path is known by its address since Linux 6.11, and read from memory before that, which takes longer. */
static long recent_statx(int fd, struct statx *stx)
{
	static const char *empty;
	const char *path = __atomic_load_n(&empty, __ATOMIC_RELAXED);
	long ret = sys(statx, fd, path, AT_EMPTY_PATH | AT_STATX_DONT_SYNC, RECENT_MASK | RECENT_MOUNT, stx);

	if (ret != -EFAULT || path)
		return ret;
	__atomic_store_n(&empty, "", __ATOMIC_RELAXED);
	return sys(statx, fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, RECENT_MASK | RECENT_MOUNT, stx);
}

bool recent_key(int fd, int64_t stamp_ns, struct recent_key *key)
{
	const uint32_t era = __atomic_load_n(&seen_era, __ATOMIC_ACQUIRE);
	struct statx stx;

	/* DONT_SYNC: a short cut must not wait for a file server. */
	if (recent_statx(fd, &stx) < 0 || !(stx.stx_mask & STATX_INO) ||
	    !(S_ISREG(stx.stx_mode) || S_ISDIR(stx.stx_mode))) {
		*key = (struct recent_key){0};
		return false;
	}
	*key = (struct recent_key){
		.dev = makedev(stx.stx_dev_major, stx.stx_dev_minor),
		.ino = stx.stx_ino,
		.mount = stx.stx_mnt_id,
		.stamp_ns = stamp_ns,
		.era = era,
		.ctime_ns = stx.stx_ctime.tv_sec * 1000000000 + stx.stx_ctime.tv_nsec,
	};
	/* A directory has several links but one name. IMMUTABLE: recent.h. */
	return (stx.stx_mask & RECENT_MASK) == RECENT_MASK && (stx.stx_mask & RECENT_MOUNT) &&
	       (stx.stx_nlink <= 1 || S_ISDIR(stx.stx_mode)) && stx.stx_attributes_mask & STATX_ATTR_IMMUTABLE;
}

static unsigned int recent_slot_of(const struct recent_key *key)
{
	uint64_t mixed = (key->ino ^ key->dev << 20 ^ key->mount << 40) * 0x9e3779b97f4a7c15ull;

	return (unsigned int)(mixed >> 32) % RECENT_FILES;
}

/* Reads the entry in which this file may be. False: another file is. Field by field to where it is wanted: what is stored in
 * parts and read as a whole takes longer than all of this. */
static inline bool recent_get(const struct recent_key *key, struct recent *seen, struct recent_key *when)
{
	unsigned int i = recent_slot_of(key);
	const struct seen_entry *e = &seen_table[i];
	uint32_t seq;

	if (!seqcopy_begin(&seen_seqs[i], &seq) || SEQCOPY_FIELD(e->key.ino) != key->ino ||
	    SEQCOPY_FIELD(e->key.dev) != key->dev || SEQCOPY_FIELD(e->key.mount) != key->mount ||
	    SEQCOPY_FIELD(e->key.stamp_ns) != key->stamp_ns || SEQCOPY_FIELD(e->key.era) != key->era)
		return false;
	when->ctime_ns = SEQCOPY_FIELD(e->key.ctime_ns);
	when->young = SEQCOPY_FIELD(e->key.young);
	seen->page = SEQCOPY_FIELD(e->seen.page);
	seen->path_hash = SEQCOPY_FIELD(e->seen.path_hash);
	seen->owner = SEQCOPY_FIELD(e->seen.owner);
	return seqcopy_end(&seen_seqs[i], seq);
}

static bool recent_is_young(int64_t ctime_ns)
{
	int64_t age_ns = sys_clock_ns(CLOCK_REALTIME_COARSE) - ctime_ns;

	return age_ns < (ctime_ns % 1000000000 ? YOUNG_NS : YOUNG_WHOLE_NS);
}

void recent_look(struct recent_key *key)
{
	key->young = recent_is_young(key->ctime_ns);
}

bool recent_find_path(const struct recent_key *key, struct recent *seen)
{
	struct recent_key when;

	return recent_get(key, seen, &when) && seen->path_hash;
}

void recent_add(const struct recent_key *key, const struct recent *seen)
{
	unsigned int i = recent_slot_of(key);
	struct seen_entry entry;

	memset(&entry, 0, sizeof(entry)); /* padding, too, on 32-bit systems */
	entry.key = *key;
	entry.seen = *seen;
	seqcopy_write(&seen_seqs[i], &seen_table[i], &entry, sizeof(entry));
}

bool recent_find(const struct recent_key *key, struct recent *seen)
{
	struct recent_key when;

	return recent_get(key, seen, &when) && when.ctime_ns == key->ctime_ns && !when.young;
}

void recent_forget(void)
{
	__atomic_add_fetch(&seen_era, 1, __ATOMIC_RELEASE);
}
