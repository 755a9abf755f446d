/* See procfs.h. Why not libmount: docs/design.md, Libraries. */
#include "procfs/procfs.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

static bool procfs_is_octal(char c)
{
	return c >= '0' && c <= '7';
}

/* The kernel writes blanks, tabs, line feeds, backslashes and '#' as \040 and so on. */
static void procfs_unescape(char *text)
{
	char *to = text;

	while (*text) {
		if (text[0] == '\\' && procfs_is_octal(text[1]) && procfs_is_octal(text[2]) &&
		    procfs_is_octal(text[3])) {
			*to++ = (char)((text[1] - '0') << 6 | (text[2] - '0') << 3 | (text[3] - '0'));
			text += 4;
		} else {
			*to++ = *text++;
		}
	}
	*to = '\0';
}

/* Cuts off the next field. Fields end with one blank; two blanks have an empty field between them. NULL: no more
 * fields. */
static char *procfs_next_field(char **rest)
{
	char *field = *rest, *end = strchr(field, ' ');

	if (!end)
		return NULL;
	*end = '\0';
	*rest = end + 1;
	return field;
}

bool procfs_mount_line(char *line, struct procfs_mount *out)
{
	char *fields[3], *field;
	unsigned major, minor;
	int end = 0;

	if (sscanf(line, "%d %d %u:%u %n", &out->id, &out->parent, &major, &minor, &end) != 4 || !end)
		return false;
	out->dev = makedev(major, minor);
	line += end;
	line[strcspn(line, "\n")] = '\0';
	for (int i = 0; i < 3; i++) /* what of the file system is mounted, where, options */
		if (!(fields[i] = procfs_next_field(&line)))
			return false;
	do /* "shared:1" and so on, as many as there are */
		field = procfs_next_field(&line);
	while (field && strcmp(field, "-") != 0);
	out->options = fields[2];
	out->type = field ? procfs_next_field(&line) : NULL;
	out->source = out->type ? procfs_next_field(&line) : NULL;
	if (!out->source)
		return false;
	out->super_options = line;
	procfs_unescape(fields[0]);
	procfs_unescape(fields[1]);
	out->root = fields[0];
	out->point = fields[1];
	return *out->point == '/';
}

FILE *procfs_mounts_open(pid_t pid)
{
	char path[32];

	if (!pid)
		return fopen("/proc/self/mountinfo", "re");
	snprintf(path, sizeof(path), "/proc/%d/mountinfo", (int)pid);
	return fopen(path, "re");
}

int procfs_mounts(FILE *table, procfs_mount_cb *cb, void *arg)
{
	struct procfs_mount mount;
	char *line = NULL;
	size_t size = 0;
	int ret = 0;

	rewind(table);
	while (ret == 0 && getline(&line, &size, table) > 0)
		if (procfs_mount_line(line, &mount))
			ret = cb(arg, &mount);
	free(line);
	return ret;
}

bool procfs_mounts_changed(FILE *table)
{
	struct pollfd changed = {.fd = fileno(table), .events = POLLPRI};

	return poll(&changed, 1, 0) > 0;
}
