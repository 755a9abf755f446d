#include "cli/doctor.h"

#include <errno.h>
#include <ftw.h>
#include <glob.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/files.h"

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
