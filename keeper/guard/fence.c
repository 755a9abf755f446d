/* See fence.h. */
#include "keeper/guard/fence.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Is it one that an earlier parent of the same version made in this boot? Then its words count. */
static bool fence_ok(const struct fence *fence, const char *boot)
{
	bool ok = fence->magic == FENCE_MAGIC && memcmp(fence->boot, boot, sizeof(fence->boot)) == 0 &&
		  fence->used <= FENCE_SLOTS && fence->caller_count <= FENCE_CALLERS;

	for (uint32_t i = 0; ok && i < fence->used; i++)
		ok = fence->slots[i].state <= FENCE_ENDING && fence->slots[i].space < WIRE_SPACES &&
		     fence->slots[i].on_lost <= ON_LOST_WARN && fence->slots[i].why <= FENCE_WHY_FORGOTTEN;
	return ok;
}

/* Its room is taken at once: a word that is written where a full file system has none would be a SIGBUS. */
static struct fence *map_file(int fd)
{
	struct stat st;
	void *memory;
	int err;

	if (fstat(fd, &st) != 0)
		return NULL;
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077)) {
		errno = EPERM;
		return NULL;
	}
	if (st.st_size != (off_t)sizeof(struct fence) && ftruncate(fd, 0) != 0)
		return NULL;
	err = posix_fallocate(fd, 0, sizeof(struct fence));
	memory = err ? MAP_FAILED : mmap(NULL, sizeof(struct fence), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (err)
		errno = err;
	return memory == MAP_FAILED ? NULL : memory;
}

/* A keeper, or a parent, may have been killed between a slot and its bit. */
static void find_busy(struct fence *fence)
{
	for (uint32_t i = 0; i < FENCE_SLOTS; i++) {
		uint64_t bit = 1ull << i % 64;

		if (i < fence->used && fence->slots[i].state != FENCE_FREE)
			fence->busy[i / 64] |= bit;
		else
			fence->busy[i / 64] &= ~bit;
	}
	fence->first = 0;
}

struct fence *fence_open(int dir_fd)
{
	int fd = openat(dir_fd, FENCE_NAME, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	struct fence *fence = fd < 0 ? NULL : map_file(fd);
	char boot[CLOCK_BOOT_BYTES] = "";
	int err = errno, ret;

	if (fd >= 0)
		close(fd);
	errno = err;
	if (!fence)
		return NULL;
	ret = clock_boot(boot);
	if (ret < 0) {
		munmap(fence, sizeof(*fence));
		errno = -ret;
		return NULL;
	}
	if (!fence_ok(fence, boot))
		memset(fence, 0, sizeof(*fence));
	fence->magic = FENCE_MAGIC;
	memcpy(fence->boot, boot, sizeof(boot));
	fence->parent = getpid();
	fence->frozen_count = fence->ending = 0;
	fence_unsure(fence);
	for (uint32_t i = 0; i < fence->used; i++)
		if (fence->slots[i].state == FENCE_ENDING) /* perhaps not all of them were killed */
			fence_set(fence, i, FENCE_LOST);
	return fence;
}

void fence_unsure(struct fence *fence)
{
	find_busy(fence);
	for (uint32_t i = 0; i < fence->used; i++)
		if (fence->slots[i].state == FENCE_HELD)
			fence_set(fence, i, FENCE_UNSURE);
}

bool fence_in_use(const struct fence *fence)
{
	for (uint32_t i = 0; i < fence->used; i++)
		if (__atomic_load_n(&fence->slots[i].state, __ATOMIC_ACQUIRE) != FENCE_FREE)
			return true;
	return false;
}

void fence_set(struct fence *fence, uint32_t slot, enum fence_state state)
{
	if (!fence || slot >= FENCE_SLOTS)
		return;
	__atomic_store_n(&fence->slots[slot].state, state, __ATOMIC_RELEASE);
	if (state != FENCE_FREE)
		return;
	__atomic_and_fetch(&fence->busy[slot / 64], ~(1ull << slot % 64), __ATOMIC_RELEASE);
	if (slot < __atomic_load_n(&fence->first, __ATOMIC_RELAXED))
		__atomic_store_n(&fence->first, slot, __ATOMIC_RELAXED);
}

/* The parent frees slots at the same time, so `first` is no more than a good guess. A slot whose bit is set is not
 * looked at: 1,024 words at the most. */
static uint32_t free_slot(const struct fence *fence)
{
	uint32_t words = FENCE_SLOTS / 64, first = __atomic_load_n(&fence->first, __ATOMIC_RELAXED) / 64 % words;

	for (uint32_t n = 0; n < words; n++) {
		uint32_t w = (first + n) % words;
		uint64_t free_bits = ~__atomic_load_n(&fence->busy[w], __ATOMIC_ACQUIRE);

		for (; free_bits; free_bits &= free_bits - 1) {
			uint32_t i = w * 64 + (uint32_t)__builtin_ctzll(free_bits);

			if (__atomic_load_n(&fence->slots[i].state, __ATOMIC_ACQUIRE) == FENCE_FREE)
				return i;
		}
	}
	return FENCE_NO_SLOT;
}

uint32_t fence_take(struct fence *fence, const struct holders_file *file, const struct store_range *range,
		    enum fence_state state, enum on_lost on_lost)
{
	uint32_t i;

	if (!fence)
		return 0;
	i = free_slot(fence);
	if (i == FENCE_NO_SLOT)
		return i;
	__atomic_or_fetch(&fence->busy[i / 64], 1ull << i % 64, __ATOMIC_RELAXED);
	__atomic_store_n(&fence->first, i + 1, __ATOMIC_RELAXED);
	fence->slots[i].space = range->space;
	fence->slots[i].hidden = fence->slots[i].hidden_said = 0;
	fence->slots[i].dev = file->dev;
	fence->slots[i].ino = file->ino;
	fence->slots[i].kernel_dev = file->kernel_dev;
	fence->slots[i].kernel_ino = file->kernel_ino;
	fence->slots[i].from = range->from;
	fence->slots[i].to = range->to;
	fence->slots[i].on_lost = on_lost;
	fence->slots[i].why = FENCE_WHY_UNKNOWN;
	fence_set(fence, i, state);
	if (i >= fence->used)
		__atomic_store_n(&fence->used, i + 1, __ATOMIC_RELEASE);
	return i;
}

void fence_learn(struct fence *fence, uint32_t slot, uint64_t kernel_dev, uint64_t kernel_ino)
{
	if (!fence || slot >= FENCE_SLOTS)
		return;
	__atomic_store_n(&fence->slots[slot].kernel_dev, kernel_dev, __ATOMIC_RELAXED);
	__atomic_store_n(&fence->slots[slot].kernel_ino, kernel_ino, __ATOMIC_RELEASE);
}

bool fence_learnt(const struct fence *fence, uint32_t slot, uint64_t *kernel_dev, uint64_t *kernel_ino)
{
	bool known = fence && slot < FENCE_SLOTS && fence->slots[slot].kernel_ino;

	*kernel_dev = known ? fence->slots[slot].kernel_dev : 0;
	*kernel_ino = known ? fence->slots[slot].kernel_ino : 0;
	return known;
}

/* --- what a dead keeper had --- */

/* Chains of slots, by hash; index + 1, 0: none. */
struct fence_old {
	uint32_t heads[FENCE_SLOTS], nexts[FENCE_SLOTS];
	bool taken[FENCE_SLOTS];
};

static uint32_t *chain(struct fence_old *old, uint64_t dev, uint64_t ino, int64_t from)
{
	uint64_t h = (ino + dev * 0x9e3779b97f4a7c15ull + (uint64_t)from) * 0xff51afd7ed558ccdull;

	return &old->heads[(h >> 32) % FENCE_SLOTS];
}

struct fence_old *fence_old_new(const struct fence *fence)
{
	struct fence_old *old = calloc(1, sizeof(*old));

	for (uint32_t i = 0; old && fence && i < fence->used; i++) {
		const struct fence_slot *s = &fence->slots[i];
		uint32_t *head = chain(old, s->dev, s->ino, s->from);

		if (s->state != FENCE_UNSURE)
			continue;
		old->nexts[i] = *head;
		*head = i + 1;
	}
	return old;
}

void fence_old_free(struct fence_old *old)
{
	free(old);
}

static uint32_t find_old(const struct fence *fence, uint64_t dev, uint64_t ino, const struct store_range *range,
			 struct fence_old *old)
{
	for (uint32_t *at = chain(old, dev, ino, range->from); *at; at = &old->nexts[*at - 1]) {
		uint32_t i = *at - 1;
		const struct fence_slot *s = &fence->slots[i];

		if (s->dev != dev || s->ino != ino || s->space != range->space || s->from != range->from ||
		    s->to != range->to)
			continue;
		*at = old->nexts[i];
		return i;
	}
	return FENCE_NO_SLOT;
}

uint32_t fence_take_up(struct fence *fence, uint64_t dev, uint64_t ino, const struct store_range *range,
		       struct fence_old *old)
{
	uint32_t slot = fence ? find_old(fence, dev, ino, range, old) : FENCE_NO_SLOT;

	if (slot == FENCE_NO_SLOT)
		slot = fence_take(fence, &(struct holders_file){.dev = dev, .ino = ino}, range, FENCE_UNSURE,
				  ON_LOST_FREEZE);
	if (slot != FENCE_NO_SLOT)
		old->taken[slot] = true;
	return slot;
}

void fence_on_lost(struct fence *fence, uint32_t slot, enum on_lost on_lost)
{
	if (fence && slot < FENCE_SLOTS)
		__atomic_store_n(&fence->slots[slot].on_lost, on_lost, __ATOMIC_RELAXED);
}

void fence_lose(struct fence *fence, uint32_t slot, enum fence_why why)
{
	if (!fence || slot >= FENCE_SLOTS)
		return;
	__atomic_store_n(&fence->slots[slot].why, why, __ATOMIC_RELAXED);
	fence_set(fence, slot, fence->slots[slot].on_lost == ON_LOST_WARN ? FENCE_FREE : FENCE_LOST); /* mutant: lost */
}

void fence_renewed(struct fence *fence, int64_t freeze_at_ns, int64_t deadline_ns)
{
	if (!fence)
		return;
	__atomic_store_n(&fence->deadline_ns, deadline_ns, __ATOMIC_RELAXED);
	__atomic_store_n(&fence->freeze_at_ns, freeze_at_ns, __ATOMIC_RELEASE);
	if (fence_frozen(fence))
		fence_notify(fence);
}

bool fence_has_caller(const struct fence *fence, const struct fence_caller *caller)
{
	uint32_t count = __atomic_load_n(&fence->caller_count, __ATOMIC_ACQUIRE);

	for (uint32_t i = 0; i < count; i++)
		if (memcmp(&fence->callers[i], caller, sizeof(*caller)) == 0)
			return true;
	return false;
}

void fence_add_caller(struct fence *fence, const struct fence_caller *caller)
{
	if (fence->callers_ns != fence->freeze_at_ns)
		__atomic_store_n(&fence->caller_count, 0, __ATOMIC_RELEASE);
	fence->callers_ns = fence->freeze_at_ns;
	if (fence->caller_count == FENCE_CALLERS || fence_has_caller(fence, caller))
		return; /* more than that are taken for holders */
	fence->callers[fence->caller_count] = *caller;
	__atomic_store_n(&fence->caller_count, fence->caller_count + 1, __ATOMIC_RELEASE);
}

void fence_notify(const struct fence *fence)
{
	if (fence && getppid() == fence->parent) /* else it has died, and we are somebody else's child now */
		kill(fence->parent, SIGUSR1);
}

void fence_sweep(struct fence *fence, const struct fence_old *old, enum fence_state to)
{
	if (!fence)
		return;
	for (uint32_t i = 0; i < fence->used; i++)
		if (!old->taken[i] && (fence->slots[i].state == FENCE_HELD || fence->slots[i].state == FENCE_UNSURE))
			fence_set(fence, i, to);
}

static bool slot_is_lost(const struct fence *fence, uint32_t slot)
{
	uint32_t state = __atomic_load_n(&fence->slots[slot].state, __ATOMIC_ACQUIRE);

	return state == FENCE_LOST || state == FENCE_ENDING;
}

bool fence_has_lost(const struct fence *fence)
{
	bool found = false;

	for (uint32_t i = 0; fence && !found && i < fence->used; i++)
		found = slot_is_lost(fence, i);
	return found && getppid() == fence->parent;
}

bool fence_has_lost_on(const struct fence *fence, uint64_t dev, uint64_t ino, enum wire_space space)
{
	bool found = false;

	for (uint32_t i = 0; fence && !found && i < fence->used; i++)
		found = slot_is_lost(fence, i) && fence->slots[i].dev == dev && fence->slots[i].ino == ino &&
			fence->slots[i].space == space;
	return found && getppid() == fence->parent;
}

bool fence_is_hidden(const struct fence *fence, uint32_t slot)
{
	return slot < FENCE_SLOTS && __atomic_load_n(&fence->slots[slot].hidden, __ATOMIC_RELAXED);
}

#define PATIENCE_NS (5000 * NS_PER_MS)
#define LEAST_NS    (200 * NS_PER_MS) /* twice the period of `alive` */
#define RESTART_NS  (500 * NS_PER_MS) /* for the next keeper to start, read the journal and renew */

int64_t fence_patience_ns(const struct fence *fence, int64_t since_ns)
{
	int64_t left = __atomic_load_n(&fence->freeze_at_ns, __ATOMIC_RELAXED) - since_ns;

	if (left <= 0 || !fence_in_use(fence)) /* nothing to save */
		return PATIENCE_NS;
	left -= left < 2 * RESTART_NS ? left / 2 : RESTART_NS;
	return left < LEAST_NS ? LEAST_NS : left > PATIENCE_NS ? PATIENCE_NS : left;
}

unsigned fence_frozen(const struct fence *fence)
{
	return fence ? __atomic_load_n(&fence->frozen_count, __ATOMIC_ACQUIRE) : 0;
}
