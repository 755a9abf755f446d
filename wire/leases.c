#include "wire/leases.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "wire/seqcopy.h"
#include "wire/sys.h"

static uint64_t leases_mix(uint64_t hash, const char *bytes, size_t count)
{
	uint64_t word = 0;

	memcpy(&word, bytes, count);
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
	return hash ^ hash >> 32;
}

/* A word at a time, since this is part of many lock calls. */
uint64_t leases_hash(const char *path)
{
	size_t left = strlen(path);
	uint64_t hash = left;

	for (; left >= sizeof(hash); left -= sizeof(hash), path += sizeof(hash))
		hash = leases_mix(hash, path, sizeof(hash));
	return leases_mix(hash, path, left);
}

unsigned leases_bucket(uint64_t dev, uint64_t ino)
{
	uint64_t mixed = (ino ^ dev << 32 ^ dev >> 32) * 0x9e3779b97f4a7c15ull;

	return (unsigned)(mixed >> 32) % LEASES_BUCKETS;
}

static inline bool leases_slot_covers(const struct leases_slot *slot, const struct leases_file *file,
				      const struct leases_range *wanted)
{
	const struct leases_entry *e = &slot->entry;
	uint32_t seq;

	return seqcopy_begin(&slot->seq, &seq) && SEQCOPY_FIELD(e->open) && SEQCOPY_FIELD(e->file.ino) == file->ino &&
	       SEQCOPY_FIELD(e->file.dev) == file->dev && SEQCOPY_FIELD(e->file.path_hash) == file->path_hash &&
	       SEQCOPY_FIELD(e->range.space) == wanted->space && SEQCOPY_FIELD(e->range.mode) >= wanted->mode &&
	       SEQCOPY_FIELD(e->range.from) <= wanted->from && SEQCOPY_FIELD(e->range.to) >= wanted->to &&
	       seqcopy_end(&slot->seq, seq);
}

const struct leases_slot *leases_find(const struct leases *leases, const struct leases_file *file,
				      const struct leases_range *wanted)
{
	const struct leases_slot *slots = leases->slots[leases_bucket(file->dev, file->ino)];

	for (int i = 0; i < LEASES_IN_BUCKET; i++)
		if (leases_slot_covers(&slots[i], file, wanted))
			return &slots[i];
	return NULL;
}

static bool leases_is_before(int64_t sure_until_ns)
{
	struct timespec now;

	return clock_gettime(CLOCK_BOOTTIME, &now) == 0 &&
	       (int64_t)now.tv_sec * 1000000000 + now.tv_nsec < sure_until_ns;
}

static bool leases_read_sure_until(const struct leases *leases, int64_t *sure_until_ns)
{
	uint32_t seq;

	if (!seqcopy_begin(&leases->clock_seq, &seq))
		return false;
	*sure_until_ns = SEQCOPY_FIELD(leases->clock.sure_until_ns);
	return seqcopy_end(&leases->clock_seq, seq);
}

bool leases_stand(const struct leases *leases, const struct leases_slot *slot, const struct leases_file *file,
		  const struct leases_range *wanted)
{
	int64_t sure_until_ns;

	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	/* In this order: a slot that was closed before sure_until was raised is then seen as closed. */
	return leases_read_sure_until(leases, &sure_until_ns) && leases_slot_covers(slot, file, wanted) &&
	       leases_is_before(sure_until_ns);
}

void leases_set_namespaces(struct leases_clock *clock)
{
	struct stat st;

	if (sys_stat("/proc/self/ns/time", &st) == 0) {
		clock->time_dev = st.st_dev;
		clock->time_ino = st.st_ino;
	}
	if (sys_stat("/proc/self/ns/pid", &st) == 0) {
		clock->pid_dev = st.st_dev;
		clock->pid_ino = st.st_ino;
	}
}

bool leases_same_namespaces(const struct leases *leases)
{
	struct leases_clock clock;
	struct stat st = {0}, pid;

	if ((sys_stat("/proc/self/ns/time", &st) != 0 && errno != ENOENT) || sys_stat("/proc/self/ns/pid", &pid) != 0)
		return false;
	return seqcopy_read(&leases->clock_seq, &clock, &leases->clock, sizeof(clock)) && clock.time_dev == st.st_dev &&
	       clock.time_ino == st.st_ino && clock.pid_dev == pid.st_dev && clock.pid_ino == pid.st_ino;
}
