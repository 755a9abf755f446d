/* keeper/callers/kept.c: the copy of the configuration in force, written, read, damaged. */
#include "keeper/callers/kept.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH "/etc/dflock.conf"
#define TEXT "protect = ( );\n# a comment\n"

static char dir[] = "/tmp/test_kept_XXXXXX";
static char own[sizeof(dir)];
static int dir_fd;

static void setup(void)
{
	snprintf(own, sizeof(own), "%s", dir);
	ck_assert_ptr_nonnull(mkdtemp(own));
	dir_fd = open(own, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(dir_fd, 0);
}

static void teardown(void)
{
	unlinkat(dir_fd, KEPT_NAME, 0);
	unlinkat(dir_fd, KEPT_NAME ".new", 0);
	unlinkat(dir_fd, "elsewhere", 0);
	close(dir_fd);
	rmdir(own);
}

static int write_copy(const char *text, size_t len)
{
	const struct config config = {.path = (char *)PATH, .text = (char *)text, .text_len = len};

	return kept_write(dir_fd, &config);
}

static off_t size_of_copy(void)
{
	struct stat st;

	ck_assert_int_eq(fstatat(dir_fd, KEPT_NAME, &st, AT_SYMLINK_NOFOLLOW), 0);
	return st.st_size;
}

START_TEST(what_was_written_is_read)
{
	struct config_source source;
	struct stat st;

	ck_assert_int_eq(write_copy(TEXT, strlen(TEXT)), 0);
	ck_assert_int_eq(fstatat(dir_fd, KEPT_NAME, &st, 0), 0);
	ck_assert_int_eq(st.st_mode & 0777, 0600);
	ck_assert_int_eq(kept_read(dir_fd, PATH, &source), 0);
	ck_assert_str_eq(source.path, PATH);
	ck_assert_uint_eq(source.len, strlen(TEXT));
	ck_assert_str_eq(source.text, TEXT);
	config_source_free(&source);
	ck_assert_int_ne(faccessat(dir_fd, KEPT_NAME ".new", F_OK, 0), 0);
}
END_TEST

START_TEST(an_empty_text_and_one_with_nul)
{
	struct config_source source;

	ck_assert_int_eq(write_copy("", 0), 0);
	ck_assert_int_eq(kept_read(dir_fd, PATH, &source), 0);
	ck_assert_uint_eq(source.len, 0);
	config_source_free(&source);
	ck_assert_int_eq(write_copy("a\0b", 3), 0);
	ck_assert_int_eq(kept_read(dir_fd, PATH, &source), 0);
	ck_assert_uint_eq(source.len, 3);
	ck_assert_mem_eq(source.text, "a\0b", 4);
	config_source_free(&source);
}
END_TEST

START_TEST(a_copy_of_another_path_is_none)
{
	struct config_source source;

	ck_assert_int_eq(kept_read(dir_fd, PATH, &source), -ENOENT);
	ck_assert_int_eq(write_copy(TEXT, strlen(TEXT)), 0);
	ck_assert_int_eq(kept_read(dir_fd, PATH "2", &source), -ENOENT);
	ck_assert_int_eq(kept_read(dir_fd, "/etc/dflock.con", &source), -ENOENT);
	kept_remove(dir_fd);
	ck_assert_int_eq(kept_read(dir_fd, PATH, &source), -ENOENT);
	kept_remove(dir_fd); /* one that is not there */
}
END_TEST

/* Cut inside the magic line or the path: damaged. Never read over the end. */
START_TEST(cut_at_every_place)
{
	struct config_source source;
	off_t text, size;

	ck_assert_int_eq(write_copy(TEXT, strlen(TEXT)), 0);
	size = size_of_copy();
	text = size - (off_t)strlen(TEXT);
	for (off_t at = size; at-- > 0;) {
		int fd = openat(dir_fd, KEPT_NAME, O_WRONLY | O_CLOEXEC), ret;

		ck_assert_int_eq(ftruncate(fd, at), 0);
		close(fd);
		ret = kept_read(dir_fd, PATH, &source);
		ck_assert_int_eq(ret, at >= text ? 0 : -EINVAL);
		if (ret == 0)
			ck_assert_uint_eq(source.len, (size_t)(at - text));
		config_source_free(&source);
	}
}
END_TEST

START_TEST(another_beginning_is_damage)
{
	struct config_source source;
	int fd;

	ck_assert_int_eq(write_copy(TEXT, strlen(TEXT)), 0);
	fd = openat(dir_fd, KEPT_NAME, O_WRONLY | O_CLOEXEC);
	ck_assert_int_eq(pwrite(fd, "D", 1, 0), 1);
	close(fd);
	ck_assert_int_eq(kept_read(dir_fd, PATH, &source), -EINVAL);
}
END_TEST

/* Somebody's link is neither followed nor written through. */
START_TEST(links_are_not_followed)
{
	struct config_source source;
	struct stat st;

	close(openat(dir_fd, "elsewhere", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	ck_assert_int_eq(symlinkat("elsewhere", dir_fd, KEPT_NAME), 0);
	ck_assert_int_eq(kept_read(dir_fd, PATH, &source), -ELOOP);
	ck_assert_int_eq(symlinkat("elsewhere", dir_fd, KEPT_NAME ".new"), 0);
	ck_assert_int_eq(write_copy(TEXT, strlen(TEXT)), 0);
	ck_assert_int_eq(fstatat(dir_fd, "elsewhere", &st, 0), 0);
	ck_assert_int_eq(st.st_size, 0);
	ck_assert_int_eq(kept_read(dir_fd, PATH, &source), 0);
	config_source_free(&source);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("kept");
	TCase *tcase = tcase_create("all");
	SRunner *runner = srunner_create(suite);
	int failed;

	suite_add_tcase(suite, tcase);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, what_was_written_is_read);
	tcase_add_test(tcase, an_empty_text_and_one_with_nul);
	tcase_add_test(tcase, a_copy_of_another_path_is_none);
	tcase_add_test(tcase, cut_at_every_place);
	tcase_add_test(tcase, another_beginning_is_damage);
	tcase_add_test(tcase, links_are_not_followed);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
