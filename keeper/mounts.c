/* See mounts.h. The kernel flags a change of the mount table as POLLPRI on the open mountinfo. */
#include "keeper/mounts.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

struct mounts {
	FILE *table;
	uint64_t *devs;
	size_t count, room;
};

static bool is_local_type(const char *type)
{
	static const char *const types[] = {"ext2",  "ext3", "ext4", "xfs",      "tmpfs",
					    "ramfs", "f2fs", "jfs",  "reiserfs", "vfat"};

	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
		if (strcmp(type, types[i]) == 0)
			return true;
	return false;
}

static void add(struct mounts *m, uint64_t dev)
{
	if (m->count == m->room) {
		size_t room = m->room ? 2 * m->room : 32;
		uint64_t *devs = realloc(m->devs, room * sizeof(*devs));

		if (!devs)
			return; /* not known to be local: slower, not wrong */
		m->devs = devs;
		m->room = room;
	}
	m->devs[m->count++] = dev;
}

/* "36 35 98:0 /root /mount options... - type source superoptions" */
static void read_line(struct mounts *m, const char *line)
{
	const char *dash = strstr(line, " - ");
	unsigned major, minor;
	char type[32];

	if (dash && sscanf(line, "%*d %*d %u:%u ", &major, &minor) == 2 && sscanf(dash, " - %31s", type) == 1 &&
	    is_local_type(type))
		add(m, makedev(major, minor));
}

static void read_table(struct mounts *m)
{
	char *line = NULL;
	size_t size = 0;

	m->count = 0;
	rewind(m->table);
	while (getline(&line, &size, m->table) > 0)
		read_line(m, line);
	free(line);
}

struct mounts *mounts_new(void)
{
	struct mounts *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->table = fopen("/proc/self/mountinfo", "re");
	if (!m->table) {
		free(m);
		return NULL;
	}
	read_table(m);
	return m;
}

void mounts_free(struct mounts *m)
{
	if (!m)
		return;
	fclose(m->table);
	free(m->devs);
	free(m);
}

bool mounts_local(struct mounts *m, uint64_t dev)
{
	struct pollfd changed = {.events = POLLPRI};

	if (!m)
		return false;
	changed.fd = fileno(m->table);
	if (poll(&changed, 1, 0) > 0)
		read_table(m);
	for (size_t i = 0; i < m->count; i++)
		if (m->devs[i] == dev)
			return true;
	return false;
}
