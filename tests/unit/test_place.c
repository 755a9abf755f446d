/* The configuration file, and the bounded text that names and messages are made of. */
#include "tests/unit/base_folder.h"
#include "wire/place.h"
#include "wire/text.h"

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
FIXTURE(setup, teardown)

/* The configuration of now. */
static void config_is(const char *expected)
{
	place_init(&place);
	ck_assert_str_eq(place.config, expected);
}

TEST(config_from_environment)
{
	char expected[128];

	setenv("DFLOCK_CONFIG", "/no/such/file.conf", 1);
	config_is("/no/such/file.conf");

	setenv("DFLOCK_CONFIG", "sub/x.conf", 1);
	snprintf(expected, sizeof(expected), "%s/sub/x.conf", base);
	config_is(expected);

	ck_assert_int_eq(chdir("/"), 0);
	config_is("/sub/x.conf");
}

/* It must never turn into "no configuration". */
TEST(config_that_cannot_be_named)
{
	static char value[PATH_MAX + 1];
	struct wire_config_id id;

	memset(value, 'x', PATH_MAX);
	value[0] = '/';
	setenv("DFLOCK_CONFIG", value, 1);
	config_is(UNUSABLE);
	ck_assert_int_eq(place_config_id(place.config, &id), -ENOTDIR);

	value[PATH_MAX - 1] = '\0';
	setenv("DFLOCK_CONFIG", value, 1);
	config_is(value);

	value[0] = 'x';
	setenv("DFLOCK_CONFIG", value, 1);
	config_is(UNUSABLE);

	/* Relative to a directory that is gone. */
	setenv("DFLOCK_CONFIG", "x.conf", 1);
	ck_assert_int_eq(mkdir(in_base("gone"), 0700), 0);
	ck_assert_int_eq(chdir(in_base("gone")), 0);
	ck_assert_int_eq(rmdir(in_base("gone")), 0);
	config_is(UNUSABLE);
}

TEST(config_from_home)
{
	struct stat st;
	const char *system_config = stat("/etc/dflock.conf", &st) == 0 ? "/etc/dflock.conf" : "";
	char expected[128];

	config_is(system_config);
	ck_assert_int_eq(mkdir(in_base("home/.config"), 0700), 0);
	config_is(system_config);
	make_file(in_base("home/.config/dflock.conf"));
	snprintf(expected, sizeof(expected), "%s/.config/dflock.conf", home);
	config_is(expected);
	setenv("DFLOCK_CONFIG", "", 1);
	config_is(expected);

	setenv("HOME", "home", 1);
	config_is(system_config);
	unsetenv("HOME");
	config_is(system_config);
}

TEST(config_id)
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
