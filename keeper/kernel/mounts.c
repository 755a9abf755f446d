/*
 * See mounts.h. The table (mountmap.h) is read again when the kernel says that it has changed. The id of a mount may be
 * used again after an unmount; but an open descriptor keeps the id of its own mount in use, so a table that was read
 * after the descriptor was opened is right about it.
 *
 * An overlay names its layers by path. This file follows a path along the table, mount by mount, and reads a link only
 * where everything above it is local: so it never touches a component that may hang.
 */
#include "keeper/kernel/mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/config.h"
#include "keeper/array.h"
#include "keeper/kernel/mountmap.h"
#include "procfs/procfs.h"

#define LINKS_MAX      40 /* in one path, as in the kernel */
#define NESTED_MAX     4  /* overlays over overlays; the kernel has 2 */
#define UNKNOWN_DEVICE (UINT64_C(1) << 63)

struct mounts {
	struct mountmap map;
	bool doubted;
	const struct rule *covered; /* the rules of the last mounts_covered(); NULL: the table has changed since */
};

static bool mounts_is_local(struct mounts *m, struct mountmap_mount *mount, unsigned nested);

/* --- the table --- */

static struct mountmap_mount *mounts_begin(const struct mounts *m)
{
	return array_items(&m->map.ours);
}

static struct mountmap_mount *mounts_end(const struct mounts *m)
{
	return array_end(&m->map.ours);
}

/* What cannot be read is not known to be local: slower, not wrong. */
static void mounts_refresh(struct mounts *m)
{
	if (mountmap_refresh(&m->map) != 0)
		m->covered = NULL;
}

struct mounts *mounts_new(void)
{
	struct mounts *m = calloc(1, sizeof(*m));

	if (m && mountmap_refresh(&m->map) >= 0)
		return m;
	free(m);
	return NULL;
}

void mounts_free(struct mounts *m)
{
	if (m)
		mountmap_free(&m->map);
	free(m);
}

void mounts_doubt(struct mounts *m)
{
	if (m)
		m->doubted = true;
}

/* --- overlays --- */

/* What is mounted at this path of the mount, on top of all else that is mounted there; or itself. */
static struct mountmap_mount *mounts_top_at(struct mounts *m, struct mountmap_mount *mount, const char *path)
{
	struct mountmap_mount *at = mounts_begin(m);

	while (at != mounts_end(m)) {
		if (at->parent == mount->id && at->id != mount->id && strcmp(at->point, path) == 0) {
			mount = at;
			at = mounts_begin(m); /* from the first on */
		} else {
			at++;
		}
	}
	return mount;
}

/* Puts a link's target in the place of all before `rest`. `path`: the link's own. false: too long. */
static bool mounts_follow(char path[PATH_MAX], const char *rest, const char *target)
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
static int mounts_read_link(char path[PATH_MAX], char *end)
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
		return mounts_follow(path, rest, target) ? 1 : -1;
	}
	*end = at_end;
	return n < 0 && error == EINVAL ? 0 : -1;
}

/* Is this path local, with everything that it leads over? With "." or ".." that is not known. */
static bool mounts_path_is_local(struct mounts *m, const char *start, unsigned nested)
{
	char path[PATH_MAX], *end;
	struct mountmap_mount *mount;
	unsigned links = 0;

	if (*start != '/' || strlen(start) >= sizeof(path))
		return false;
	strcpy(path, start);
again:
	mount = mountmap_of_path(&m->map, "/");
	if (!mount || !mounts_is_local(m, mount, nested))
		return false;
	for (end = path; *end;) {
		const char *name = end + 1;
		struct mountmap_mount *above = mount;
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
		mount = mounts_top_at(m, mount, path);
		*end = kept;
		if (mount != above && !mounts_is_local(m, mount, nested))
			return false;
		if (mount != above)
			continue; /* a mount point is no link */
		switch (mounts_read_link(path, end)) {
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

static bool mounts_is_layer(const char *key, size_t len)
{
	static const char *const keys[] = {"lowerdir", "lowerdir+", "datadir+", "upperdir", "workdir"};

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
		if (strlen(keys[i]) == len && memcmp(keys[i], key, len) == 0)
			return true;
	return false;
}

/* "rw,lowerdir=/a:/b,upperdir=/c,workdir=/d" */
static bool mounts_layers_are_local(struct mounts *m, const char *options, unsigned nested)
{
	char *copy = strdup(options), *option, *path, *save, *next;
	bool local = copy && !strchr(copy, '\\'); /* a name with blanks or commas: not known */
	unsigned layers = 0;

	for (option = copy ? strtok_r(copy, ",", &save) : NULL; local && option; option = strtok_r(NULL, ",", &save)) {
		size_t key = strcspn(option, "=");

		if (!option[key] || !mounts_is_layer(option, key))
			continue;
		for (path = strtok_r(option + key + 1, ":", &next); local && path; path = strtok_r(NULL, ":", &next)) {
			local = mounts_path_is_local(m, path, nested);
			layers++;
		}
	}
	free(copy);
	return local && layers;
}

static bool mounts_is_local(struct mounts *m, struct mountmap_mount *mount, unsigned nested)
{
	if (mount->local == MOUNTMAP_UNKNOWN && nested < NESTED_MAX)
		mount->local = mounts_layers_are_local(m, mount->layers, nested + 1) ? MOUNTMAP_LOCAL : MOUNTMAP_AWAY;
	return mount->local == MOUNTMAP_LOCAL && !m->doubted;
}

/* --- files --- */

/*
 * One system call, where fdinfo takes three. The kernel says which mount it is although there is no room for a handle: it asks
 * the file system in memory alone how large one would be. File systems without handles, and seccomp, give another error.
 */
static int mounts_id_of(int fd)
{
	struct file_handle handle = {.handle_bytes = 0};
	struct procfs_fdinfo head;
	int id = -1;

	if (name_to_handle_at(fd, "", &handle, &id, AT_EMPTY_PATH) == 0 || errno == EOVERFLOW)
		return id;
	procfs_fdinfo_head(fd, &head);
	return head.mount_id;
}

/* Where stat says another number than the kernel has: an overlay shows that of a layer; and a kernel of 32 bits has no room
 * for more. */
static uint64_t mounts_kernel_ino(const struct mountmap_mount *mount, int fd)
{
	struct procfs_fdinfo head = {.ino = 0};

	if (mount->layers || sizeof(long) < sizeof(uint64_t))
		procfs_fdinfo_head(fd, &head);
	return head.ino;
}

bool mounts_local(struct mounts *m, int fd, uint64_t *device, uint64_t *ino)
{
	int id = mounts_id_of(fd);
	struct mountmap_mount *mount;

	*device = UNKNOWN_DEVICE | (unsigned)id;
	*ino = 0;
	if (!m)
		return false;
	mounts_refresh(m);
	mount = mountmap_find(&m->map, id);
	if (!mount)
		return false;
	*device = mount->dev;
	if (!mounts_is_local(m, mount, 0))
		return false;
	*ino = mounts_kernel_ino(mount, fd);
	return true;
}

bool mounts_local_path(struct mounts *m, const char *path)
{
	if (!m)
		return false;
	mounts_refresh(m);
	return mounts_path_is_local(m, path, 0);
}

bool mounts_local_device(struct mounts *m, uint64_t device)
{
	if (!m)
		return false;
	mounts_refresh(m);
	for (struct mountmap_mount *mount = mounts_begin(m); mount != mounts_end(m); mount++)
		if (mount->dev == device)
			return mounts_is_local(m, mount, 0);
	return false;
}

/* --- what rules cover --- */

static void mounts_covered_by(struct mounts *m, const struct rule *rule, void (*cover)(void *arg, uint64_t dev),
			      void *arg)
{
	char *fixed = strndup(rule->pattern, rule->fixed_len);
	const struct mountmap_mount *holder = fixed ? mountmap_of_path(&m->map, fixed) : NULL;

	/* The mount on which this path lies, and the mounts below it. */
	for (struct mountmap_mount *mount = mounts_begin(m); fixed && mount != mounts_end(m); mount++) {
		if (mount != holder && !mountmap_below(fixed, mount->point))
			continue;
		cover(arg, mount->dev);
		if (mount->magic) {
			cover(arg, PAGE_COVERED_TYPE);
			cover(arg, PAGE_COVERED_TYPE | mount->magic);
		}
	}
	free(fixed);
}

void mounts_covered(struct mounts *m, const struct config *config, void (*cover)(void *arg, uint64_t dev), void *arg)
{
	if (!m)
		return;
	mounts_refresh(m);
	if (m->covered == config->rules)
		return;
	m->covered = config->rules;
	for (size_t i = 0; i < config->rule_count; i++)
		mounts_covered_by(m, &config->rules[i], cover, arg);
}
