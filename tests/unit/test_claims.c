/* keeper/kernel/claims.c: every lock leads to exactly the claims that it is under. Compares with a search one by
 * one. */
#include "keeper/kernel/claims.h"

#include "tests/unit/suite.h"

#define RANGES 200

static uint64_t state = 1;

static unsigned below(unsigned n)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (unsigned)(state >> 11) % n;
}

static struct claim random_claim(size_t tag)
{
	struct claim c = {.file = {.dev = 1 + below(2), .ino = 1 + below(3)}, .space = below(WIRE_SPACES), .tag = tag};
	c.from = below(100);
	c.to = below(10) ? c.from + 1 + below(20) : WIRE_EOF;
	return c;
}

static void compare(const struct claims *claims, const struct claim *all, size_t count, const struct claim *lock)
{
	struct file_index index;
	unsigned char found[RANGES] = {0};
	const struct claim *c;
	size_t next = SIZE_MAX, file;

	ck_assert_int_eq(file_index_build(&index, claims->files, claims->file_count), 0);
	file = file_index_find(&index, lock->file.dev, lock->file.ino, FILE_NONE);
	while (file != FILE_NONE && (c = claims_next(claims, file, lock->space, lock->from, lock->to, &next)))
		found[c->tag]++;
	for (size_t i = 0; i < count; i++) {
		bool under = all[i].file.dev == lock->file.dev && all[i].file.ino == lock->file.ino &&
			     all[i].space == lock->space && all[i].from < lock->to && lock->from < all[i].to;

		ck_assert_uint_eq(found[i], under);
	}
	file_index_free(&index);
}

TEST_EACH(each_lock_leads_to_its_claims, 20)
{
	struct claim all[RANGES];
	struct claims claims = {0};
	size_t count = below(RANGES);

	state = (uint64_t)_i + 1;
	for (size_t i = 0; i < count; i++) {
		all[i] = random_claim(i);
		ck_assert_int_eq(claims_add(&claims, &all[i].file, all[i].space, all[i].from, all[i].to, i), 0);
	}
	ck_assert_int_eq(claims_build(&claims), 0);
	for (int i = 0; i < 200; i++) {
		struct claim lock = random_claim(0);

		compare(&claims, all, count, &lock);
	}
	claims_free(&claims);
}

TEST(files_with_one_number)
{
	const struct holders_file files[] = {{.dev = 1, .ino = 7, .kernel_dev = 9, .kernel_ino = 7},
					     {.dev = 2, .ino = 7, .kernel_dev = 9, .kernel_ino = 7},
					     {.dev = 9, .ino = 7}};
	struct file_index index;
	unsigned seen = 0;

	ck_assert_int_eq(file_index_build(&index, files, 3), 0);
	for (size_t f = FILE_NONE; (f = file_index_find(&index, 9, 7, f)) != FILE_NONE;)
		seen |= 1u << f;
	ck_assert_uint_eq(seen, 7);
	ck_assert_uint_eq(file_index_find(&index, 1, 7, FILE_NONE), FILE_NONE);
	ck_assert(!file_index_is_plain(&files[0]));
	ck_assert(file_index_is_plain(&files[2]));
	file_index_free(&index);
}
