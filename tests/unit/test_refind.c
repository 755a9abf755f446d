/* keeper/kernel/refind.h: files are found again by path and through processes, and opened anew; nothing else is. */
#include "keeper/kernel/refind.h"

#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "tests/unit/base_folder.h"

#define FILES 3

static char paths[FILES][96], elsewhere[FILES][96];
static struct refind files[FILES];
static pid_t holder; /* has all files open, descriptors 100 and up */

static struct refind sought(const char *path)
{
	struct refind r;
	struct stat st;

	ck_assert_int_eq(stat(path, &st), 0);
	refind_init(&r, st.st_dev, st.st_ino);
	return r;
}

static void setup(void)
{
	base_make();
	for (int i = 0; i < FILES; i++) {
		snprintf(paths[i], sizeof(paths[i]), "%s/f%d", base, i);
		snprintf(elsewhere[i], sizeof(elsewhere[i]), "%s/elsewhere%d", base, i);
		make_file(paths[i]);
		files[i] = sought(paths[i]);
		refind_begin(&files[i]);
	}
	holder = 0;
}

static void teardown(void)
{
	if (holder > 0) {
		kill(holder, SIGKILL);
		waitpid(holder, NULL, 0);
	}
	for (int i = 0; i < FILES; i++) {
		refind_end(&files[i]);
		if (files[i].fd >= 0)
			close(files[i].fd);
	}
	base_remove();
}
FIXTURE(setup, teardown)

static bool is_file(int fd, const struct refind *r)
{
	struct stat st;

	return fstat(fd, &st) == 0 && st.st_dev == r->dev && st.st_ino == r->ino;
}

/* A process opens the files, with a lock on each, and then no path leads to them. */
static void hide_files(void)
{
	holder = suite_fork();
	if (holder == 0) {
		for (int i = 0; i < FILES; i++) {
			int fd = open(paths[i], O_RDWR);

			if (fd < 0 || dup2(fd, 100 + i) < 0 || flock(100 + i, LOCK_EX | LOCK_NB) != 0)
				_exit(1);
			close(fd);
		}
		suite_rest();
	}
	for (int i = 0; i < FILES; i++)
		ck_assert_int_eq(rename(paths[i], elsewhere[i]), 0);
}

TEST(a_path_that_leads_to_the_file_opens_it)
{
	refind_by_path(&files[0], paths[0]);
	ck_assert_int_ge(files[0].fd, 0);
	ck_assert(is_file(files[0].fd, &files[0]));
	ck_assert_int_eq(files[0].path_fd, -1);
	ck_assert(!files[0].error && !files[0].forbidden);
}

TEST(a_path_that_leads_elsewhere_opens_nothing)
{
	refind_by_path(&files[0], paths[1]);
	ck_assert(files[0].fd == -1 && files[0].path_fd == -1 && !files[0].error);
	refind_by_path(&files[0], elsewhere[0]);
	ck_assert(files[0].fd == -1 && files[0].path_fd == -1 && !files[0].error);
}

/* What exists and cannot be opened: a socket. Root may open any file. */
TEST(a_file_that_cannot_be_opened_is_found_all_the_same)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct refind r;

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", elsewhere[0]);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	close(fd);
	r = sought(elsewhere[0]);
	refind_by_path(&r, elsewhere[0]);
	ck_assert(r.fd == -1 && r.path_fd == -1);
	ck_assert_int_eq(r.error, ENXIO);
	ck_assert(r.forbidden);
	refind_begin(&r); /* another try: the list is still of use */
	ck_assert(!r.error && r.forbidden);
}

TEST(the_search_finds_files_through_a_process)
{
	struct refind *array[FILES] = {&files[2], &files[0], &files[1]};

	hide_files();
	refind_search(array, FILES);
	for (int i = 0; i < FILES; i++) {
		ck_assert_int_ge(files[i].path_fd, 0);
		ck_assert(is_file(files[i].path_fd, &files[i]));
		ck_assert(fcntl(files[i].path_fd, F_GETFL) & O_PATH);
	}
	refind_open(&files[0]);
	ck_assert_int_eq(files[0].path_fd, -1);
	ck_assert(is_file(files[0].fd, &files[0]));
	/* A new description: the process's own would let go of its lock, and be granted a second one. */
	ck_assert_int_eq(flock(files[0].fd, LOCK_EX | LOCK_NB), -1);
	ck_assert_int_eq(errno, EWOULDBLOCK);
}

TEST(the_search_leaves_what_was_found_to_the_list)
{
	struct refind *array[FILES] = {&files[0], &files[1], &files[2]};
	struct listed *listed;

	hide_files();
	files[1].error = EACCES;
	files[1].forbidden = true;
	refind_search(array, FILES);
	ck_assert(files[0].path_fd >= 0 && files[1].path_fd == -1 && files[2].path_fd >= 0);
	listed = listed_read();
	ck_assert_int_eq(files[1].listed[WIRE_FLOCK],
			 listed_ask(listed, files[1].dev, files[1].ino, WIRE_FLOCK)); /* which may be unknown */
	ck_assert_int_ne(files[1].listed[WIRE_FLOCK], LISTED_NONE);
	listed_free(listed);
}

/* A step after the search may never have been started. */
TEST(another_try_closes_what_the_last_one_found)
{
	struct refind *array[] = {&files[0]};
	int found;

	hide_files();
	refind_search(array, 1);
	found = files[0].path_fd;
	ck_assert_int_ge(found, 0);
	refind_begin(&files[0]);
	ck_assert_int_eq(files[0].path_fd, -1);
	ck_assert_int_eq(fcntl(found, F_GETFD), -1);
	ck_assert_int_eq(files[0].listed[WIRE_FLOCK], LISTED_UNKNOWN);
}

TEST(a_path_in_memory_opens_at_once)
{
	int fd = refind_at_once(files[0].dev, files[0].ino, paths[0]);

	ck_assert_int_ge(fd, 0);
	ck_assert(is_file(fd, &files[0]));
	close(fd);
	ck_assert_int_eq(refind_at_once(files[0].dev, files[0].ino, paths[1]), -1);
	ck_assert_int_eq(refind_at_once(files[0].dev, files[0].ino, elsewhere[0]), -1);
}
