/* See procfs_locks.h. */
#include "procfs/procfs_locks.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

/* "0 EOF": the kernel shows the first and the last byte, and EOF for the last that there can be. */
static bool procfs_lock_range(const char *from, const char *to, struct procfs_lock *out)
{
	char *end;

	errno = 0;
	out->from = strtoll(from, &end, 10);
	if (*end || end == from || errno || out->from < 0)
		return false;
	if (!strcmp(to, "EOF")) {
		out->to = WIRE_EOF;
		return true;
	}
	out->to = strtoll(to, &end, 10);
	if (*end || end == to || errno || out->to < out->from || out->to == INT64_MAX)
		return false;
	out->to++;
	return true;
}

bool procfs_lock_line(const char *line, struct procfs_lock *out)
{
	char type[16], mode[16], from[24], to[24];
	unsigned major, minor;

	if (!strncmp(line, "lock:", 5))
		line += 5;
	if (sscanf(line, " %*[0-9]: %15s %*s %15s %d %x:%x:%" SCNu64 " %23s %23s", type, mode, &out->locker, &major,
		   &minor, &out->ino, from, to) != 8)
		return false;
	out->dev = makedev(major, minor);
	if (!strcmp(type, "FLOCK"))
		out->space = WIRE_FLOCK;
	else if (!strcmp(type, "POSIX") || !strcmp(type, "OFDLCK"))
		out->space = WIRE_RECORD;
	else
		return false;
	out->owner = !strcmp(type, "POSIX") ? WIRE_OWNER_PROCESS : WIRE_OWNER_DESCRIPTION;
	if (!strcmp(mode, "READ"))
		out->mode = WIRE_SHARED;
	else if (!strcmp(mode, "WRITE"))
		out->mode = WIRE_EXCLUSIVE;
	else
		return false;
	return procfs_lock_range(from, to, out);
}

int procfs_locks(procfs_lock_cb *cb, void *arg)
{
	FILE *f = fopen("/proc/locks", "re");
	struct procfs_lock lock;
	char line[224]; /* no name is in it, so none is longer */
	int ret = f ? 0 : -errno;

	while (ret == 0 && fgets(line, sizeof(line), f))
		if (procfs_lock_line(line, &lock))
			ret = cb(arg, &lock);
	if (ret == 0 && ferror(f))
		ret = -EIO;
	if (f)
		fclose(f);
	return ret;
}

int procfs_fdinfo(char *text, struct procfs_fdinfo *info, procfs_lock_cb *cb, void *arg)
{
	int ret = 0;

	if (info)
		*info = (struct procfs_fdinfo){.mount_id = -1};
	for (char *line = text, *next; line && *line && ret == 0; line = next) {
		struct procfs_lock lock;

		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		if (info && !strncmp(line, "mnt_id:", 7))
			info->mount_id = atoi(line + 7);
		else if (info && !strncmp(line, "ino:", 4))
			info->ino = strtoull(line + 4, NULL, 10);
		else if (cb && !strncmp(line, "lock:", 5) && procfs_lock_line(line, &lock))
			ret = cb(arg, &lock);
	}
	return ret;
}

static void procfs_fdinfo_path(int fd, char path[48])
{
	snprintf(path, 48, "/proc/self/fdinfo/%d", fd);
}

int procfs_fdinfo_of(int fd, struct procfs_fdinfo *info, procfs_lock_cb *cb, void *arg)
{
	struct procfs_text text = {0};
	char path[48];
	int ret;

	if (info)
		*info = (struct procfs_fdinfo){.mount_id = -1};
	procfs_fdinfo_path(fd, path);
	ret = procfs_read(AT_FDCWD, path, &text);
	if (ret == 0)
		ret = procfs_fdinfo(text.text, info, cb, arg);
	procfs_free(&text);
	return ret;
}

int procfs_fdinfo_head(int fd, struct procfs_fdinfo *info)
{
	char path[48],
		text[256]; /* "pos:", "flags:", "mnt_id:" and "ino:" come first, and take 100 bytes at the most */
	ssize_t n;

	procfs_fdinfo_path(fd, path);
	n = procfs_head(AT_FDCWD, path, text, sizeof(text));
	procfs_fdinfo(text, info, NULL, NULL);
	return n < 0 ? (int)n : 0;
}
