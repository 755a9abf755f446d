/*
 * Every store into the table goes through one of these functions, so tests can stop a keeper at each store (--wrap).
 * Each is atomic and a release: a process that sees it sees everything that was stored before it.
 */
#ifndef DFLOCK_KEEPER_TABLE_WORDS_H
#define DFLOCK_KEEPER_TABLE_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void table_put64(uint64_t *word, uint64_t value);
void table_put32(uint32_t *word, uint32_t value);
/* Not atomic: for bytes that no process reads before a later word says so. */
void table_put_bytes(void *to, const void *from, size_t count);
void table_set_bits(uint64_t *word, uint64_t bits);
void table_clear_bits(uint64_t *word, uint64_t bits);
/* False: the word was not `old`. */
bool table_swap64(uint64_t *word, uint64_t old, uint64_t value);

static inline void table_put_ns(int64_t *word, int64_t value)
{
	table_put64((uint64_t *)word, (uint64_t)value);
}
static inline uint64_t table_get64(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}
static inline int64_t table_get_ns(const int64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}
static inline uint32_t table_get32(const uint32_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

#endif
