/*
 * See mounts.h. The kernel flags a change of the mount table as POLLPRI on the open mountinfo. The id of a mount may be
 * used again after an unmount; but the descriptor that is asked about keeps its own mount's, so a table that was read
 * after the descriptor had come says the truth about it.
 *
 * An overlay names its layers by path. A path is followed here along the table, mount by mount, and a link is only read
 * where all above it is local: what hangs behind one of the components is never touched.
 */
#include "keeper/kernel/mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define LINKS_MAX      40 /* in one path, as in the kernel */
#define NESTED_MAX     4  /* overlays over overlays; the kernel has 2 */
#define UNKNOWN_DEVICE (UINT64_C(1) << 63)

enum local { LOCAL_UNKNOWN, LOCAL_YES, LOCAL_NO };

struct mount {
	int id, parent;
	uint64_t dev;
	enum local local; /* LOCAL_UNKNOWN: an overlay that was not asked about yet */
	char *point;
	char *options; /* of an overlay, else NULL */
};

struct mounts {
	FILE *table;
	struct mount *all;
	size_t count, room;
};

/* --- the table --- */

static bool is_local_type(const char *type)
{
	static const char *const types[] = {"ext2",     "ext3",     "ext4",  "xfs",     "btrfs", "zfs",
					    "bcachefs", "tmpfs",    "ramfs", "f2fs",    "jfs",   "vfat",
					    "exfat",    "squashfs", "erofs", "reiserfs"};

	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
		if (strcmp(type, types[i]) == 0)
			return true;
	return false;
}

static void forget(struct mounts *m)
{
	for (size_t i = 0; i < m->count; i++) {
		free(m->all[i].point);
		free(m->all[i].options);
	}
	m->count = 0;
}

/* What is not added is not known to be local: slower, not wrong. */
static void add(struct mounts *m, const struct mount *mount)
{
	if (m->count == m->room) {
		size_t room = m->room ? 2 * m->room : 32;
		struct mount *all = realloc(m->all, room * sizeof(*all));

		if (!all)
			return;
		m->all = all;
		m->room = room;
	}
	m->all[m->count++] = *mount;
}

/* The kernel writes blanks and backslashes as \040 and so on. */
static void unescape(char *text)
{
	char *to = text;

	for (; *text; to++) {
		if (text[0] == '\\' && text[1] && text[2] && text[3]) {
			*to = (char)((text[1] - '0') << 6 | (text[2] - '0') << 3 | (text[3] - '0'));
			text += 4;
		} else {
			*to = *text++;
		}
	}
	*to = '\0';
}

/* "36 35 98:0 /root /mount options... - type source superoptions" */
static void read_line(struct mounts *m, const char *line)
{
	const char *dash = strstr(line, " - ");
	struct mount mount = {0};
	unsigned major, minor;
	char type[32];
	int options = 0;

	if (!dash || sscanf(line, "%d %d %u:%u %*s %ms", &mount.id, &mount.parent, &major, &minor, &mount.point) != 5)
		return free(mount.point);
	unescape(mount.point);
	mount.dev = makedev(major, minor);
	mount.local = LOCAL_NO;
	if (sscanf(dash, " - %31s %*s %n", type, &options) == 1 && is_local_type(type))
		mount.local = LOCAL_YES;
	if (options && strcmp(type, "overlay") == 0) {
		mount.options = strdup(dash + options);
		mount.local = mount.options ? LOCAL_UNKNOWN : LOCAL_NO;
		if (mount.options)
			mount.options[strcspn(mount.options, "\n")] = '\0';
	}
	add(m, &mount);
}

static void read_table(struct mounts *m)
{
	char *line = NULL;
	size_t size = 0;

	forget(m);
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
	forget(m);
	free(m->all);
	free(m);
}

/* --- overlays --- */

static bool is_local(struct mounts *m, struct mount *mount, unsigned nested);

/* What is mounted at this path of the mount, on top of all else that is mounted there; or itself. */
static struct mount *top_at(struct mounts *m, struct mount *mount, const char *path)
{
	for (size_t i = 0; i < m->count; i++) {
		if (m->all[i].parent == mount->id && m->all[i].id != mount->id && strcmp(m->all[i].point, path) == 0) {
			mount = &m->all[i];
			i = (size_t)-1; /* from the first on */
		}
	}
	return mount;
}

/* Our root, which is the first one there: what else is mounted at "/" lies on it. */
static struct mount *root_mount(struct mounts *m)
{
	for (size_t i = 0; i < m->count; i++)
		if (strcmp(m->all[i].point, "/") == 0)
			return top_at(m, &m->all[i], "/");
	return NULL;
}

/* Puts a link's target in the place of all before `rest`. `path`: the link's own. false: too long. */
static bool follow(char path[PATH_MAX], const char *rest, const char *target)
{
	char all[2 * PATH_MAX + 2], *slash = strrchr(path, '/');
	int n;

	*slash = '\0';
	n = snprintf(all, sizeof(all), "%s%s%s%s", *target == '/' ? "" : path, *target == '/' ? "" : "/", target, rest);
	if (n < 0 || n >= PATH_MAX)
		return false;
	memcpy(path, all, (size_t)n + 1);
	return true;
}

/* 1: a link, and *path is the way to go now. 0: none. -1: cannot be followed. */
static int read_link(char path[PATH_MAX], char *end)
{
	char target[PATH_MAX], rest[PATH_MAX], at_end = *end;
	ssize_t n;
	int error;

	strcpy(rest, end);
	*end = '\0';
	n = readlink(path, target, sizeof(target) - 1);
	error = errno;
	if (n > 0 && n < (ssize_t)sizeof(target) - 1) {
		target[n] = '\0';
		return follow(path, rest, target) ? 1 : -1;
	}
	*end = at_end;
	return n < 0 && error == EINVAL ? 0 : -1;
}

/* Is all that this path leads over, and what it leads to, local? With "." or ".." it is not known. */
static bool path_is_local(struct mounts *m, const char *start, unsigned nested)
{
	char path[PATH_MAX], *end;
	struct mount *mount;
	unsigned links = 0;

	if (*start != '/' || strlen(start) >= sizeof(path))
		return false;
	strcpy(path, start);
again:
	mount = root_mount(m);
	if (!mount || !is_local(m, mount, nested))
		return false;
	for (end = path; *end;) {
		const char *name = end + 1;
		struct mount *above = mount;
		char kept;

		end += 1 + strcspn(name, "/");
		if (end == name && !*end)
			break; /* the last slash */
		/* A mount point would not be known by such a name. */
		if (end == name || strncmp(name, "./", 2) == 0 || strncmp(name, "../", 3) == 0 ||
		    strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
			return false;
		kept = *end;
		*end = '\0';
		mount = top_at(m, mount, path);
		*end = kept;
		if (mount != above && !is_local(m, mount, nested))
			return false;
		if (mount != above)
			continue; /* a mount point is no link */
		switch (read_link(path, end)) {
		case 0:
			continue;
		case 1:
			if (++links <= LINKS_MAX)
				goto again;
		}
		return false;
	}
	return true;
}

static bool is_layer(const char *key, size_t len)
{
	static const char *const keys[] = {"lowerdir", "lowerdir+", "datadir+", "upperdir", "workdir"};

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
		if (strlen(keys[i]) == len && memcmp(keys[i], key, len) == 0)
			return true;
	return false;
}

/* "rw,lowerdir=/a:/b,upperdir=/c,workdir=/d" */
static bool layers_are_local(struct mounts *m, const char *options, unsigned nested)
{
	char *copy = strdup(options), *option, *path, *save, *next;
	bool local = copy && !strchr(copy, '\\'); /* a name with blanks or commas: not known */
	unsigned layers = 0;

	for (option = copy ? strtok_r(copy, ",", &save) : NULL; local && option; option = strtok_r(NULL, ",", &save)) {
		size_t key = strcspn(option, "=");

		if (!option[key] || !is_layer(option, key))
			continue;
		for (path = strtok_r(option + key + 1, ":", &next); local && path; path = strtok_r(NULL, ":", &next)) {
			local = path_is_local(m, path, nested);
			layers++;
		}
	}
	free(copy);
	return local && layers;
}

static bool is_local(struct mounts *m, struct mount *mount, unsigned nested)
{
	if (mount->local != LOCAL_UNKNOWN)
		return mount->local == LOCAL_YES;
	if (nested >= NESTED_MAX)
		return false;
	mount->local = layers_are_local(m, mount->options, nested + 1) ? LOCAL_YES : LOCAL_NO;
	return mount->local == LOCAL_YES;
}

/* --- files --- */

/* From /proc, as that asks no file system. -1: not to be had. */
static int mount_of(int fd)
{
	char path[64], text[256];
	const char *at;
	ssize_t n;
	int info, id = -1;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	info = open(path, O_RDONLY | O_CLOEXEC);
	if (info < 0)
		return -1;
	n = read(info, text, sizeof(text) - 1);
	close(info);
	text[n > 0 ? n : 0] = '\0';
	at = strstr(text, "\nmnt_id:");
	if (at)
		sscanf(at, "\nmnt_id: %d", &id);
	return id;
}

static void refresh(struct mounts *m)
{
	struct pollfd changed = {.fd = fileno(m->table), .events = POLLPRI};

	if (poll(&changed, 1, 0) > 0)
		read_table(m);
}

bool mounts_local(struct mounts *m, int fd, uint64_t *device)
{
	int id = mount_of(fd);

	if (device)
		*device = UNKNOWN_DEVICE | (unsigned)id;
	if (!m)
		return false;
	refresh(m);
	for (size_t i = 0; i < m->count; i++) {
		if (m->all[i].id != id)
			continue;
		if (device)
			*device = m->all[i].dev;
		return is_local(m, &m->all[i], 0);
	}
	return false;
}

bool mounts_local_path(struct mounts *m, const char *path)
{
	if (!m)
		return false;
	refresh(m);
	return path_is_local(m, path, 0);
}

bool mounts_local_device(struct mounts *m, uint64_t device)
{
	if (!m)
		return false;
	refresh(m);
	for (size_t i = 0; i < m->count; i++)
		if (m->all[i].dev == device)
			return is_local(m, &m->all[i], 0);
	return false;
}
