/*
 * Looks at a descriptor that a program passed: which file it is, under which path, what its open file
 * description holds; and opens the file anew for the keeper. All of it may block on a hung mount, so a worker
 * (workers.h) does it, unless the file system is known to be local (mounts.h).
 *
 * The passed descriptor is closed before the answer: as long as the keeper had a copy, the program's lock would
 * live on.
 */
#ifndef DFLOCK_KEEPER_INSPECT_H
#define DFLOCK_KEEPER_INSPECT_H

#include <limits.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "keeper/kernel/ownlocks.h"
#include "keeper/kernel/identity.h"
#include "keeper/kernel/workers.h"

/* What an open file description holds in the flock space. */
struct caller_holds {
	bool shared, exclusive;
};

struct inspect_result {
	struct stat st;
	struct identity id;  /* the kernel's number of the file; 0, 0: not looked for */
	int fd;              /* the keeper's own, new description; the receiver closes it; -1 on failure, or if known */
	char path[PATH_MAX]; /* absolute, " (deleted)" cut off if it is no part of the name */
	bool deleted;        /* no file, or another one, has the path now */
	struct caller_holds holds; /* flock space, unless `unused` */
	struct own_locks before; /* OFD locks: what the description holds; the receiver frees it (POSIX: ownlocks.h) */
	bool nameless;           /* no rule can name it, on any host: see libdflock(7). Nothing else was looked at */
	bool named_late;         /* it was made without a name (O_TMPFILE) and has one now, which path is not */
	/* Not 0: the path is that of no file, since the mount is gone (identity_from()), or the file was opened by its handle, and the path
	 * does not lead to the file. The type of the file system, as page_covers() has it. */
	uint64_t gone_type;
	bool shared_in_use; /* with test_shared: somebody has it shared, and nobody exclusively */
	char refused[256];  /* not empty: why this descriptor cannot be served; fd is -1 */
};

/* The file as searches look for it. */
struct holders_file inspect_file(const struct inspect_result *result);

struct inspect;
typedef void inspect_cb(void *arg, struct inspect_result *result);

/* What inspect_ground() has seen of a local file. */
struct inspect_seen {
	struct stat st; /* st_dev, st_ino, st_mode and st_nlink */
	struct identity id;
};

struct inspect_request {
	int fd; /* taken over: closed when it has been looked at */
	struct ucred peer;
	gid_t *groups; /* of the peer, besides peer.gid; from malloc(), taken over */
	size_t group_count;
	bool foreign;   /* another user's: its rights count, and its path must lead the keeper to the same file */
	bool same_path; /* on a mount that is not the keeper's own, its path must lead the keeper to the same file, too */
	bool known;     /* the keeper has a description of this file already: do not open it again */
	bool unused; /* the keeper has no lease on this file, so no process holds anything under one: skips `holds` */
	struct inspect_seen seen; /* of a local file, by inspect_ground(): not looked at again; st_ino 0: unseen */
	bool test_shared; /* find out whether the lock is held shared, with a description that lives only for the test
			   */
	bool takes;       /* the program wants to take the lock, and not only to know who has it */
	enum wire_space space;
	enum wire_mode mode;   /* with takes */
	enum wire_owner owner; /* record space */
	int64_t from, to;      /* ditto */
};

/*
 * What a descriptor refers to. If the file is not known to be local, this does not even call statx(): some file systems
 * ask their server, or take a cluster's lock, whatever the flags say (9p, gfs2). *dev: what workers are counted by
 * (mounts_local()); of a local file st_dev. *seen: of a local file; else all zero.
 */
enum inspect_ground {
	INSPECT_LOCAL,   /* a file or directory of a local file system (mounts.h): nothing that is done with it waits */
	INSPECT_AWAY,    /* of another file system, or a socket, ... */
	INSPECT_NO_FILE, /* a pipe's node, a device's, ...: the last close may wait, wherever that is */
};
struct mounts;
enum inspect_ground inspect_ground(struct mounts *mounts, int fd, uint64_t *dev, struct inspect_seen *seen);
/* Is the file neither regular nor a directory? May wait for its file system. */
bool inspect_is_no_file(int fd);

/* Fills request->groups with the peer's groups at the time when it connected, which is also what its uid is of. 0, or
 * -1: the kernel does not tell them. */
int inspect_peer_groups(int socket, struct inspect_request *request);

/* Looks at once, in the caller's thread. 0, or -1 with result->refused set. inspect_here() leaves the descriptor and the groups to the
 * caller; the others close and free them. */
int inspect_here(const struct inspect_request *request, struct inspect_result *result);
int inspect_now(const struct inspect_request *request, struct inspect_result *result);

/*
 * The same in a worker. cb comes once from the loop, never from inside the call. dev: st_dev of the file, as the kernel
 * has it in memory. NULL: no memory; then the descriptor and the groups stay with the caller.
 */
struct inspect *inspect_start(struct workers *workers, uint64_t dev, const struct inspect_request *request,
			      inspect_cb *cb, void *arg);

#endif
