/*
 * See takeup.h. The file is opened again by its path; if that is another file by now (deleted, renamed), through a
 * descriptor of any process that has it open. If no process has, nobody can hold a lock on it, and the
 * lease is given back.
 */
#include "keeper/takeup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "keeper/act.h"
#include "keeper/locks.h"
#include "keeper/log.h"
#include "keeper/mounts.h"

static int open_if(const char *path, const struct journal_entry *entry, struct stat *st)
{
	int fd;

	if (stat(path, st) != 0 || st->st_dev != entry->dev || st->st_ino != entry->ino)
		return -1;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0 && errno == EACCES)
		fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd >= 0 && (fstat(fd, st) != 0 || st->st_dev != entry->dev || st->st_ino != entry->ino)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static int search_process(const char *pid, const struct journal_entry *entry, struct stat *st)
{
	char path[320];
	struct dirent *d;
	DIR *dir;
	int fd = -1;

	snprintf(path, sizeof(path), "/proc/%.16s/fd", pid);
	dir = opendir(path);
	while (dir && fd < 0 && (d = readdir(dir))) {
		snprintf(path, sizeof(path), "/proc/%.16s/fd/%.256s", pid, d->d_name);
		fd = open_if(path, entry, st);
	}
	if (dir)
		closedir(dir);
	return fd;
}

static int search(const struct journal_entry *entry, struct stat *st)
{
	DIR *proc = opendir("/proc");
	struct dirent *d;
	int fd = -1;

	while (proc && fd < 0 && (d = readdir(proc)))
		if (d->d_name[0] >= '1' && d->d_name[0] <= '9')
			fd = search_process(d->d_name, entry, st);
	if (proc)
		closedir(proc);
	return fd;
}

void takeup_entry(void *arg, const struct journal_entry *entry)
{
	struct keeper *k = arg;
	struct stat st;
	struct file *file;
	struct lease *lease;
	int fd = open_if(entry->path, entry, &st);
	int ret;

	if (fd < 0)
		fd = search(entry, &st);
	if (fd < 0)
		st = (struct stat){.st_dev = entry->dev, .st_ino = entry->ino};
	ret = file_get(k, &st, fd >= 0 && mounts_local(k->mounts, fd, NULL), entry->path, entry->name, fd, &file);
	lease = ret == 0 ? lease_take_up(&file->locks[entry->range.space], &entry->range, entry->token) : NULL;
	if (!lease) {
		log_error("%s: its lease could not be taken up and runs out", entry->name);
		return;
	}
	lease->fence = entry->fence;
	lease->slot = FENCE_NO_SLOT;
	/* Without a fence nobody was told of it; without a descriptor anywhere nobody can use it. */
	lease->state = entry->fence && fd >= 0 ? LEASE_UNSURE : LEASE_RELEASING;
	if (lease->state == LEASE_UNSURE)
		lease->slot = fence_take_up(k->fence, entry->dev, entry->ino, &entry->range, k->fence_taken);
	log_info("%s: lease %s from the journal", entry->name,
		 lease->state == LEASE_UNSURE ? "taken up" : "given back, since nobody uses it,");
}
