/* The configuration file, the runtime directory, and the bounded text that their names are made of. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "wire/place.h"
#include "wire/text.h"

#define UNUSABLE "/dev/null/DFLOCK_CONFIG-has-no-usable-absolute-path"

static char base[64]; /* on a tmpfs */
static char home[96];
static struct place place;

static const char *in_base(const char *name)
{
	static char path[160];

	snprintf(path, sizeof(path), "%s/%s", base, name);
	return path;
}

static void setup(void)
{
	strcpy(base, "/dev/shm/dflock-test-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(base));
	strcpy(home, in_base("home"));
	ck_assert_int_eq(mkdir(home, 0700), 0);
	ck_assert_int_eq(setenv("HOME", home, 1), 0);
	unsetenv("DFLOCK_CONFIG");
	unsetenv("DFLOCK_RUNTIME_DIR");
	ck_assert_int_eq(chdir(base), 0);
}

static void teardown(void)
{
	char command[128];

	ck_assert_int_eq(chdir("/"), 0);
	snprintf(command, sizeof(command), "rm -rf '%s'", base);
	ck_assert_int_eq(system(command), 0);
}

static void make_file(const char *path)
{
	int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	close(fd);
}

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

START_TEST(runtime_dir)
{
	char dir[PLACE_DIR_BYTES], value[PLACE_DIR_BYTES + 1];
	struct stat st;

	place_init(&place);
	ck_assert(!place.runtime_env_bad);
	ck_assert_int_eq(place_runtime_dir(&place, 4294967294u, dir), 0);
	if (stat("/run/dflock/keeper.sock", &st) == 0)
		ck_assert_str_eq(dir, "/run/dflock");
	else
		ck_assert_str_eq(dir, "/dev/shm/dflock-4294967294");

	setenv("DFLOCK_RUNTIME_DIR", "/dev/shm/x", 1);
	place_init(&place);
	ck_assert_int_eq(place_runtime_dir(&place, 0, dir), 0);
	ck_assert_str_eq(dir, "/dev/shm/x");

	setenv("DFLOCK_RUNTIME_DIR", "x", 1);
	place_init(&place);
	ck_assert(place.runtime_env_bad);
	ck_assert_int_eq(place_runtime_dir(&place, 0, dir), -EINVAL);

	memset(value, 'x', sizeof(value));
	value[0] = '/';
	value[PLACE_DIR_BYTES] = '\0';
	setenv("DFLOCK_RUNTIME_DIR", value, 1);
	place_init(&place);
	ck_assert_int_eq(place_runtime_dir(&place, 0, dir), -EINVAL);
	value[PLACE_DIR_BYTES - 1] = '\0';
	setenv("DFLOCK_RUNTIME_DIR", value, 1);
	place_init(&place);
	ck_assert_int_eq(place_runtime_dir(&place, 0, dir), 0);
	ck_assert_str_eq(dir, value);
}
END_TEST

static char why[512];

/* Opens name below base as the present user. */
static int open_dir(const char *name, bool create)
{
	return place_open_runtime_dir(in_base(name), geteuid(), create, why, sizeof(why));
}

static void expect_refusal(const char *dir, int err, const char *wrong)
{
	ck_assert_int_eq(place_open_runtime_dir(dir, geteuid(), false, why, sizeof(why)), -err);
	ck_assert_msg(strstr(why, wrong) != NULL, "expected \"%s\" in: %s", wrong, why);
	ck_assert_ptr_null(strchr(why, '\n'));
}

START_TEST(runtime_dir_is_made)
{
	struct stat made, opened;
	int fd;

	expect_refusal(in_base("run"), ENOENT, "start dflockd");
	fd = open_dir("run", true);
	ck_assert_msg(fd >= 0, "%s", why);
	ck_assert_int_eq(lstat(in_base("run"), &made), 0);
	ck_assert_int_eq(fstat(fd, &opened), 0);
	ck_assert_uint_eq(made.st_ino, opened.st_ino);
	ck_assert_uint_eq(made.st_mode & 07777, 0700);
	ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	ck_assert_int_eq(fcntl(fd, F_GETFL) & O_PATH, O_PATH);
	close(fd);
	fd = open_dir("run//", false);
	ck_assert_int_ge(fd, 0);
	close(fd);
	ck_assert_int_eq(chmod(in_base("run"), 0755), 0);
	fd = open_dir("run", true);
	ck_assert_int_ge(fd, 0);
	close(fd);

	ck_assert_int_eq(open_dir("none/run", true), -ENOENT);
	ck_assert_ptr_nonnull(strstr(why, "cannot be made: No such file or directory"));
}
END_TEST

START_TEST(runtime_dir_is_refused)
{
	ck_assert_int_eq(mkdir(in_base("run"), 0700), 0);
	ck_assert_int_eq(symlink("run", in_base("link")), 0);
	expect_refusal(in_base("link"), ELOOP, "is a symbolic link");
	expect_refusal(in_base("link/"), ELOOP, "is a symbolic link");
	make_file(in_base("file"));
	expect_refusal(in_base("file"), ENOTDIR, "is not a directory");
	ck_assert_int_eq(chmod(in_base("run"), 0720), 0);
	expect_refusal(in_base("run"), EPERM, "chmod go-w");
	ck_assert_int_eq(chmod(in_base("run"), 0702), 0);
	expect_refusal(in_base("run"), EPERM, "chmod go-w");
	ck_assert_int_eq(chmod(in_base("run"), 0700), 0);
	expect_refusal("run", EINVAL, "is not absolute");
	expect_refusal("", EINVAL, "is not absolute");
	expect_refusal(
		"/dev/shm/this-is-longer-than-any-socket-address-could-take-with-the-name-of-the-socket-behind-it",
		ENAMETOOLONG, "too long a name");
	/* Of root, and no tmpfs. */
	expect_refusal("/proc", EINVAL, "set DFLOCK_RUNTIME_DIR to a directory below /dev/shm");
}
END_TEST

START_TEST(runtime_dir_of_another)
{
	uid_t other = geteuid() + 12345;
	char expected[64];

	ck_assert_int_eq(mkdir(in_base("run"), 0700), 0);
	if (geteuid() == 0) {
		/* Root's is everybody's; another's is refused also to root. */
		int fd = place_open_runtime_dir(in_base("run"), other, false, why, sizeof(why));

		ck_assert_msg(fd >= 0, "%s", why);
		close(fd);
		ck_assert_int_eq(chown(in_base("run"), other, (gid_t)-1), 0);
		ck_assert_int_eq(open_dir("run", false), -EPERM);
		snprintf(expected, sizeof(expected), "belongs to uid %u", other);
	} else {
		ck_assert_int_eq(place_open_runtime_dir(in_base("run"), other, false, why, sizeof(why)), -EPERM);
		snprintf(expected, sizeof(expected), "belongs to uid %u", geteuid());
	}
	ck_assert_msg(strstr(why, expected) != NULL, "%s", why);
	ck_assert_int_eq(place_open_runtime_dir(in_base("none"), other, false, why, 8), -ENOENT);
	ck_assert_str_eq(why, "runtime");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("place");
	TCase *texts = tcase_create("text"), *places = tcase_create("places");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_test(texts, text_is_bounded);
	tcase_add_test(texts, text_numbers);
	suite_add_tcase(suite, texts);

	tcase_add_checked_fixture(places, setup, teardown);
	tcase_add_test(places, config_from_environment);
	tcase_add_test(places, config_that_cannot_be_named);
	tcase_add_test(places, config_from_home);
	tcase_add_test(places, config_id);
	tcase_add_test(places, runtime_dir);
	tcase_add_test(places, runtime_dir_is_made);
	tcase_add_test(places, runtime_dir_is_refused);
	tcase_add_test(places, runtime_dir_of_another);
	suite_add_tcase(suite, places);

	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
