/* See procfs_process.h. */
#include "procfs/procfs_process.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "procfs/procfs.h"

/* The fields of /proc/PID/stat, as proc(5) counts them. */
#define STATE       3
#define PARENT      4
#define GROUP       5
#define STARTED     22
#define STOP_SIGNAL 52 /* exit_code: while the process is stopped, what stopped it */

bool procfs_stat(const char *text, struct procfs_stat *out)
{
	const char *at = strrchr(text, ')');
	unsigned long long fields[STOP_SIGNAL + 1] = {0};

	if (!at || at[1] != ' ' || !at[2] || at[3] != ' ')
		return false;
	*out = (struct procfs_stat){.pid = (pid_t)strtol(text, NULL, 10), .state = at[2]};
	at += 3;
	for (int i = STATE + 1; i <= STOP_SIGNAL; i++) {
		char *end;

		fields[i] = strtoull(at, &end, 10); /* a negative value survives the conversion back */
		if (end == at && i <= STARTED)
			return false;
		at = end;
	}
	out->parent = (pid_t)fields[PARENT];
	out->group = (pid_t)fields[GROUP];
	out->started = fields[STARTED];
	out->stop_signal = out->state == 'T' ? (int)fields[STOP_SIGNAL] : 0;
	return true;
}

bool procfs_stat_read(int dirfd, const char *name, struct procfs_stat *out)
{
	char text[1024]; /* 52 numbers and a name of 15 bytes */

	return procfs_head(dirfd, name, text, sizeof(text)) > 0 && procfs_stat(text, out);
}

int64_t procfs_ran_ns(pid_t tid)
{
	char path[32], text[64];

	snprintf(path, sizeof(path), "/proc/%d/schedstat", (int)tid);
	if (procfs_head(AT_FDCWD, path, text, sizeof(text)) <= 0 || !isdigit((unsigned char)*text))
		return -1;
	return strtoll(text, NULL, 10);
}

bool procfs_map_line(char *line, struct procfs_map *out)
{
	unsigned major, minor;
	int rights = 0, name = 0;

	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %n%*4[-rwxsp] %*x %x:%x %" SCNu64 "%n", &out->from, &out->to, &rights,
		   &major, &minor, &out->ino, &name) != 5 ||
	    !name)
		return false;
	line[strcspn(line, "\n")] = '\0';
	out->rights = line + rights;
	out->dev = makedev(major, minor);
	out->name = line + name + strspn(line + name, " ");
	return true;
}

int procfs_maps(pid_t pid, procfs_map_cb *cb, void *arg)
{
	char path[32], *line = NULL;
	size_t room = 0;
	int ret;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	f = fopen(path, "re");
	ret = f ? 0 : -errno;
	while (ret == 0 && getline(&line, &room, f) > 0) {
		struct procfs_map map;

		if (procfs_map_line(line, &map))
			ret = cb(arg, &map);
	}
	free(line);
	if (f)
		fclose(f);
	return ret;
}
