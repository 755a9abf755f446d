/* See family.h. */
#include "keeper/kernel/family.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
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

/* The fields of /proc/PID/stat, as proc(5) counts them. */
#define STATE       3
#define PARENT      4
#define GROUP       5
#define STARTED     22
#define STOP_SIGNAL 52 /* exit_code: while the process is stopped, what stopped it */

/* The command before the state may have blanks and brackets. Nothing here waits for the process: stat takes no lock
 * that it may hold for long. */
bool family_stat(pid_t pid, struct family_stat *stat)
{
	char path[32], text[1024], *at;
	long long fields[STOP_SIGNAL + 1] = {0};
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
	at = strrchr(text, ')');
	if (!at || at[1] != ' ' || !at[2] || at[3] != ' ')
		return false;
	*stat = (struct family_stat){.pid = pid, .state = at[2]};
	at += 3;
	for (int i = STATE + 1; i <= STOP_SIGNAL; i++)
		fields[i] = strtoll(at, &at, 10);
	stat->parent = (pid_t)fields[PARENT];
	stat->group = (pid_t)fields[GROUP];
	stat->started = (uint64_t)fields[STARTED];
	stat->stop_signal = stat->state == 'T' ? (int)fields[STOP_SIGNAL] : 0;
	return true;
}

char family_state(pid_t pid)
{
	struct family_stat stat;

	return family_stat(pid, &stat) ? stat.state : 0;
}

uint64_t family_started(pid_t pid)
{
	struct family_stat stat;

	return family_stat(pid, &stat) ? stat.started : 0;
}

int64_t family_ran_ns(pid_t tid)
{
	char path[32], text[64];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/schedstat", (int)tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	return n > 0 && isdigit((unsigned char)*text) ? strtoll(text, NULL, 10) : -1;
}

int family_all(struct family_stat **all, size_t *count)
{
	DIR *proc = opendir("/proc");
	size_t room = 0;
	struct dirent *d;

	*all = NULL;
	*count = 0;
	if (!proc)
		return -errno;
	while ((d = readdir(proc))) {
		pid_t pid = isdigit((unsigned char)d->d_name[0]) ? atoi(d->d_name) : 0;
		struct family_stat stat;

		if (!pid || !family_stat(pid, &stat))
			continue;
		if (*count == room) {
			room = room ? 2 * room : 256;
			struct family_stat *more = realloc(*all, room * sizeof(*more));
			if (!more) {
				closedir(proc);
				return -ENOMEM;
			}
			*all = more;
		}
		(*all)[(*count)++] = stat;
	}
	closedir(proc);
	return 0;
}

int family_add_descendants(struct family *family, pid_t except)
{
	struct family_stat *children;
	size_t count;
	int ret = family_all(&children, &count);

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
	unsigned stopped, traced, ended, waiting, others;
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
	case 'D':
		states->waiting++;
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
	return !states.others && !states.waiting;
}

bool family_is_held(pid_t pid)
{
	struct states states = {0};

	family_threads(pid, count_state, &states);
	return !states.others;
}

bool family_has_stop(pid_t pid)
{
	struct states states = {0};

	family_threads(pid, count_state, &states);
	return states.stopped && !states.traced && !states.waiting && !states.others;
}
