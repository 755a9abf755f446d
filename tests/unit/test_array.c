/* keeper/array.h: without memory an array stays as it was. */
#include <stdbool.h>
#include <stdlib.h>

static bool no_memory;

static void *test_realloc(void *memory, size_t size) { return no_memory ? NULL : realloc(memory, size); }

#define realloc(memory, size) test_realloc(memory, size)
#include "keeper/array.h"
#undef realloc

#include "tests/unit/suite.h"

static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

TEST(grows)
{
	UT_array array = {0};

	ck_assert_ptr_null(array_items(&array));
	ck_assert_ptr_null(array_end(&array));
	array_sort(&array, compare);
	ck_assert_ptr_null(array_search(&array, &(int){1}, compare));
	for (int i = 999; i >= 0; i--)
		ck_assert_int_eq(array_push(&array, &i, sizeof(i)), 0);
	array_sort(&array, compare);
	for (int i = 0; i < 1000; i++)
		ck_assert_int_eq(*(int *)array_at(&array, (size_t)i), i);
	ck_assert_ptr_eq(array_search(&array, &(int){700}, compare), (int *)array_items(&array) + 700);
	ck_assert_ptr_eq(array_end(&array), (int *)array_items(&array) + 1000);
	array_cut(&array, 2000);
	ck_assert_uint_eq(utarray_len(&array), 1000);
	array_cut(&array, 3);
	ck_assert_uint_eq(utarray_len(&array), 3);
	ck_assert_int_eq(*((int *)array_end(&array) - 1), 2);
	utarray_done(&array);
}

/* utarray counts room before it has got it: the next item must not be written there. */
TEST(survives)
{
	UT_array array = {0};
	int i, refused = 0;

	no_memory = true;
	ck_assert_int_eq(array_push(&array, &refused, sizeof(refused)), -ENOMEM);
	ck_assert_uint_eq(utarray_len(&array), 0);
	no_memory = false;
	for (i = 0; i < 100; i++) {
		no_memory = true;
		while (array_push(&array, &i, sizeof(i)) < 0) {
			ck_assert_uint_eq(utarray_len(&array), (unsigned)i);
			no_memory = ++refused % 2;
		}
	}
	no_memory = false;
	ck_assert_int_gt(refused, 3);
	for (i = 0; i < 100; i++)
		ck_assert_int_eq(*(int *)array_at(&array, (size_t)i), i);
	utarray_done(&array);
}
