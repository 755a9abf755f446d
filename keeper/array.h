/*
 * Arrays that grow: uthash's utarray, where memory may run out. utarray itself ends the process then, which neither the
 * keeper nor its parent may do, and counts room that it did not get; so what grows an array is called here, and nowhere
 * else. utarray_init(), _done(), _clear(), _len(), _eltptr(), _pop_back() and _erase() allocate nothing, and are called as
 * they are. To be included instead of utarray.h. May be used by every room, and by any thread.
 */
#ifndef DFLOCK_KEEPER_ARRAY_H
#define DFLOCK_KEEPER_ARRAY_H

#include <errno.h>
#include <stddef.h>

#define utarray_oom() goto no_memory
#include <utarray.h>

/* Copies an item of that size to the end of an array, which is empty if it is {0}. 0, or -ENOMEM: the array is as it was. */
static inline int array_push(UT_array *array, const void *item, size_t size)
{
	const unsigned room = array->n;

	array->icd.sz = size;
	utarray_push_back(array, item);
	return 0;
no_memory:
	array->n = room;
	return -ENOMEM;
}

/* All items as one piece, for a loop or bsearch(). NULL if nothing was ever in it. */
static inline void *array_items(const UT_array *array)
{
	return array->d;
}

/* Behind the last one of array_items(). */
static inline void *array_end(const UT_array *array)
{
	return array->d ? array->d + array->icd.sz * array->i : NULL;
}

/* Where an item stands in the array. */
static inline void *array_at(const UT_array *array, size_t i)
{
	return array->d + array->icd.sz * i;
}

static inline void array_sort(UT_array *array, int (*compare)(const void *, const void *))
{
	if (array->i)
		qsort(array->d, array->i, array->icd.sz, compare);
}

/* The item that compares equal, of an array that is sorted in this way. NULL: none. */
static inline void *array_search(const UT_array *array, const void *item, int (*compare)(const void *, const void *))
{
	return array->i ? bsearch(item, array->d, array->i, array->icd.sz, compare) : NULL;
}

/* Keeps the first `count` items. */
static inline void array_cut(UT_array *array, size_t count)
{
	if (count < array->i)
		array->i = (unsigned)count;
}

#endif
