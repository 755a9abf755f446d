#include "cli/doctor.h"

#include <errno.h>
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
}

void doctor_files(struct doctor *d)
{
	for (size_t i = 0; d->config && i < d->config->rule_count; i++)
		check_rule(d, &d->config->rules[i]);
}
