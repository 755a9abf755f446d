/*
 * The table of mounts, for all who read it; and the path of a file as this process's mount namespace has it. /proc shows the
 * paths of open files below the root of the mount namespace in which they were opened: a container's /var/lock/x is not our
 * /var/lock/x. The way goes over the file system, which both may have mounted: which directory of it a mount shows is in
 * mountinfo.
 *
 * Reads mountinfo only; no path is walked, no file server is asked. One thread at a time for a struct mountmap.
 */
#ifndef DFLOCK_KEEPER_MOUNTMAP_H
#define DFLOCK_KEEPER_MOUNTMAP_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "keeper/array.h"

enum mountmap_local { MOUNTMAP_UNKNOWN, MOUNTMAP_LOCAL, MOUNTMAP_AWAY };

struct mountmap_mount {
	int id, parent;
	uint64_t dev;
	char *root, *point; /* as procfs_mount has them */
	char *layers;       /* of an overlay: its options; else NULL */
	bool plain;         /* st_dev is the number that the kernel's lists of locks have (refind.h) */
	uint32_t magic;     /* the type, where st_dev of its files is another number than dev: overlay, btrfs; else 0 */
	enum mountmap_local local; /* an overlay is MOUNTMAP_UNKNOWN: see mounts.c */
};

struct mountmap {
	FILE *table;
	UT_array ours;   /* struct mountmap_mount, as the kernel lists them: one may lie on a later one */
	UT_array theirs; /* of other namespaces, as asked for since mountmap_refresh() */
};

/* Before first use {0}. Reads our table again if it has changed, and forgets those of others. 1: our table was read; 0: it has not
 * changed; -errno: nothing is known of it. */
int mountmap_refresh(struct mountmap *map);
void mountmap_free(struct mountmap *map);
/* A mount of our namespace. NULL: there is no such one. Its number is unique among all namespaces for as long as it exists. */
struct mountmap_mount *mountmap_find(const struct mountmap *map, int id);
/* The mount that the kernel would find for this absolute path, if no part of the path were a link: where one mount lies on another, the
 * upper one. NULL: none that is known. */
struct mountmap_mount *mountmap_of_path(const struct mountmap *map, const char *path);

/*
 * The paths at which our namespace has the file that /proc/PID/fd shows as `path`, open on mount mount_id: one after
 * the other, each ended with NUL, and an empty one at the end; of a mount of our own namespace `path` first. *plain:
 * see above. 0; -ENOENT: our namespace does not have it; -ENOMEM.
 */
int mountmap_paths(struct mountmap *map, pid_t pid, int mount_id, const char *path, char **paths, bool *plain);

/* What is below the directory `dir` on the way to `path` ("" or "/..."); NULL if that is not below it. Pure. */
const char *mountmap_below(const char *dir, const char *path);

#endif
