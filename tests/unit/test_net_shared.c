/* The memory of both supervisors, where no more can be had. */
#include <sys/mount.h>

/* dflock-net is no part of the library that unit tests are linked with. */
#include "net/shared.c"
#include "tests/unit/base_folder.h"
#include "tests/unit/own_mounts.h"

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
