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

#include "procfs/procfs.h"

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
	const char *rule; /* of which files are looked at */
	unsigned looked, found;
	nlink_t links;
	char first[PATH_MAX];
} several;

static int on_file(const char *path, const struct stat *st, int kind, struct FTW *at)
{
	(void)at;
	files_ask(several.rule); /* this one has answered: the next one is another question */
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

	several.rule = rule->pattern;
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

/* What a file system of these types does with flock(); the first row that fits counts. */
struct judgement {
	const char *types;   /* with blanks between them and at both ends; "" is any. A * at the end: what begins so */
	const char *options; /* mounted with one of these, in the same form; NULL: however */
	enum finding level;
	const char *says; /* behind its type */
};

static const struct judgement judgements[] = {
	{" ext2 ext3 ext4 xfs btrfs tmpfs ramfs f2fs zfs jfs reiserfs exfat vfat ntfs3 nilfs2 bcachefs overlay erofs "
	 "squashfs devtmpfs hugetlbfs ",
	 NULL, FINDING_OK, ": its own locks hold on this machine only, those under dflock on all hosts"},
	{" nfs nfs4 ", " local_lock=all local_lock=flock nolock ", FINDING_OK,
	 " that keeps flock() on this machine: without dflock it would exclude no other host"},
	{" nfs ", NULL, FINDING_WARNING,
	 " that asks its server for each lock, also below dflock: a server that does not answer delays locks, and "
	 "LOCK_EX needs a descriptor open for writing; unless programs without dflock lock there too, mount it with "
	 "local_lock=flock"},
	{" nfs4 ", NULL, FINDING_WARNING,
	 " that asks its server for each lock, also below dflock: a server that does not answer delays locks, and "
	 "LOCK_EX needs a descriptor open for writing"},
	{" cifs smb3 ", " nobrl ", FINDING_OK,
	 " mounted with nobrl, which keeps locks on this machine: without dflock it would exclude no other host"},
	{" cifs smb3 ", NULL, FINDING_WARNING,
	 " that asks its server for each lock, where locks are mandatory: a program that reads or writes a file that "
	 "another one has locked gets an error; mount it with nobrl on all hosts that lock under dflock"},
	{" fuse*", NULL, FINDING_WARNING,
	 ": whether it keeps locks here or passes them on is up to its program; dflock excludes other hosts either "
	 "way, if the kernel lock works at all: try it with flock(1)"},
	{" ceph gfs2 ocfs2 lustre afs 9p virtiofs beegfs ", NULL, FINDING_WARNING,
	 ", which may take locks across hosts itself, according to how it is mounted; that stays so below dflock"},
	{" autofs ", NULL, FINDING_PROBLEM, ", no place for lock files; choose another path or have it mounted"},
	{" proc sysfs devpts ", NULL, FINDING_PROBLEM, ", no place for lock files; choose another path"},
	{"", NULL, FINDING_WARNING,
	 ", of which dflock knows nothing: its own locks probably hold on this machine only"},
};

/* Is one of the words, which have commas between them, in the list? */
static bool has_one(const char *list, const char *words)
{
	char word[64];

	for (; *words; words += strcspn(words, ","), words += *words == ',') {
		snprintf(word, sizeof(word), " %.*s ", (int)strcspn(words, ","), words);
		if (strstr(list, word))
			return true;
	}
	return false;
}

enum finding files_judge(const char *type, const char *options, char line[FILES_LINE_BYTES])
{
	const struct judgement *j = judgements;

	while (*j->types && !(!strcmp(j->types, " fuse*")
				      ? !strncmp(type, "fuse", 4)
				      : has_one(j->types, type) && (!j->options || has_one(j->options, options))))
		j++;
	snprintf(line, FILES_LINE_BYTES, "%s%s", type, j->says);
	return j->level;
}

struct files_wanted {
	uint64_t id;
	enum finding level;
	char *line;
};

static int files_on_mount(void *arg, const struct procfs_mount *mount)
{
	struct files_wanted *wanted = arg;
	char options[2600];

	if ((uint64_t)mount->id != wanted->id)
		return 0;
	snprintf(options, sizeof(options), "%.500s,%.2000s", mount->options, mount->super_options);
	wanted->level = files_judge(mount->type, options, wanted->line);
	return 1;
}

/*
 * What becomes of flock() on the file or directory at `path`: 0, with line in words, behind `note`; or -errno if path cannot be
 * examined. Does not ask a file server for anything that is in the cache.
 */
static int files_examine(const char *path, const char *note, enum finding *level, char line[2 * FILES_LINE_BYTES])
{
	char what[FILES_LINE_BYTES];
	struct files_wanted wanted = {.line = what};
	struct statx st;
	FILE *table;
	int found;

	if (statx(AT_FDCWD, path, AT_STATX_DONT_SYNC, STATX_TYPE | STATX_MNT_ID, &st))
		return -errno;
	if (!S_ISREG(st.stx_mode) && !S_ISDIR(st.stx_mode)) {
		strcpy(line,
		       "neither a regular file nor a directory: locks on it are not protected; choose another path");
		*level = FINDING_PROBLEM;
		return 0;
	}
	wanted.id = st.stx_mask & STATX_MNT_ID ? st.stx_mnt_id : UINT64_MAX; /* since Linux 5.8 */
	table = procfs_mounts_open(0);
	found = table ? procfs_mounts(table, files_on_mount, &wanted) : 0;
	if (table)
		fclose(table);
	*level = found == 1 ? wanted.level : FINDING_WARNING;
	if (found == 1)
		snprintf(line, 2 * FILES_LINE_BYTES, "%s%s%s", note, *note ? "; on " : "", what);
	else
		snprintf(line, 2 * FILES_LINE_BYTES,
			 "%s%swhat its file system does with locks cannot be told: its mount is not in "
			 "/proc/self/mountinfo, as in a chroot",
			 note, *note ? "; " : "");
	return 0;
}

static void check_rule(struct doctor *d, const struct rule *rule)
{
	const char *what = rule->kind == PAGE_RULE_TREE ? "tree " : "";
	char path[PATH_MAX], line[2 * FILES_LINE_BYTES];
	enum finding level;
	int ret;

	files_ask(rule->pattern);
	if (rule->kind == PAGE_RULE_GLOB)
		fixed_directory(rule, path);
	else
		snprintf(path, sizeof(path), "%s", rule->pattern);
	ret = files_examine(path, "", &level, line);
	if (ret == -ENOENT && rule->kind == PAGE_RULE_PATH) {
		parent_directory(rule->pattern, path);
		ret = files_examine(path, "does not exist yet", &level, line);
	}
	if (ret == -ENOENT)
		doctor_find(d, FINDING_WARNING,
			    "%s%s (line %d): the directory %s does not exist; is it a typing error, or not mounted?",
			    what, rule->pattern, rule->line, path);
	else if (ret)
		doctor_find(d, FINDING_WARNING, "%s%s (line %d): %s cannot be examined: %s", what, rule->pattern,
			    rule->line, path, strerror(-ret));
	else
		doctor_find(d, level, "%s%s: %s", what, rule->pattern, line);
	if (!ret)
		check_links(d, rule);
}

void doctor_files(struct doctor *d)
{
	for (size_t i = 0; d->config && i < d->config->rule_count; i++)
		check_rule(d, &d->config->rules[i]);
	files_ask(NULL);
}
