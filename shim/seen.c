#include "shim/seen.h"

#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <sys/vfs.h>

#include "wire/sys.h"
#include "wire/seqcopy.h"

/* If a change is older than this, the next one certainly gets another time: two ticks, or the two seconds of vfat,
 * whose times are whole seconds. */
#define YOUNG_NS       20000000
#define YOUNG_WHOLE_NS 2000000000

#define SEEN_FILES 64
#define SEEN_MASK  (STATX_TYPE | STATX_NLINK | STATX_INO | STATX_CTIME | STATX_MNT_ID)

/* tick_ns of the key: until that clock moves on, the answer counts for this change time, if the grain is fine. */
struct seen_entry {
	struct seen_key key;
	struct seen seen;
};

static struct seen_entry seen_table[SEEN_FILES];
static uint32_t seen_seqs[SEEN_FILES];
static uint32_t seen_era;

/* An empty path is known by its address since Linux 6.11, and read from memory before that, which takes longer. */
static long seen_statx(int fd, struct statx *stx)
{
	static const char *empty;
	const char *path = __atomic_load_n(&empty, __ATOMIC_RELAXED);
	long ret = sys(statx, fd, path, AT_EMPTY_PATH | AT_STATX_DONT_SYNC, SEEN_MASK | STATX_BTIME, stx);

	if (ret != -EFAULT || path)
		return ret;
	__atomic_store_n(&empty, "", __ATOMIC_RELAXED);
	return sys(statx, fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, SEEN_MASK | STATX_BTIME, stx);
}

bool seen_key(int fd, int64_t stamp_ns, struct seen_key *key)
{
	const uint32_t era = __atomic_load_n(&seen_era, __ATOMIC_ACQUIRE);
	struct statx stx;

	/* DONT_SYNC: a short cut must not wait for a file server. */
	if (seen_statx(fd, &stx) < 0 || !(stx.stx_mask & STATX_INO) ||
	    !(S_ISREG(stx.stx_mode) || S_ISDIR(stx.stx_mode))) {
		*key = (struct seen_key){0};
		return false;
	}
	*key = (struct seen_key){
		.dev = makedev(stx.stx_dev_major, stx.stx_dev_minor),
		.ino = stx.stx_ino,
		.mount = stx.stx_mnt_id,
		.stamp_ns = stamp_ns,
		.era = era,
		.ctime_ns = stx.stx_ctime.tv_sec * 1000000000 + stx.stx_ctime.tv_nsec,
		.born = stx.stx_mask & STATX_BTIME,
	};
	/* A directory has several links but one name. */
	return (stx.stx_mask & SEEN_MASK) == SEEN_MASK && (stx.stx_nlink <= 1 || S_ISDIR(stx.stx_mode));
}

static unsigned int seen_slot_of(const struct seen_key *key)
{
	uint64_t mixed = (key->ino ^ key->dev << 20 ^ key->mount << 40) * 0x9e3779b97f4a7c15ull;

	return (unsigned int)(mixed >> 32) % SEEN_FILES;
}

/* What an entry says of when it counts. */
struct seen_when {
	int64_t ctime_ns, tick_ns;
	uint32_t grain;
};

/* Reads the entry in which this file may be. False: another file is. Field by field to where it is wanted: what is stored in
 * parts and read as a whole takes longer than all of this. */
static inline bool seen_get(const struct seen_key *key, struct seen *seen, struct seen_when *when)
{
	unsigned int i = seen_slot_of(key);
	const struct seen_entry *e = &seen_table[i];
	uint32_t seq;

	if (!seqcopy_begin(&seen_seqs[i], &seq) || SEQCOPY_FIELD(e->key.ino) != key->ino ||
	    SEQCOPY_FIELD(e->key.dev) != key->dev || SEQCOPY_FIELD(e->key.mount) != key->mount ||
	    SEQCOPY_FIELD(e->key.stamp_ns) != key->stamp_ns || SEQCOPY_FIELD(e->key.era) != key->era)
		return false;
	when->ctime_ns = SEQCOPY_FIELD(e->key.ctime_ns);
	when->tick_ns = SEQCOPY_FIELD(e->key.tick_ns);
	when->grain = SEQCOPY_FIELD(e->key.grain);
	seen->page = SEQCOPY_FIELD(e->seen.page);
	seen->path_hash = SEQCOPY_FIELD(e->seen.path_hash);
	seen->owner = SEQCOPY_FIELD(e->seen.owner);
	return seqcopy_end(&seen_seqs[i], seq);
}

static bool seen_is_young(int64_t ctime_ns)
{
	int64_t age_ns = sys_clock_ns(CLOCK_REALTIME_COARSE) - ctime_ns;

	return age_ns < (ctime_ns % 1000000000 ? YOUNG_NS : YOUNG_WHOLE_NS);
}

void seen_look(struct seen_key *key)
{
	key->tick_ns = seen_is_young(key->ctime_ns) ? sys_clock_ns(CLOCK_MONOTONIC_COARSE) : 0;
}

bool seen_find_path(struct seen_key *key, struct seen *seen)
{
	struct seen_when when;

	if (!seen_get(key, seen, &when) || !seen->path_hash)
		return false;
	key->grain = when.grain;
	return true;
}

/* Reads digits, and moves on behind them. */
static unsigned seen_number(const char **text)
{
	unsigned number = 0;

	for (; **text >= '0' && **text <= '9' && number < 100000; (*text)++)
		number = number * 10 + (unsigned)(**text - '0');
	return number;
}

/* Is `release`, as of uname(2), 6.13 or later? */
static bool seen_is_fine_kernel(const char *release)
{
	unsigned major = seen_number(&release), minor = *release == '.' ? (release++, seen_number(&release)) : 0;

	return major > 6 || (major == 6 && minor >= 13);
}

static bool seen_kernel_is_fine(void)
{
	static enum { UNKNOWN, FINE, COARSE } kernel;
	unsigned known = __atomic_load_n(&kernel, __ATOMIC_RELAXED);
	struct utsname name;

	if (known == UNKNOWN && sys(uname, &name) == 0) {
		known = seen_is_fine_kernel(name.release) ? FINE : COARSE;
		__atomic_store_n(&kernel, known, __ATOMIC_RELAXED);
	}
	return known == FINE;
}

/*
 * Does each change after seen_key() get a change time of its own? Since Linux 6.13 on the file systems below
 * (FS_MGTIME), if their inodes have room for nanoseconds: ext4 keeps those beside the time of birth, and ext2, which has the
 * same number and coarse times, keeps neither.
 */
static bool seen_is_fine(int fd, const struct seen_key *key)
{
	struct statfs fs;

	if (!key->born || !seen_kernel_is_fine() || fstatfs(fd, &fs) < 0)
		return false;
	return fs.f_type == EXT4_SUPER_MAGIC || fs.f_type == XFS_SUPER_MAGIC || fs.f_type == BTRFS_SUPER_MAGIC ||
	       fs.f_type == TMPFS_MAGIC;
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

/* A young file whose grain was not asked for so far. Asked only now: most files are locked once while they are young. */
static __attribute__((noinline)) bool seen_ask_grain(int fd, const struct seen_key *key, int64_t tick_ns,
						     const struct seen *seen)
{
	struct seen_key known = *key;

	known.tick_ns = tick_ns;
	known.grain = seen_is_fine(fd, key) ? SEEN_GRAIN_FINE : SEEN_GRAIN_COARSE;
	seen_add(&known, seen);
	return known.grain == SEEN_GRAIN_FINE;
}

bool seen_find(int fd, const struct seen_key *key, struct seen *seen)
{
	struct seen_when when;

	if (!seen_get(key, seen, &when) || when.ctime_ns != key->ctime_ns)
		return false;
	if (!when.tick_ns)
		return true;
	if (when.grain == SEEN_GRAIN_COARSE || when.tick_ns != sys_clock_ns(CLOCK_MONOTONIC_COARSE))
		return false;
	return when.grain == SEEN_GRAIN_FINE || seen_ask_grain(fd, key, when.tick_ns, seen);
}

void seen_forget(void)
{
	__atomic_add_fetch(&seen_era, 1, __ATOMIC_RELEASE);
}
