/* The configuration file, and the bounded text that names and messages are made of. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/base_folder.h"
#include "wire/place.h"
#include "wire/text.h"
#include "tests/unit/suite.h"

#define UNUSABLE "/dev/null/DFLOCK_CONFIG-has-no-usable-absolute-path"

static char home[96];
static struct place place;

static void setup(void)
{
	base_make();
	strcpy(home, in_base("home"));
	ck_assert_int_eq(mkdir(home, 0700), 0);
	ck_assert_int_eq(setenv("HOME", home, 1), 0);
	unsetenv("DFLOCK_CONFIG");
	unsetenv("DFLOCK_RUNTIME_DIR");
	ck_assert_int_eq(chdir(base), 0);
}

static void teardown(void)
{
	ck_assert_int_eq(chdir("/"), 0);
	base_remove();
}

START_TEST(errors_are_described_as_libc_does)
{
	char line[80];
	struct text text;
	int known = 0;

	for (int err = 0; err < 140; err++) {
		text_init(&text, line, sizeof(line));
		text_add_errno(&text, err);
		if (strncmp(line, "error ", 6) == 0)
			continue;
		known++;
		ck_assert_str_eq(line, strerrordesc_np(err));
	}
	ck_assert_int_gt(known, 70);
}
END_TEST

START_TEST(text_is_bounded)
{
	char buf[8] = "1234567";
	struct text text;

	text_init(&text, buf, sizeof(buf));
	ck_assert_str_eq(buf, "");
	text_add(&text, "abc");
	text_add_number(&text, -12);
	ck_assert_str_eq(buf, "abc-12");
	ck_assert(!text.cut);
	text_add(&text, "x");
	ck_assert(!text.cut);
	text_add(&text, "");
	ck_assert(!text.cut);
	text_add(&text, "yz");
	ck_assert_str_eq(buf, "abc-12x");
	ck_assert(text.cut);
	ck_assert_uint_eq(text.len, 7);

	text_init(&text, buf, 1);
	text_add(&text, "a");
	ck_assert_str_eq(buf, "");
	ck_assert(text.cut);
}
END_TEST

START_TEST(text_numbers)
{
	static const int64_t numbers[] = {0, 7, -7, 10, 1234567890, INT64_MAX, INT64_MIN};
	char buf[64], expected[64];
	struct text text;

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		text_init(&text, buf, sizeof(buf));
		text_add_number(&text, numbers[i]);
		snprintf(expected, sizeof(expected), "%lld", (long long)numbers[i]);
		ck_assert_str_eq(buf, expected);
	}
	text_init(&text, buf, sizeof(buf));
	text_add_errno(&text, ENOENT);
	text_add(&text, ", ");
	text_add_errno(&text, 12345);
	ck_assert_str_eq(buf, "No such file or directory, error 12345");
}
END_TEST

START_TEST(config_from_environment)
{
	char expected[128];

	setenv("DFLOCK_CONFIG", "/no/such/file.conf", 1);
	place_init(&place);
	ck_assert_str_eq(place.config, "/no/such/file.conf");

	setenv("DFLOCK_CONFIG", "sub/x.conf", 1);
	place_init(&place);
	snprintf(expected, sizeof(expected), "%s/sub/x.conf", base);
	ck_assert_str_eq(place.config, expected);

	ck_assert_int_eq(chdir("/"), 0);
	place_init(&place);
	ck_assert_str_eq(place.config, "/sub/x.conf");
}
END_TEST

/* It must never turn into "no configuration". */
START_TEST(config_that_cannot_be_named)
{
	static char value[PATH_MAX + 1];
	struct wire_config_id id;

	memset(value, 'x', PATH_MAX);
	value[0] = '/';
	setenv("DFLOCK_CONFIG", value, 1);
	place_init(&place);
	ck_assert_str_eq(place.config, UNUSABLE);
	ck_assert_int_eq(place_config_id(place.config, &id), -ENOTDIR);

	value[PATH_MAX - 1] = '\0';
	setenv("DFLOCK_CONFIG", value, 1);
	place_init(&place);
	ck_assert_str_eq(place.config, value);

	value[0] = 'x';
	setenv("DFLOCK_CONFIG", value, 1);
	place_init(&place);
	ck_assert_str_eq(place.config, UNUSABLE);

	/* Relative to a directory that is gone. */
	setenv("DFLOCK_CONFIG", "x.conf", 1);
	ck_assert_int_eq(mkdir(in_base("gone"), 0700), 0);
	ck_assert_int_eq(chdir(in_base("gone")), 0);
	ck_assert_int_eq(rmdir(in_base("gone")), 0);
	place_init(&place);
	ck_assert_str_eq(place.config, UNUSABLE);
}
END_TEST

START_TEST(config_from_home)
{
	struct stat st;
	const char *system_config = stat("/etc/dflock.conf", &st) == 0 ? "/etc/dflock.conf" : "";
	char expected[128];

	place_init(&place);
	ck_assert_str_eq(place.config, system_config);
	ck_assert_int_eq(mkdir(in_base("home/.config"), 0700), 0);
	place_init(&place);
	ck_assert_str_eq(place.config, system_config);
	make_file(in_base("home/.config/dflock.conf"));
	snprintf(expected, sizeof(expected), "%s/.config/dflock.conf", home);
	place_init(&place);
	ck_assert_str_eq(place.config, expected);
	setenv("DFLOCK_CONFIG", "", 1);
	place_init(&place);
	ck_assert_str_eq(place.config, expected);

	setenv("HOME", "home", 1);
	place_init(&place);
	ck_assert_str_eq(place.config, system_config);
	unsetenv("HOME");
	place_init(&place);
	ck_assert_str_eq(place.config, system_config);
}
END_TEST

START_TEST(config_id)
{
	struct wire_config_id a, b;
	FILE *file;

	make_file(in_base("a.conf"));
	ck_assert_int_eq(place_config_id(in_base("a.conf"), &a), 0);
	ck_assert_int_eq(place_config_id(in_base("a.conf"), &b), 0);
	ck_assert_mem_eq(&a, &b, sizeof(a));
	ck_assert_uint_ne(a.ino, 0);
	file = fopen(in_base("a.conf"), "w");
	ck_assert_ptr_nonnull(file);
	fputs("x", file);
	fclose(file);
	ck_assert_int_eq(place_config_id(in_base("a.conf"), &b), 0);
	ck_assert_mem_ne(&a, &b, sizeof(a));
	ck_assert_uint_eq(b.size, 1);

	ck_assert_int_eq(place_config_id(base, &a), -EINVAL);
	ck_assert_int_eq(place_config_id("/dev/null", &a), -EINVAL);
	ck_assert_int_eq(place_config_id(in_base("none"), &a), -ENOENT);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("place");
	TCase *texts = tcase_create("text"), *places = tcase_create("places");

	tcase_add_test(texts, errors_are_described_as_libc_does);
	tcase_add_test(texts, text_is_bounded);
	tcase_add_test(texts, text_numbers);
	suite_add_tcase(suite, texts);

	tcase_add_checked_fixture(places, setup, teardown);
	tcase_add_test(places, config_from_environment);
	tcase_add_test(places, config_that_cannot_be_named);
	tcase_add_test(places, config_from_home);
	tcase_add_test(places, config_id);
	suite_add_tcase(suite, places);
	return suite_run(suite);
}
