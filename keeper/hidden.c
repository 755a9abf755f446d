/* See hidden.h. */
#include "keeper/hidden.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

static bool same_lock(const struct holder *a, const struct holder *b)
{
	return a->file == b->file && a->space == b->space && a->owner == b->owner && a->mode == b->mode &&
	       a->from == b->from && a->to == b->to && a->locker == b->locker;
}

static int add(struct hidden *hidden, const struct holder *lock)
{
	if (hidden->count == hidden->room) {
		size_t room = hidden->room ? 2 * hidden->room : 16;
		struct holder *more = realloc(hidden->locks, room * sizeof(*more));

		if (!more)
			return -ENOMEM;
		hidden->locks = more;
		hidden->room = room;
	}
	hidden->locks[hidden->count++] = *lock;
	return 0;
}

static void remove_at(struct hidden *hidden, size_t i)
{
	hidden->locks[i] = hidden->locks[--hidden->count];
}

/* "1: FLOCK  ADVISORY  WRITE 359 00:13:11691 0 EOF"; those that wait have "->" before the kind. */
static int read_line(struct hidden *hidden, const char *text)
{
	struct holder lock = {0};
	unsigned major, minor;
	uint64_t inode;
	char line[256];

	snprintf(line, sizeof(line), "lock: %s", text);
	if (!holders_parse_line(line, &lock) ||
	    sscanf(text, "%*[0-9]: %*s %*s %*s %*s %x:%x:%" SCNu64, &major, &minor, &inode) != 3)
		return 0;
	for (lock.file = 0; lock.file < hidden->file_count; lock.file++)
		if (hidden->files[lock.file].ino == inode && hidden->files[lock.file].dev == makedev(major, minor))
			return add(hidden, &lock);
	return 0;
}

int hidden_begin(struct hidden *hidden, const struct holders_file *files, size_t count)
{
	FILE *f = fopen("/proc/locks", "re");
	char line[224];
	int ret = f ? 0 : -errno;

	*hidden = (struct hidden){.files = files, .file_count = count};
	while (ret == 0 && fgets(line, sizeof(line), f))
		ret = read_line(hidden, line);
	if (f)
		fclose(f);
	return ret;
}

void hidden_seen(struct hidden *hidden, const struct holder *holder)
{
	for (size_t i = 0; i < hidden->count;)
		if (same_lock(&hidden->locks[i], holder))
			remove_at(hidden, i);
		else
			i++;
}

int hidden_end(struct hidden *hidden)
{
	struct hidden now;
	int ret;

	if (!hidden->count)
		return 0;
	ret = hidden_begin(&now, hidden->files, hidden->file_count);
	for (size_t i = 0; ret == 0 && i < hidden->count;) {
		size_t j = 0;

		while (j < now.count && !same_lock(&hidden->locks[i], &now.locks[j]))
			j++;
		if (j == now.count)
			remove_at(hidden, i);
		else
			i++;
	}
	hidden_free(&now);
	return ret;
}

void hidden_free(struct hidden *hidden)
{
	free(hidden->locks);
	hidden->locks = NULL;
	hidden->count = hidden->room = 0;
}

/* "7f95c2eb4000-7f95c2eb5000 rw-s 00000000 00:1b 4879360   /path" */
static bool maps(FILE *f, const struct holders_file *file)
{
	unsigned major, minor;
	uint64_t inode;
	bool found = false;
	size_t room = 0;
	char *line = NULL;

	while (!found && getline(&line, &room, f) > 0)
		found = sscanf(line, "%*s %*s %*s %x:%x %" SCNu64, &major, &minor, &inode) == 3 && inode == file->ino &&
			makedev(major, minor) == file->dev;
	free(line);
	return found;
}

int hidden_mappers(const struct holders_file *file, struct family *family)
{
	DIR *proc = opendir("/proc");
	struct dirent *d;
	int ret = 0;

	if (!proc)
		return -errno;
	while (ret == 0 && (d = readdir(proc))) {
		char path[32];
		FILE *f;

		if (!isdigit((unsigned char)d->d_name[0]))
			continue;
		snprintf(path, sizeof(path), "/proc/%.12s/maps", d->d_name);
		f = fopen(path, "re");
		if (f && maps(f, file))
			ret = family_add(family, (pid_t)atoi(d->d_name));
		if (f)
			fclose(f);
	}
	closedir(proc);
	return ret;
}
