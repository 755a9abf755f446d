/* See table_words.h. */
#include "keeper/guard/table_words.h"

#include <string.h>

void table_put64(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}

void table_put32(uint32_t *word, uint32_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}

void table_put_bytes(void *to, const void *from, size_t count)
{
	memcpy(to, from, count);
}

void table_set_bits(uint64_t *word, uint64_t bits)
{
	__atomic_or_fetch(word, bits, __ATOMIC_ACQ_REL);
}

void table_clear_bits(uint64_t *word, uint64_t bits)
{
	__atomic_and_fetch(word, ~bits, __ATOMIC_ACQ_REL);
}

bool table_swap64(uint64_t *word, uint64_t old, uint64_t value)
{
	return __atomic_compare_exchange_n(word, &old, value, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}
