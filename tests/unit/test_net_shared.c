/* What both supervisors have: the memory where no more can be had, and lines, which go to what descriptor 2 was when that was judged. */
#include <sys/mount.h>

/* dflock-net is no part of the library that unit tests are linked with. */
#include "net/note_out.c"
#include "net/shared.c"
#include "shim/note.c"
#include "tests/unit/base_folder.h"
#include "tests/unit/own_mounts.h"

static int outs[2], copies;

/* The program opens something else under this number after each copy. */
int thread_copy_for_messages(const struct thread *t) { return dup(outs[copies++ ? 1 : 0]); }

const struct settings *settings_get(void) { return NULL; }
long name_link(int fd, char *name, size_t size) { return -1; }

TEST(one_look_at_the_descriptor)
{
	char text[64] = "";
	int ends[2], data[2];

	ck_assert_int_eq(pipe(ends), 0);
	ck_assert_int_eq(pipe2(data, O_NONBLOCK), 0);
	outs[0] = ends[1];
	outs[1] = data[1];
	note_out_for((const struct thread *)&outs);
	note_line(NOTE_JOB, "a line");
	note_out_for(NULL);
	ck_assert_int_gt(read(ends[0], text, sizeof(text) - 1), 0);
	ck_assert_str_eq(text, "dflock: a line\n");
	ck_assert_int_eq(copies, 1);
	for (int i = 0; i < 2; i++) {
		close(ends[i]);
		close(data[i]);
	}
}

/* A full tmpfs in place of a full machine: SIGBUS for a process that touches what has no memory. */
TEST(no_memory_for_a_place)
{
	unsigned places = 0;
	int fd;

	base_make();
	own_mounts();
	ck_assert_int_eq(mount("none", base, "tmpfs", 0, "size=64k"), 0);
	fd = open(in_base("shared"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, sizeof(*shared)), 0);
	ck_assert_int_eq(shared_map(fd), 0);
	while (shared_find())
		places++;
	ck_assert_uint_eq(places, (65536 - offsetof(struct shared, calls)) / sizeof(struct caught));
	shared_free(&shared->calls[7]);
	ck_assert_ptr_eq(shared_find(), &shared->calls[7]);
	close(fd);
	munmap(shared, sizeof(*shared));
	ck_assert_int_eq(umount(base), 0);
	base_remove();
}

/* What one user's calls leave to the others. A call that has its answer counts no more. */
TEST(a_users_share)
{
	struct caught *caught = NULL;
	int fd = shared_make();

	ck_assert_int_ge(fd, 0);
	for (unsigned i = 0; i <= SHARED_EACH; i++) {
		caught = shared_find();
		ck_assert_ptr_nonnull(caught);
		caught->notif.data.arch = 1;
		ck_assert_int_eq(shared_count(caught, 1000), i < SHARED_EACH);
	}
	shared_free(caught);
	shared_free(&shared->calls[0]);
	for (uid_t uid = 1001; uid >= 1000; uid--) {
		caught = shared_find();
		caught->notif.data.arch = 1;
		ck_assert(shared_count(caught, uid));
	}
	close(fd);
	munmap(shared, sizeof(*shared));
}
