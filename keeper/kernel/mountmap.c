/* See mountmap.h. */
#include "keeper/kernel/mountmap.h"

#include <errno.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>

#include "procfs/procfs.h"

#define THEIRS_MAX 256
#define PATHS_MAX  16 /* at which one file is looked for */

static bool mountmap_is_one_of(const char *type, const char *const *types)
{
	for (; *types; types++)
		if (strcmp(type, *types) == 0)
			return true;
	return false;
}

static int mountmap_add(UT_array *mounts, const struct procfs_mount *read)
{
	static const char *const plain[] = {"ext2", "ext3", "ext4", "xfs", "tmpfs", "ramfs", "f2fs", "jfs", NULL};
	static const char *const local[] = {"btrfs",    "zfs",   "bcachefs", "vfat", "exfat",
					    "squashfs", "erofs", "reiserfs", NULL};
	bool overlay = strcmp(read->type, "overlay") == 0;
	struct mountmap_mount mount = {.id = read->id,
				       .parent = read->parent,
				       .dev = read->dev,
				       .root = strdup(read->root),
				       .point = strdup(read->point),
				       .layers = overlay ? strdup(read->super_options) : NULL,
				       .plain = mountmap_is_one_of(read->type, plain),
				       .local = overlay ? MOUNTMAP_UNKNOWN : MOUNTMAP_AWAY};

	if (mount.plain || mountmap_is_one_of(read->type, local))
		mount.local = MOUNTMAP_LOCAL;
	if (overlay)
		mount.magic = OVERLAYFS_SUPER_MAGIC;
	if (strcmp(read->type, "btrfs") == 0)
		mount.magic = BTRFS_SUPER_MAGIC;
	if (mount.root && mount.point && (mount.layers || !overlay) && array_push(mounts, &mount, sizeof(mount)) == 0)
		return 0;
	free(mount.root);
	free(mount.point);
	free(mount.layers);
	return -ENOMEM;
}

static void mountmap_clear(UT_array *mounts)
{
	for (size_t i = 0; i < utarray_len(mounts); i++) {
		struct mountmap_mount *mount = array_at(mounts, i);

		free(mount->root);
		free(mount->point);
		free(mount->layers);
	}
	array_cut(mounts, 0);
}

static int mountmap_add_ours(void *arg, const struct procfs_mount *mount)
{
	return mountmap_add(&((struct mountmap *)arg)->ours, mount);
}

int mountmap_refresh(struct mountmap *map)
{
	bool fresh = !map->table;
	int ret;

	mountmap_clear(&map->theirs);
	if (fresh)
		map->table = procfs_mounts_open(0);
	if (!map->table)
		return -errno;
	/* Asked in any case: what changes from here on is seen the next time. */
	if (!procfs_mounts_changed(map->table) && !fresh)
		return 0;
	mountmap_clear(&map->ours);
	ret = procfs_mounts(map->table, mountmap_add_ours, map);
	if (ret == 0)
		return 1;
	/* Half a table would say that mounts are not there. */
	mountmap_clear(&map->ours);
	fclose(map->table);
	map->table = NULL;
	return ret;
}

void mountmap_free(struct mountmap *map)
{
	if (map->table)
		fclose(map->table);
	mountmap_clear(&map->ours);
	mountmap_clear(&map->theirs);
	utarray_done(&map->ours);
	utarray_done(&map->theirs);
	*map = (struct mountmap){0};
}

static struct mountmap_mount *mountmap_find_in(const UT_array *mounts, int id)
{
	for (size_t i = 0; i < utarray_len(mounts); i++) {
		struct mountmap_mount *mount = array_at(mounts, i);

		if (mount->id == id)
			return mount;
	}
	return NULL;
}

struct mountmap_mount *mountmap_find(const struct mountmap *map, int id)
{
	return mountmap_find_in(&map->ours, id);
}

struct mountmap_search {
	struct mountmap *map;
	int id;
};

static int mountmap_add_their(void *arg, const struct procfs_mount *mount)
{
	const struct mountmap_search *search = arg;

	if (mount->id != search->id)
		return 0;
	if (utarray_len(&search->map->theirs) >= THEIRS_MAX)
		mountmap_clear(&search->map->theirs);
	return mountmap_add(&search->map->theirs, mount) < 0 ? -ENOMEM : 1;
}

static const struct mountmap_mount *mountmap_find_theirs(struct mountmap *map, pid_t pid, int id)
{
	struct mountmap_search search = {.map = map, .id = id};
	const struct mountmap_mount *known = mountmap_find_in(&map->theirs, id);
	FILE *table = known ? NULL : procfs_mounts_open(pid);

	if (table) {
		procfs_mounts(table, mountmap_add_their, &search);
		fclose(table);
		known = mountmap_find_in(&map->theirs, id);
	}
	return known;
}

const char *mountmap_below(const char *dir, const char *path)
{
	size_t len = strcmp(dir, "/") == 0 ? 0 : strlen(dir);

	if (strncmp(dir, path, len) != 0 || (path[len] != '/' && path[len]))
		return NULL;
	return path + len;
}

/* NULL: is it what our root directory is on? Else: does it lie on this mount? */
static bool mountmap_lies_on(const struct mountmap *map, const struct mountmap_mount *at,
			     const struct mountmap_mount *on)
{
	if (on)
		return at->parent == on->id && at->id != on->id;
	return at->parent == at->id || !mountmap_find(map, at->parent);
}

struct mountmap_mount *mountmap_of_path(const struct mountmap *map, const char *path)
{
	struct mountmap_mount *of = NULL, *next;

	/* As the kernel walks. No more steps than mounts: a table that changes while it is read may have a circle. */
	for (size_t steps = 0; steps < utarray_len(&map->ours); steps++, of = next) {
		next = NULL;
		for (size_t i = 0; i < utarray_len(&map->ours); i++) {
			struct mountmap_mount *at = array_at(&map->ours, i);

			if (mountmap_below(at->point, path) && (!next || strlen(at->point) < strlen(next->point)) &&
			    mountmap_lies_on(map, at, of))
				next = at;
		}
		if (!next)
			break;
	}
	return of;
}

/* Appends "DIR REST" and keeps the empty text at the end. */
static int mountmap_append(char **paths, size_t *len, const char *dir, const char *rest)
{
	size_t dir_len = strcmp(dir, "/") == 0 ? 0 : strlen(dir), rest_len = strlen(rest);
	char *grown = realloc(*paths, *len + dir_len + rest_len + 2);

	if (!grown)
		return -ENOMEM;
	memcpy(grown + *len, dir, dir_len);
	memcpy(grown + *len + dir_len, rest, rest_len + 1);
	*len += dir_len + rest_len + 1;
	grown[*len] = '\0';
	*paths = grown;
	return 0;
}

static int mountmap_translate(struct mountmap *map, const struct mountmap_mount *theirs, const char *path, char **paths)
{
	char inside[2 * PATH_MAX];
	const char *rest = mountmap_below(theirs->point, path);
	unsigned found = mountmap_find(map, theirs->id) == theirs;
	size_t len = 0;
	int n;

	if (found && mountmap_append(paths, &len, "", path) < 0)
		return -ENOMEM;
	if (!rest)
		return found ? 0 : -ENOENT; /* a root directory of its own: not shown as its table shows it */
	n = snprintf(inside, sizeof(inside), "%s%s", strcmp(theirs->root, "/") ? theirs->root : "", rest);
	if (n < 0 || n >= (int)sizeof(inside))
		return found ? 0 : -ENOENT;
	for (size_t i = 0; i < utarray_len(&map->ours) && found < PATHS_MAX; i++) {
		const struct mountmap_mount *mount = array_at(&map->ours, i);
		const char *below =
			mount != theirs && mount->dev == theirs->dev ? mountmap_below(mount->root, inside) : NULL;
		size_t before = len;

		if (!below)
			continue;
		if (mountmap_append(paths, &len, mount->point, below) < 0)
			return -ENOMEM;
		if (mountmap_of_path(map, *paths + before) == mount)
			found++;
		else
			(*paths)[len = before] = '\0';
	}
	return found ? 0 : -ENOENT;
}

int mountmap_paths(struct mountmap *map, pid_t pid, int mount_id, const char *path, char **paths, bool *plain)
{
	const struct mountmap_mount *mount = mountmap_find(map, mount_id);
	int ret;

	*paths = NULL;
	if (!mount)
		mount = mountmap_find_theirs(map, pid, mount_id);
	if (!mount)
		return -ENOENT;
	*plain = mount->plain;
	ret = mountmap_translate(map, mount, path, paths);
	if (ret < 0) {
		free(*paths);
		*paths = NULL;
	}
	return ret;
}
