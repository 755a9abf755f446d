/* dflock doctor: every path and tree of the configuration, and what its file system does with locks. */
#include "cli/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "procfs/procfs_mounts.h"

/* The directory that a rule's fixed part names: of a glob, its pattern with the backslashes taken away. */
static void fixed_directory(const struct rule *rule, char dir[PATH_MAX])
{
	const char *p = rule->pattern;
	size_t used = 0;

	while (used < rule->fixed_len && used < PATH_MAX - 1 && *p) {
		if (*p == '\\' && p[1])
			p++;
		dir[used++] = *p++;
	}
	dir[used] = '\0';
	if (!used)
		strcpy(dir, "/");
}

static void parent_directory(const char *path, char dir[PATH_MAX])
{
	char *slash;

	snprintf(dir, PATH_MAX, "%s", path);
	slash = strrchr(dir, '/');
	if (slash)
		slash[slash == dir] = '\0';
}

/* --- files with several links --- */

#define LOOKED_MAX 100000 /* files of one tree */

/* nftw() passes no argument on. */
static struct {
	unsigned looked, found;
	nlink_t links;
	char first[PATH_MAX];
} several;

static int on_file(const char *path, const struct stat *st, int kind, struct FTW *at)
{
	(void)at;
	if (kind == FTW_F && S_ISREG(st->st_mode) && st->st_nlink > 1 && !several.found++) {
		several.links = st->st_nlink;
		snprintf(several.first, sizeof(several.first), "%s", path);
	}
	return ++several.looked >= LOOKED_MAX;
}

static void on_match(const char *path)
{
	struct stat st;

	if (lstat(path, &st) == 0)
		on_file(path, &st, FTW_F, NULL);
}

/* What cannot be read has no finding: the keeper's user can read more. */
static void check_links(struct doctor *d, const struct rule *rule)
{
	glob_t matches = {.gl_pathc = 0};

	several.looked = several.found = 0;
	if (rule->kind == PAGE_RULE_TREE)
		nftw(rule->pattern, on_file, 16, FTW_PHYS);
	else if (rule->kind == PAGE_RULE_PATH)
		on_match(rule->pattern);
	else if (glob(rule->pattern, GLOB_NOSORT, NULL, &matches) == 0)
		for (size_t i = 0; i < matches.gl_pathc; i++)
			on_match(matches.gl_pathv[i]);
	globfree(&matches);
	if (several.found)
		doctor_find(
			d, FINDING_WARNING,
			"%s (line %d): %u file%s more than one link, %s for example %ju: a lock by a link that no rule "
			"names is not protected; give such links rules with the same lock name, or remove them",
			rule->pattern, rule->line, several.found, several.found == 1 ? " has" : "s have", several.first,
			(uintmax_t)several.links);
	if (several.looked >= LOOKED_MAX)
		doctor_find(d, FINDING_WARNING, "%s (line %d): only %d of its files were looked at for further links",
			    rule->pattern, rule->line, LOOKED_MAX);
}

/* --- what becomes of locks on a file system --- */

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
			snprintf(line, FILES_LINE_BYTES,
				 "%s: its own locks hold on this machine only, those under dflock on all hosts", type);
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
	snprintf(line, FILES_LINE_BYTES,
		 "%s, of which dflock knows nothing: its own locks probably hold on this machine only", type);
	return FILES_UNKNOWN;
}

struct files_wanted {
	uint64_t id;
	enum files_locks *locks;
	char *line;
};

static int files_on_mount(void *arg, const struct procfs_mount *mount)
{
	struct files_wanted *wanted = arg;
	char options[2600];

	if ((uint64_t)mount->id != wanted->id)
		return 0;
	snprintf(options, sizeof(options), "%.500s,%.2000s", mount->options, mount->super_options);
	*wanted->locks = files_judge(mount->type, options, wanted->line);
	return 1;
}

/* By its id. 0, or -ENOENT, or -errno. */
static int files_judge_mount(struct files_wanted *wanted)
{
	FILE *table = procfs_mounts_open(0);
	int ret = table ? procfs_mounts(table, files_on_mount, wanted) : -errno;

	if (table)
		fclose(table);
	return ret == 1 ? 0 : ret ? ret : -ENOENT;
}

/*
 * What becomes of flock() on the file or directory at `path`. line says it in words: the file system and what it means.
 * 0, or -errno if path cannot be examined. Does not ask a file server for anything that is in the cache.
 */
static int files_examine(const char *path, enum files_locks *locks, char line[FILES_LINE_BYTES])
{
	struct files_wanted wanted = {.locks = locks, .line = line};
	struct statx st;
	int ret;

	if (statx(AT_FDCWD, path, AT_STATX_DONT_SYNC, STATX_TYPE | STATX_MNT_ID, &st))
		return -errno;
	if (!S_ISREG(st.stx_mode) && !S_ISDIR(st.stx_mode)) {
		snprintf(line, FILES_LINE_BYTES,
			 "neither a regular file nor a directory: locks on it are not protected; choose another path");
		*locks = FILES_UNFIT;
		return 0;
	}
	/* Since Linux 5.8. */
	wanted.id = st.stx_mnt_id;
	ret = st.stx_mask & STATX_MNT_ID ? files_judge_mount(&wanted) : -ENOENT;
	if (ret) {
		snprintf(line, FILES_LINE_BYTES, "its mount cannot be found in /proc/self/mountinfo: %s",
			 strerror(-ret));
		*locks = FILES_UNKNOWN;
	}
	return 0;
}

static void check_rule(struct doctor *d, const struct rule *rule)
{
	static const enum finding levels[] = {
		[FILES_LOCAL] = FINDING_OK,         [FILES_UNKNOWN] = FINDING_WARNING,
		[FILES_NETWORK_LOCAL] = FINDING_OK, [FILES_NETWORK] = FINDING_WARNING,
		[FILES_FUSE] = FINDING_WARNING,     [FILES_UNFIT] = FINDING_PROBLEM,
	};
	const char *what = rule->kind == PAGE_RULE_TREE ? "tree " : "", *note = "";
	char path[PATH_MAX], line[FILES_LINE_BYTES];
	enum files_locks locks;
	int ret;

	if (rule->kind == PAGE_RULE_GLOB)
		fixed_directory(rule, path);
	else
		snprintf(path, sizeof(path), "%s", rule->pattern);
	ret = files_examine(path, &locks, line);
	if (ret == -ENOENT && rule->kind == PAGE_RULE_PATH) {
		parent_directory(rule->pattern, path);
		note = "does not exist yet; on ";
		ret = files_examine(path, &locks, line);
	}
	if (ret == -ENOENT)
		doctor_find(d, FINDING_WARNING, "%s%s (line %d): the directory %s does not exist%s", what,
			    rule->pattern, rule->line, path, "; is it a typing error, or not mounted?");
	else if (ret)
		doctor_find(d, FINDING_WARNING, "%s%s (line %d): %s cannot be examined: %s", what, rule->pattern,
			    rule->line, path, strerror(-ret));
	else
		doctor_find(d, levels[locks], "%s%s: %s%s", what, rule->pattern, note, line);
	if (!ret)
		check_links(d, rule);
}

void doctor_files(struct doctor *d)
{
	for (size_t i = 0; d->config && i < d->config->rule_count; i++)
		check_rule(d, &d->config->rules[i]);
}
