/* wire/text.c: what is cut, numbers, and the texts of errors. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "wire/text.h"
#include "tests/unit/suite.h"

START_TEST(cut)
{
	char buf[6], one[1];
	struct text text;

	text_init(&text, buf, sizeof(buf));
	ck_assert_str_eq(buf, "");
	text_add(&text, "abc");
	text_add_bytes(&text, "defg", 2);
	ck_assert_str_eq(buf, "abcde");
	ck_assert(!text.cut);
	text_add(&text, "");
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
END_TEST

static const struct {
	int64_t n;
	const char *text;
} numbers[] = {
	{0, "0"},
	{7, "7"},
	{-1, "-1"},
	{1000, "1000"},
	{INT64_MAX, "9223372036854775807"},
	{INT64_MIN, "-9223372036854775808"},
};

START_TEST(number)
{
	char buf[32];
	struct text text;

	text_init(&text, buf, sizeof(buf));
	text_add_number(&text, numbers[_i].n);
	ck_assert_str_eq(buf, numbers[_i].text);
}
END_TEST

/* The table must say what libc says in the C locale. */
START_TEST(errors)
{
	char buf[128];
	struct text text;

	for (int err = 1; err < 134; err++) {
		text_init(&text, buf, sizeof(buf));
		text_add_errno(&text, err);
		if (strncmp(buf, "error ", 6) != 0)
			ck_assert_str_eq(buf, strerror(err));
	}
	text_init(&text, buf, sizeof(buf));
	text_add_errno(&text, 4000);
	ck_assert_str_eq(buf, "error 4000");
	text_init(&text, buf, sizeof(buf));
	text_add_errno(&text, EACCES);
	ck_assert_str_eq(buf, "Permission denied");
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("text");

	tcase_add_test(t, cut);
	tcase_add_loop_test(t, number, 0, sizeof(numbers) / sizeof(*numbers));
	tcase_add_test(t, errors);
	return suite_run_case("text", t);
}
