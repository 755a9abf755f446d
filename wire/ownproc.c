/* See ownproc.h. */
#include "wire/ownproc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "wire/text.h"

static int ownproc_say(char *why, size_t size, int ret, const char *line)
{
	struct text text;

	text_init(&text, why, size);
	text_add(&text, line);
	return ret;
}

/* Reads the text of a file, as much as there is room for. Its length, or -errno. */
static ssize_t ownproc_read(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, buf, size - 1);
	if (n < 0)
		n = -errno;
	buf[n > 0 ? n : 0] = '\0';
	close(fd);
	return n;
}

/*
 * Compares /proc/self with our pid. Since the two could be equal by chance, also looks at NSpid, which lists the
 * numbers of this process in each namespace from that of /proc inwards: in the right /proc there is only one. (A kernel
 * without pid namespaces has no such line.)
 */
static int ownproc_is_ours(const char *self)
{
	char status[4096], number[16];
	const char *at, *end;

	snprintf(number, sizeof(number), "%d", (int)getpid());
	if (strcmp(self, number) != 0)
		return 0;
	if (ownproc_read("/proc/self/status", status, sizeof(status)) <= 0)
		return 0;
	at = strstr(status, "\nNSpid:\t");
	if (!at)
		return 1;
	at += strlen("\nNSpid:\t");
	end = at + strcspn(at, "\n");
	return (size_t)(end - at) == strlen(number) && strncmp(at, number, strlen(number)) == 0;
}

int ownproc_check(char *why, size_t why_size)
{
	char self[32], some[64];
	ssize_t n = readlink("/proc/self", self, sizeof(self) - 1);

	if (n < 0)
		return ownproc_say(
			why, why_size, -ENOENT,
			"/proc does not show this process, and a keeper finds there who holds a lock: mount one "
			"(mount -t proc proc /proc), or start dflockd where there is one");
	self[n] = '\0';
	if (!ownproc_is_ours(self))
		return ownproc_say(
			why, why_size, -EXDEV,
			"/proc is that of another pid namespace, and a keeper would stop the wrong processes by "
			"its numbers: give this namespace a /proc of its own (unshare --mount-proc), or start "
			"dflockd outside");
	n = ownproc_read("/proc/locks", some, sizeof(some));
	if (n < 0)
		return ownproc_say(
			why, why_size, (int)n,
			"/proc/locks cannot be read, and a keeper finds there the locks that no descriptor shows: "
			"mount /proc without subset=pid");
	return 0;
}
