/* The copy of the configuration in force, which the next keeper reads: all of it, or nothing. */
#include "keeper/callers/configfile.h"
#include "tests/unit/base_folder.h"

static int dir;
static struct config_source source;

static void setup(void)
{
	base_make();
	dir = base_open();
}

static void teardown(void)
{
	config_source_free(&source);
	close(dir);
	base_remove();
}
FIXTURE(setup, teardown)

static int keep(const char *path, const char *text, size_t len)
{
	struct config config = {.path = (char *)path, .text = (char *)text, .text_len = len};
	return kept_write(dir, &config);
}

static int keep_text(const char *path, const char *text) { return keep(path, text, strlen(text)); }

static int read_again(const char *path)
{
	config_source_free(&source);
	return kept_read(dir, path, &source);
}

static bool is_there(const char *name) { return faccessat(dir, name, F_OK, 0) == 0; }

TEST(what_was_written_is_read)
{
	static const char text[] = "a = 1;\n\0// any bytes\n";
	struct stat st;

	ck_assert_int_eq(keep("/etc/dflock.conf", text, sizeof(text)), 0);
	ck_assert_int_eq(read_again("/etc/dflock.conf"), 0);
	ck_assert_str_eq(source.path, "/etc/dflock.conf");
	ck_assert_uint_eq(source.len, sizeof(text));
	ck_assert_int_eq(memcmp(source.text, text, sizeof(text)), 0);
	ck_assert_int_eq(source.text[source.len], '\0');
	ck_assert_int_eq(fstatat(dir, KEPT_NAME, &st, 0), 0);
	ck_assert_uint_eq(st.st_mode & 0777, 0600); /* it may name password files */
	ck_assert(!is_there(KEPT_NAME ".new"));
	ck_assert_int_eq(keep_text("/etc/dflock.conf", ""), 0); /* the last one counts */
	ck_assert_int_eq(read_again("/etc/dflock.conf"), 0);
	ck_assert_uint_eq(source.len, 0);
}

TEST(of_another_path)
{
	ck_assert_int_eq(read_again("/a"), -ENOENT);
	ck_assert_int_eq(keep_text("/a", "text"), 0);
	ck_assert_int_eq(read_again("/ab"), -ENOENT);
	ck_assert_int_eq(read_again(""), -ENOENT);
	ck_assert_ptr_null(source.path);
	kept_remove(dir);
	ck_assert_int_eq(read_again("/a"), -ENOENT);
}

TEST(damaged)
{
	struct stat st;
	int fd;

	ck_assert_int_eq(keep_text("/a", "text"), 0);
	ck_assert_int_eq(fstatat(dir, KEPT_NAME, &st, 0), 0);
	for (off_t len = 0; len < st.st_size - 4; len++) { /* without the path or its NUL */
		ck_assert_int_eq(keep_text("/a", "text"), 0);
		ck_assert_int_eq(truncate(in_base(KEPT_NAME), len), 0);
		ck_assert_int_eq(read_again("/a"), -EINVAL);
	}
	ck_assert_int_eq(keep_text("/a", "text"), 0);
	fd = openat(dir, KEPT_NAME, O_WRONLY);
	ck_assert_int_eq(pwrite(fd, "D", 1, 0), 1);
	close(fd);
	ck_assert_int_eq(read_again("/a"), -EINVAL);
}

/* Not a file that the keeper wrote: never opened for long, never followed. */
TEST(something_else_in_its_place)
{
	ck_assert_int_eq(mkfifoat(dir, KEPT_NAME, 0600), 0);
	ck_assert_int_eq(read_again("/a"), -EINVAL);
	kept_remove(dir);
	ck_assert_int_eq(keep_text("/a", "text"), 0);
	ck_assert_int_eq(renameat(dir, KEPT_NAME, dir, "elsewhere"), 0);
	ck_assert_int_eq(symlinkat("elsewhere", dir, KEPT_NAME), 0);
	ck_assert_int_eq(read_again("/a"), -ELOOP);
	ck_assert_int_eq(keep_text("/a", "new"), 0); /* replaces the link, and leaves its target */
	ck_assert_int_eq(read_again("/a"), 0);
	ck_assert_str_eq(source.text, "new");
	ck_assert(is_there("elsewhere"));
}

/* An old copy is not in force any more: none is better. */
TEST(what_cannot_be_replaced_is_removed)
{
	ck_assert_int_eq(keep_text("/a", "old"), 0);
	ck_assert_int_eq(mkdirat(dir, KEPT_NAME ".new", 0700), 0);
	ck_assert_int_lt(keep_text("/a", "new"), 0);
	ck_assert_int_eq(read_again("/a"), -ENOENT);
}
