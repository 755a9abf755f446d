/*
 * Arrays that grow: uthash's utarray, made safe against running out of memory. utarray itself would end the process,
 * which neither the keeper nor its parent may do, and would count room that it did not get. So only this file calls the
 * macros that grow an array. utarray_init(), _done(), _clear(), _len(), _eltptr(), _pop_back() and _erase() allocate
 * nothing and may be called directly. Include this header instead of utarray.h. Every room and any thread may use it.
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

/* All items as one C array, for a loop or bsearch(). NULL if the array never had an item. */
static inline void *array_items(const UT_array *array)
{
	return array->d;
}

/* One past the last of array_items(). */
static inline void *array_end(const UT_array *array)
{
	return array->d ? array->d + array->icd.sz * array->i : NULL;
}

/* The item at an index. */
static inline void *array_at(const UT_array *array, size_t i)
{
	return array->d + array->icd.sz * i;
}

static inline void array_sort(UT_array *array, int (*compare)(const void *, const void *))
{
	if (array->i)
		qsort(array->d, array->i, array->icd.sz, compare);
}

/* The item that compares equal, in an array that array_sort() has sorted by `compare`. NULL: none. */
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
