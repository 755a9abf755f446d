/* procfs/procfs.h: mount lines, as the kernel writes them, and as it never does. */
#include <sys/sysmacros.h>

#include "procfs/procfs.h"
#include "tests/unit/suite.h"

TEST(mount_lines)
{
	char nfs[] =
		"36 35 98:0 /a\\040- /mnt/with\\040blank\\134040\\011 rw,noatime master:1 shared:2 - nfs4 10.0.0.7:/x rw,nolock\n";
	char no_source[] = "36 35 0:44 / / rw - overlay  rw,lowerdir=/a\\040b\n",
	     newline[] = "1 2 0:5 / /a\\012b\\777 rw - t s o";
	struct procfs_mount mount;

	ck_assert(procfs_mount_line(nfs, &mount));
	ck_assert_int_eq(mount.id, 36);
	ck_assert_int_eq(mount.parent, 35);
	ck_assert_uint_eq(mount.dev, makedev(98, 0));
	ck_assert_str_eq(mount.point, "/mnt/with blank\\040\t");
	ck_assert_str_eq(mount.options, "rw,noatime");
	ck_assert_str_eq(mount.type, "nfs4");
	ck_assert_str_eq(mount.source, "10.0.0.7:/x");
	ck_assert_str_eq(mount.super_options, "rw,nolock");
	ck_assert(procfs_mount_line(no_source, &mount));
	ck_assert_str_eq(mount.type, "overlay");
	ck_assert_str_eq(mount.source, "");
	ck_assert_str_eq(mount.super_options, "rw,lowerdir=/a\\040b");
	ck_assert(procfs_mount_line(newline, &mount));
	ck_assert_str_eq(mount.point, "/a\nb\xff");
}

TEST_EACH(no_mount_lines, 9)
{
	static const char *const rows[] = {"",
					   "\n",
					   "36 35 98:0 / /mnt rw",
					   "36 35 98:0 / /mnt rw -",
					   "36 35 98:0 / /mnt rw - ext4",
					   "36 35 98:0 / /mnt rw - ext4 source",
					   "36 35 98:0 / mnt rw - ext4 source rw",
					   "36 35 98 / /mnt rw - ext4 source rw",
					   "x 35 98:0 / /mnt rw - ext4 source rw"};
	struct procfs_mount mount;
	char line[128];

	strcpy(line, rows[_i]);
	ck_assert_msg(!procfs_mount_line(line, &mount), "%s", rows[_i]);
}

static int on_mount(void *arg, const struct procfs_mount *mount)
{
	return strcmp(mount->point, arg) == 0 ? mount->id : 0;
}

TEST(own_mounts)
{
	char root[] = "/", nowhere[] = "/no/such/place";
	FILE *table = procfs_mounts_open(0), *same = procfs_mounts_open(getpid());
	int id;

	ck_assert_ptr_nonnull(table);
	ck_assert_ptr_nonnull(same);
	id = procfs_mounts(table, on_mount, root);
	ck_assert_int_gt(id, 0);
	ck_assert_int_eq(procfs_mounts(table, on_mount, nowhere), 0);
	ck_assert_int_eq(procfs_mounts(table, on_mount, root), id);
	ck_assert_int_eq(procfs_mounts(same, on_mount, root), id);
	fclose(table);
	fclose(same);
	ck_assert_ptr_null(procfs_mounts_open(-1));
}
