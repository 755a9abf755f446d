/*
 * A record that many threads, signal handlers and forked children read and write without waiting.
 *
 * A reader that meets a writer gets nothing; a writer that meets another writer gives up. Both then do without the
 * record, so it may only hold what can be found out again. If a fork copies a record while another thread is writing
 * it, the child can never use that record. A record's size is a multiple of four bytes; one of long's size is copied faster.
 *
 * `seq` is the record's sequence number: even while it may be read, 0 at first.
 */
#ifndef DFLOCK_WIRE_SEQCOPY_H
#define DFLOCK_WIRE_SEQCOPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Copies word by word with atomics: a reader may read while a writer writes, and the compiler must not assume
 * otherwise. */
static inline void seqcopy_words(void *to, const void *from, size_t bytes)
{
	uint32_t *t = to;
	const uint32_t *f = from;
	unsigned long *long_to = to;
	const unsigned long *long_from = from;

	if (((uintptr_t)to | (uintptr_t)from | bytes) % sizeof(long) == 0) {
		for (size_t i = 0; i < bytes / sizeof(long); i++)
			__atomic_store_n(&long_to[i], __atomic_load_n(&long_from[i], __ATOMIC_RELAXED),
					 __ATOMIC_RELAXED);
		return;
	}
	for (size_t i = 0; i < bytes / sizeof(*t); i++)
		__atomic_store_n(&t[i], __atomic_load_n(&f[i], __ATOMIC_RELAXED), __ATOMIC_RELAXED);
}

/* Copies the record to `out`. False: a writer was met, and what is in `out` means nothing. */
static inline bool seqcopy_read(const uint32_t *seq, void *out, const void *record, size_t bytes)
{
	uint32_t before = __atomic_load_n(seq, __ATOMIC_ACQUIRE);

	if (before & 1)
		return false;
	seqcopy_words(out, record, bytes);
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return __atomic_load_n(seq, __ATOMIC_RELAXED) == before;
}

/* The same without a copy, where little of the record is needed: the fields are read by SEQCOPY_FIELD() between the two, and what was
 * read counts if both are true. */
static inline bool seqcopy_begin(const uint32_t *seq, uint32_t *before)
{
	*before = __atomic_load_n(seq, __ATOMIC_ACQUIRE);
	return !(*before & 1);
}

static inline bool seqcopy_end(const uint32_t *seq, uint32_t before)
{
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return __atomic_load_n(seq, __ATOMIC_RELAXED) == before;
}

#define SEQCOPY_FIELD(field) (*(const volatile __typeof__(field) *)&(field))

/* Copies `in` to the record, unless another writer is met. */
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

/* For a record with only one writer at a time. It always writes, also where an earlier writer died half-way; and every
 * other thread sees the record before it sees what the writer does next. */
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
