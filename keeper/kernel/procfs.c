/* See procfs.h. */
#include "keeper/kernel/procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define FIRST_ROOM 16384

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
	out->from = strtoll(from, NULL, 10);
	/* The kernel shows the last byte; a lock up to the largest offset is shown as EOF. */
	out->to = strcmp(to, "EOF") ? strtoll(to, NULL, 10) + 1 : WIRE_EOF;
	return true;
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

bool procfs_stat(const char *text, struct procfs_stat *out)
{
	const char *end = strrchr(text, ')');

	return end &&
	       sscanf(end, ") %c %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %" SCNu64,
		      &out->state, &out->parent, &out->started) == 3;
}

bool procfs_mount_line(const char *line, struct procfs_mount *out)
{
	unsigned major, minor;

	if (sscanf(line, "%d %*d %u:%u ", &out->id, &major, &minor) != 3)
		return false;
	out->dev = makedev(major, minor);
	return true;
}

bool procfs_map_line(const char *line, uint64_t *dev, uint64_t *ino)
{
	unsigned major, minor;

	if (sscanf(line, "%*s %*s %*s %x:%x %" SCNu64, &major, &minor, ino) != 3 || !*ino)
		return false;
	*dev = makedev(major, minor);
	return true;
}

static int make_room(struct procfs_text *t)
{
	size_t room = t->room ? 2 * t->room : FIRST_ROOM;
	char *text;

	if (t->room > t->len + 1)
		return 0;
	text = realloc(t->text, room);
	if (!text)
		return -ENOMEM;
	t->text = text;
	t->room = room;
	return 0;
}

int procfs_read(int dirfd, const char *name, struct procfs_text *into)
{
	int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC), ret;

	if (fd < 0)
		return -errno;
	into->len = 0;
	for (;;) {
		size_t free_bytes;
		ssize_t n;

		ret = make_room(into);
		if (ret < 0)
			break;
		free_bytes = into->room - into->len - 1;
		n = read(fd, into->text + into->len, free_bytes);
		if (n < 0)
			ret = -errno;
		if (n <= 0)
			break;
		into->len += (size_t)n;
		if ((size_t)n < free_bytes)
			break; /* one piece: there is no more */
	}
	if (into->text)
		into->text[into->len] = '\0';
	close(fd);
	return ret;
}
