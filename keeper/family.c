/* See family.h. */
#include "keeper/family.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool family_has(const struct family *family, pid_t pid)
{
	for (size_t i = 0; i < family->count; i++)
		if (family->pids[i] == pid)
			return true;
	return false;
}

int family_add(struct family *family, pid_t pid)
{
	if (family_has(family, pid))
		return 0;
	if (family->count == family->room) {
		size_t room = family->room ? 2 * family->room : 32;
		pid_t *pids = realloc(family->pids, room * sizeof(*pids));

		if (!pids)
			return -ENOMEM;
		family->pids = pids;
		family->room = room;
	}
	family->pids[family->count++] = pid;
	return 0;
}

void family_free(struct family *family)
{
	free(family->pids);
	*family = (struct family){0};
}

struct stat_line {
	char state;
	pid_t parent;
	uint64_t started;
};

/* Of /proc/PID/stat. The command before these may have blanks and brackets. */
static bool read_stat(pid_t pid, struct stat_line *line)
{
	char path[32], text[512], *end;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return false;
	text[n] = '\0';
	end = strrchr(text, ')');
	return end &&
	       sscanf(end, ") %c %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %" SCNu64,
		      &line->state, &line->parent, &line->started) == 3;
}

char family_state(pid_t pid)
{
	struct stat_line line;

	return read_stat(pid, &line) ? line.state : 0;
}

uint64_t family_started(pid_t pid)
{
	struct stat_line line;

	return read_stat(pid, &line) ? line.started : 0;
}

struct child {
	pid_t pid, parent;
};

static int read_all(struct child **children, size_t *count)
{
	DIR *proc = opendir("/proc");
	size_t room = 0;
	struct dirent *d;

	*children = NULL;
	*count = 0;
	if (!proc)
		return -errno;
	while ((d = readdir(proc))) {
		struct child c = {.pid = isdigit((unsigned char)d->d_name[0]) ? atoi(d->d_name) : 0};
		struct stat_line line;

		if (!c.pid || !read_stat(c.pid, &line))
			continue;
		c.parent = line.parent;
		if (*count == room) {
			room = room ? 2 * room : 256;
			struct child *more = realloc(*children, room * sizeof(*more));
			if (!more) {
				closedir(proc);
				return -ENOMEM;
			}
			*children = more;
		}
		(*children)[(*count)++] = c;
	}
	closedir(proc);
	return 0;
}

int family_add_descendants(struct family *family, pid_t except)
{
	struct child *children;
	size_t count;
	int ret = read_all(&children, &count);

	/* Members that are added on the way have children, too. */
	for (size_t i = 0; ret == 0 && i < family->count; i++)
		for (size_t j = 0; ret == 0 && j < count; j++)
			if (children[j].parent == family->pids[i] && children[j].pid != except)
				ret = family_add(family, children[j].pid);
	free(children);
	return ret;
}

int family_threads(pid_t pid, int (*cb)(void *arg, pid_t pid, pid_t tid), void *arg)
{
	char path[32];
	struct dirent *d;
	DIR *dir;
	int ret = 0;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	while (dir && ret == 0 && (d = readdir(dir)))
		if (isdigit((unsigned char)d->d_name[0]))
			ret = cb(arg, pid, atoi(d->d_name));
	if (dir)
		closedir(dir);
	return ret;
}

struct states {
	unsigned stopped, traced, ended, others;
};

static int count_state(void *arg, pid_t pid, pid_t tid)
{
	struct states *states = arg;

	(void)pid;
	switch (family_state(tid)) {
	case 'T':
		states->stopped++;
		break;
	case 't':
		states->traced++;
		break;
	case 'Z':
	case 'X':
	case 0:
		states->ended++;
		break;
	default:
		states->others++;
	}
	return 0;
}

bool family_is_stopped(pid_t pid)
{
	struct states states = {0};

	family_threads(pid, count_state, &states);
	return !states.others;
}

bool family_has_stop(pid_t pid)
{
	struct states states = {0};

	family_threads(pid, count_state, &states);
	return states.stopped && !states.traced && !states.others;
}
