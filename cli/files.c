#include "cli/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/internal.h" /* resolve_path() */

/* Makes `file` absolute, with its directory resolved if that exists ("../x"). */
static int files_make_absolute(const char *file, char absolute[PATH_MAX])
{
	const char *slash = strrchr(file, '/');
	char given[PATH_MAX], dir[PATH_MAX];
	const char *base = slash ? slash + 1 : file;

	if (strlen(file) >= PATH_MAX)
		return -ENAMETOOLONG;
	snprintf(given, sizeof(given), "%.*s", (int)(base - file), file);
	if (!realpath(slash ? given : ".", dir)) {
		if (file[0] != '/' && !getcwd(dir, sizeof(dir)))
			return -errno;
		base = file;
	}
	return snprintf(absolute, PATH_MAX, "%s/%s", base[0] == '/' ? "" : dir, base) < PATH_MAX ? 0 : -ENAMETOOLONG;
}

int files_resolve(const char *file, char path[PATH_MAX])
{
	char absolute[PATH_MAX];
	int r;

	if (realpath(file, path))
		return 0;
	if (errno != ENOENT || !*file)
		return -errno;
	r = files_make_absolute(file, absolute);
	return r ? r : resolve_path(absolute, path);
}

int files_parse_mount(const char *line, unsigned long long id, char *type, size_t type_size, char *options,
		      size_t options_size)
{
	char mount_options[512], super_options[2048], fs[64];
	unsigned long long this;
	const char *rest = strstr(line, " - ");

	/* ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [FIELDS...] - TYPE SOURCE SUPER_OPTIONS */
	if (sscanf(line, "%llu %*u %*s %*s %*s %511s", &this, mount_options) != 2 || this != id || !rest)
		return -ENOENT;
	if (sscanf(rest + 3, "%63s %*s %2047s", fs, super_options) != 2)
		return -ENOENT;
	snprintf(type, type_size, "%s", fs);
	snprintf(options, options_size, "%s,%s", mount_options, super_options);
	return 0;
}

/* Is `option` ("nolock", "local_lock=all") one of the list? */
static bool has(const char *options, const char *option)
{
	size_t len = strlen(option);

	for (const char *p = options; *p; p += *p == ',') {
		size_t n = strcspn(p, ",");

		if (n == len && !memcmp(p, option, n))
			return true;
		p += n;
	}
	return false;
}

static enum files_locks judge_nfs(const char *type, const char *options, char line[FILES_LINE_BYTES])
{
	if (has(options, "local_lock=all") || has(options, "local_lock=flock") || has(options, "nolock")) {
		snprintf(line, FILES_LINE_BYTES,
			 "%s that keeps flock() on this machine: without dflock it would exclude no other host", type);
		return FILES_NETWORK_LOCAL;
	}
	snprintf(line, FILES_LINE_BYTES,
		 "%s that asks its server for each lock, also below dflock: a server that does not answer delays "
		 "locks, and LOCK_EX needs a descriptor open for writing%s",
		 type,
		 strcmp(type, "nfs")
			 ? ""
			 : "; unless programs without dflock lock there too, mount it with local_lock=flock");
	return FILES_NETWORK;
}

static enum files_locks judge_cifs(const char *type, const char *options, char line[FILES_LINE_BYTES])
{
	if (has(options, "nobrl")) {
		snprintf(line, FILES_LINE_BYTES,
			 "%s mounted with nobrl, which keeps locks on this machine: without dflock it would exclude "
			 "no other host",
			 type);
		return FILES_NETWORK_LOCAL;
	}
	snprintf(line, FILES_LINE_BYTES,
		 "%s that asks its server for each lock, where locks are mandatory: a program that reads or writes a "
		 "file that another one has locked gets an error; mount it with nobrl on all hosts that lock under "
		 "dflock",
		 type);
	return FILES_NETWORK;
}

enum files_locks files_judge(const char *type, const char *options, char line[FILES_LINE_BYTES])
{
	static const char *const local[] = {"ext2",     "ext3",     "ext4",     "xfs",      "btrfs",    "tmpfs",
					    "ramfs",    "f2fs",     "zfs",      "jfs",      "reiserfs", "exfat",
					    "vfat",     "ntfs3",    "nilfs2",   "bcachefs", "overlay",  "erofs",
					    "squashfs", "devtmpfs", "hugetlbfs"};
	static const char *const cluster[] = {"ceph", "gfs2", "ocfs2", "lustre", "afs", "9p", "virtiofs", "beegfs"};

	for (size_t i = 0; i < sizeof(local) / sizeof(local[0]); i++)
		if (!strcmp(type, local[i])) {
			snprintf(line, FILES_LINE_BYTES, "%s, locks are local", type);
			return FILES_LOCAL;
		}
	if (!strcmp(type, "nfs") || !strcmp(type, "nfs4"))
		return judge_nfs(type, options, line);
	if (!strcmp(type, "cifs") || !strcmp(type, "smb3"))
		return judge_cifs(type, options, line);
	if (!strncmp(type, "fuse", 4)) {
		snprintf(line, FILES_LINE_BYTES,
			 "%s: whether it keeps locks here or passes them on is up to its program; dflock excludes "
			 "other hosts either way, if the kernel lock works at all: try it with flock(1)",
			 type);
		return FILES_FUSE;
	}
	for (size_t i = 0; i < sizeof(cluster) / sizeof(cluster[0]); i++)
		if (!strcmp(type, cluster[i])) {
			snprintf(line, FILES_LINE_BYTES,
				 "%s, which may take locks across hosts itself, according to how it is mounted; that "
				 "stays so below dflock",
				 type);
			return FILES_NETWORK;
		}
	if (!strcmp(type, "proc") || !strcmp(type, "sysfs") || !strcmp(type, "autofs") || !strcmp(type, "devpts")) {
		snprintf(line, FILES_LINE_BYTES, "%s, no place for lock files; choose another path%s", type,
			 strcmp(type, "autofs") ? "" : " or have it mounted");
		return FILES_UNFIT;
	}
	snprintf(line, FILES_LINE_BYTES, "%s, of which dflock knows nothing; locks are probably local", type);
	return FILES_UNKNOWN;
}

/* The mount's line in mountinfo, found by its id. */
static int find_mount(unsigned long long id, char *type, size_t type_size, char *options, size_t options_size)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char *line = NULL;
	size_t room = 0;
	int r = -ENOENT;

	if (!f)
		return -errno;
	while (r && getline(&line, &room, f) > 0)
		r = files_parse_mount(line, id, type, type_size, options, options_size);
	free(line);
	fclose(f);
	return r;
}

int files_examine(const char *path, enum files_locks *locks, char line[FILES_LINE_BYTES])
{
	char type[64], options[2600];
	struct statx st;
	int r;

	if (statx(AT_FDCWD, path, AT_STATX_DONT_SYNC, STATX_TYPE | STATX_MNT_ID, &st))
		return -errno;
	if (!S_ISREG(st.stx_mode) && !S_ISDIR(st.stx_mode)) {
		snprintf(line, FILES_LINE_BYTES,
			 "neither a regular file nor a directory: locks on it are not protected; choose another path");
		*locks = FILES_UNFIT;
		return 0;
	}
	/* Since Linux 5.8. */
	r = st.stx_mask & STATX_MNT_ID ? find_mount(st.stx_mnt_id, type, sizeof(type), options, sizeof(options))
				       : -ENOENT;
	if (r) {
		snprintf(line, FILES_LINE_BYTES, "its mount cannot be found in /proc/self/mountinfo: %s", strerror(-r));
		*locks = FILES_UNKNOWN;
		return 0;
	}
	*locks = files_judge(type, options, line);
	return 0;
}
