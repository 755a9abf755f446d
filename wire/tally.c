#include "wire/tally.h"

#include <string.h>

#include "wire/leases.h"

/* How many entries are looked at for one file. */
#define PROBES 64
/* How often a word that other processes change at the same time is tried. */
#define TRIES 64

static uint32_t tally_load(const uint32_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static bool tally_swap(uint32_t *word, uint32_t from, uint32_t to)
{
	return __atomic_compare_exchange_n(word, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* --- counts --- */

/* Where this would need libatomic, two processes that count at the same time may lose one of the counts. */
static void tally_add64(uint64_t *word, uint64_t n)
{
#if __GCC_ATOMIC_LLONG_LOCK_FREE == 2
	__atomic_fetch_add(word, n, __ATOMIC_RELAXED);
#else
	*(volatile uint64_t *)word += n;
#endif
}

static void tally_raise64(uint64_t *word, uint64_t n)
{
#if __GCC_ATOMIC_LLONG_LOCK_FREE == 2
	uint64_t was = __atomic_load_n(word, __ATOMIC_RELAXED);

	for (int i = 0; i < TRIES && was < n; i++)
		if (__atomic_compare_exchange_n(word, &was, n, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			return;
#else
	if (*(volatile uint64_t *)word < n)
		*(volatile uint64_t *)word = n;
#endif
}

void tally_add(struct tally_entry *entry, enum tally_count which, uint64_t n)
{
	tally_add64(&entry->counts[which], n);
}

void tally_add_time(struct tally_entry *entry, enum tally_count sum, int64_t ns)
{
	if (ns <= 0)
		return;
	tally_add64(&entry->counts[sum], (uint64_t)ns);
	tally_raise64(&entry->counts[sum + 1], (uint64_t)ns);
}

/* --- entries --- */

static uint64_t tally_hash(const struct tally_key *key)
{
	return leases_hash(key->path) * 31 + leases_hash(key->program) * 17 + (uint64_t)key->space * 2 + key->moved;
}

/* A place for `bytes` and a NUL. False: there is no room. */
static bool tally_take_name(struct tally *tally, size_t bytes, uint32_t *at)
{
	*at = tally_load(&tally->names_used);
	for (int i = 0; i < TRIES; i++) {
		if (*at >= TALLY_NAMES_BYTES || bytes >= TALLY_NAMES_BYTES - *at)
			return false;
		if (__atomic_compare_exchange_n(&tally->names_used, at, *at + (uint32_t)bytes + 1, true,
						__ATOMIC_RELAXED, __ATOMIC_RELAXED))
			return true;
	}
	return false;
}

static bool tally_is(const struct tally *tally, const struct tally_entry *entry, const struct tally_key *key,
		     uint64_t hash)
{
	size_t bytes = strlen(key->path);

	return entry->hash == hash && entry->space == key->space && entry->moved == key->moved &&
	       entry->path_bytes == bytes && entry->path_at < TALLY_NAMES_BYTES &&
	       bytes < TALLY_NAMES_BYTES - entry->path_at &&
	       strncmp(entry->program, key->program, TALLY_PROGRAM_BYTES - 1) == 0 &&
	       memcmp(tally->names + entry->path_at, key->path, bytes) == 0;
}

/* Fills a free entry. False: another process was faster, or there is no room. */
static bool tally_make(struct tally *tally, struct tally_entry *entry, const struct tally_key *key, uint64_t hash)
{
	size_t bytes = strlen(key->path), used = tally_load(&tally->names_used);
	uint32_t at;

	/* First a look, so that an entry is not used up for nothing. */
	if (used >= TALLY_NAMES_BYTES || bytes >= TALLY_NAMES_BYTES - used)
		return false;
	if (!tally_swap(&entry->state, TALLY_FREE, TALLY_BEING_MADE))
		return false;
	if (!tally_take_name(tally, bytes, &at))
		return false;
	memcpy(tally->names + at, key->path, bytes);
	entry->hash = hash;
	entry->space = key->space;
	entry->moved = key->moved;
	entry->path_at = at;
	entry->path_bytes = (uint32_t)bytes;
	for (size_t i = 0; i < TALLY_PROGRAM_BYTES - 1 && key->program[i]; i++)
		entry->program[i] = key->program[i];
	__atomic_store_n(&entry->state, TALLY_READY, __ATOMIC_RELEASE);
	return true;
}

struct tally_entry *tally_find(struct tally *tally, const struct tally_key *key)
{
	uint64_t hash = tally_hash(key);

	for (size_t i = 0; i < PROBES; i++) {
		struct tally_entry *entry = &tally->entries[(hash + i) % TALLY_ENTRIES];
		uint32_t state = tally_load(&entry->state);

		if (state == TALLY_FREE && tally_make(tally, entry, key, hash))
			return entry;
		if (tally_load(&entry->state) == TALLY_READY && tally_is(tally, entry, key, hash))
			return entry;
	}
	tally_add64(&tally->left_out, 1);
	return NULL;
}

/* --- locks that are held --- */

static bool tally_same_file(const struct tally_lock *a, const struct tally_lock *b)
{
	return a->dev == b->dev && a->ino == b->ino && a->space == b->space;
}

static bool tally_is_within(const struct tally_lock *a, const struct tally_lock *b)
{
	return a->first >= b->first && a->last <= b->last;
}

/* Is this lock gone, or taken anew, when `lock` was granted? */
static bool tally_is_over(const struct tally_lock *was, const struct tally_lock *lock)
{
	if (!tally_same_file(was, lock) || was->first > lock->last || was->last < lock->first)
		return false;
	return was->owner == lock->owner ? tally_is_within(was, lock) : was->exclusive || lock->exclusive;
}

/* Frees the slot if it still is what was looked for, which *was keeps. */
static bool tally_claim(struct tally_slot *slot, struct tally_slot *was)
{
	if (!tally_swap(&slot->state, TALLY_READY, TALLY_BEING_MADE))
		return false;
	*was = *slot;
	return true;
}

static void tally_set_free(struct tally_slot *slot)
{
	__atomic_store_n(&slot->state, TALLY_FREE, __ATOMIC_RELEASE);
}

/* A slot to write: a free one, or the one of the oldest lock, which most likely ended by a close. */
static struct tally_slot *tally_take_slot(struct tally *tally)
{
	struct tally_slot *oldest = NULL, was;

	for (size_t i = 0; i < TALLY_HELD; i++) {
		struct tally_slot *slot = &tally->held[i];

		if (tally_swap(&slot->state, TALLY_FREE, TALLY_BEING_MADE))
			return slot;
		if (tally_load(&slot->state) == TALLY_READY && (!oldest || slot->since_ns < oldest->since_ns))
			oldest = slot;
	}
	return oldest && tally_claim(oldest, &was) ? oldest : NULL;
}

void tally_take(struct tally *tally, const struct tally_entry *entry, const struct tally_lock *lock, int64_t now_ns)
{
	struct tally_slot *slot, was;

	for (size_t i = 0; i < TALLY_HELD; i++) {
		slot = &tally->held[i];
		if (tally_load(&slot->state) == TALLY_READY && tally_is_over(&slot->lock, lock) &&
		    tally_claim(slot, &was))
			tally_set_free(slot);
	}
	slot = tally_take_slot(tally);
	if (!slot)
		return;
	slot->entry = (uint32_t)(entry - tally->entries);
	slot->lock = *lock;
	slot->since_ns = now_ns;
	slot->told_ns = 0;
	__atomic_store_n(&slot->state, TALLY_READY, __ATOMIC_RELEASE);
}

/*
 * The time that no other lock of this entry has counted. Locks end in the order in which this is called, so what counts of the
 * others' times is what ended before now: all of their time if they began after this one, else what this one adds.
 */
static void tally_add_held(struct tally *tally, const struct tally_slot *was, int64_t now_ns)
{
	uint64_t *counts = tally->entries[was->entry].counts;
	uint64_t now = (uint64_t)now_ns, held_ns = now - (uint64_t)was->since_ns, new_ns = held_ns - was->told_ns;

	if (now_ns <= was->since_ns || new_ns > held_ns)
		return;
	tally_add64(&counts[TALLY_HELD_NS], new_ns);
	tally_raise64(&counts[TALLY_HELD_MAX_NS], held_ns);
	for (size_t i = 0; i < TALLY_HELD; i++) {
		struct tally_slot *slot = &tally->held[i];

		if (tally_load(&slot->state) == TALLY_READY && slot->entry == was->entry)
			slot->told_ns = slot->since_ns < was->since_ns ? slot->told_ns + new_ns
								       : now - (uint64_t)slot->since_ns;
	}
}

static bool tally_unlock_of(struct tally *tally, const struct tally_lock *lock, uint32_t owner, int64_t now_ns)
{
	struct tally_slot was;
	bool any = false;

	for (size_t i = 0; i < TALLY_HELD; i++) {
		struct tally_slot *slot = &tally->held[i];

		if (tally_load(&slot->state) != TALLY_READY || slot->lock.owner != owner ||
		    !tally_same_file(&slot->lock, lock) || !tally_is_within(&slot->lock, lock) ||
		    !tally_claim(slot, &was))
			continue;
		tally_set_free(slot);
		any = true;
		if (was.entry >= TALLY_ENTRIES)
			continue;
		tally_add(&tally->entries[was.entry], TALLY_ENDED, 1);
		tally_add_held(tally, &was, now_ns);
	}
	return any;
}

void tally_unlock(struct tally *tally, const struct tally_lock *lock, uint32_t pid, int64_t now_ns)
{
	if (!tally_unlock_of(tally, lock, pid, now_ns))
		tally_unlock_of(tally, lock, TALLY_ANYBODY, now_ns);
}

/* --- dflock's side --- */

void tally_init(struct tally *tally)
{
	tally->magic = TALLY_MAGIC;
	tally->version = TALLY_VERSION;
}

bool tally_read(struct tally *tally, size_t i, struct tally_line *line)
{
	const struct tally_entry *entry = &tally->entries[i];

	tally->names[TALLY_NAMES_BYTES - 1] = '\0';
	if (entry->state != TALLY_READY || entry->path_at >= TALLY_NAMES_BYTES)
		return false;
	memcpy(line->program, entry->program, sizeof(line->program));
	line->program[sizeof(line->program) - 1] = '\0';
	line->path = tally->names + entry->path_at;
	line->space = entry->space == WIRE_RECORD ? WIRE_RECORD : WIRE_FLOCK;
	line->moved = entry->moved;
	memcpy(line->counts, entry->counts, sizeof(line->counts));
	return true;
}
