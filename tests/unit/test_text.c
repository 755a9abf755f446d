/* wire/text.c: what is cut, numbers, and the texts of errors. */
#include "wire/text.h"
#include "tests/unit/suite.h"

TEST(cut)
{
	char buf[6], one[1];
	struct text text;

	text_init(&text, buf, sizeof(buf));
	ck_assert_str_eq(buf, "");
	text_add(&text, "abc");
	text_add_bytes(&text, "defg", 2);
	ck_assert_str_eq(buf, "abcde");
	ck_assert(!text.cut);
	text_add(&text, "%s", "");
	ck_assert(!text.cut);
	text_add(&text, "f");
	ck_assert_str_eq(buf, "abcde");
	ck_assert_uint_eq(text.len, 5);
	ck_assert(text.cut);

	text_init(&text, one, sizeof(one));
	text_add(&text, "x");
	ck_assert_str_eq(one, "");
	ck_assert(text.cut);
}

TEST(conversions)
{
	char buf[128];
	struct text text;

	text_init(&text, buf, sizeof(buf));
	text_add(&text, "%s is %d, not %u", "x", -12, 4294967295u);
	ck_assert_str_eq(buf, "x is -12, not 4294967295");
	ck_assert(text_print(buf, sizeof(buf), "%lld %ld %llu%s", (long long)INT64_MIN, -1L,
			     (unsigned long long)INT64_MAX, ""));
	ck_assert_str_eq(buf, "-9223372036854775808 -1 9223372036854775807");
	ck_assert(!text_print(buf, 4, "%d", 12345));
	ck_assert_str_eq(buf, "123");
}

/* The table must say what libc says in the C locale. */
TEST(errors)
{
	char buf[128];
	int known = 0;

	for (int err = 0; err < 140; err++) {
		errno = err;
		text_print(buf, sizeof(buf), "%m");
		ck_assert_int_eq(errno, err);
		if (strncmp(buf, "error ", 6) == 0)
			continue;
		ck_assert_str_eq(buf, strerrordesc_np(err));
		known++;
	}
	ck_assert_int_gt(known, 40);
	errno = 4000;
	text_print(buf, sizeof(buf), "%m");
	ck_assert_str_eq(buf, "error 4000");
}
