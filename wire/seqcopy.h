/*
 * A record that many threads, signal handlers and forked children read and write without ever waiting.
 *
 * A reader that meets a writer gets nothing, a writer that meets another one gives up: both then do without
 * the record, which therefore may only hold what can be found out anew. If a fork copies a record that another
 * thread was writing, it is lost for the child. Records are multiples of four bytes.
 */
#ifndef DFLOCK_WIRE_SEQCOPY_H
#define DFLOCK_WIRE_SEQCOPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Word by word with atomics: a reader may look while a writer writes, and must not be miscompiled for it. */
static inline void seqcopy_words(void *to, const void *from, size_t bytes)
{
	uint32_t *t = to;
	const uint32_t *f = from;

	for (size_t i = 0; i < bytes / sizeof(*t); i++)
		__atomic_store_n(&t[i], __atomic_load_n(&f[i], __ATOMIC_RELAXED), __ATOMIC_RELAXED);
}

static inline bool seqcopy_read(const uint32_t *seq, void *out, const void *record, size_t bytes)
{
	uint32_t before = __atomic_load_n(seq, __ATOMIC_ACQUIRE);

	if (before & 1)
		return false;
	seqcopy_words(out, record, bytes);
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return __atomic_load_n(seq, __ATOMIC_RELAXED) == before;
}

static inline void seqcopy_write(uint32_t *seq, void *record, const void *in, size_t bytes)
{
	uint32_t before = __atomic_load_n(seq, __ATOMIC_RELAXED);

	if ((before & 1) ||
	    !__atomic_compare_exchange_n(seq, &before, before + 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
		return;
	__atomic_thread_fence(__ATOMIC_RELEASE);
	seqcopy_words(record, in, bytes);
	__atomic_store_n(seq, before + 2, __ATOMIC_RELEASE);
}

/* For a record with one writer: it always writes, also where one before it died half-way, and what the writer does next
 * is after it for everybody. */
static inline void seqcopy_publish(uint32_t *seq, void *record, const void *in, size_t bytes)
{
	uint32_t odd = __atomic_load_n(seq, __ATOMIC_RELAXED) | 1;

	__atomic_store_n(seq, odd, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	seqcopy_words(record, in, bytes);
	__atomic_store_n(seq, odd + 1, __ATOMIC_RELEASE);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

#endif
