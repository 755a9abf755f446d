/*
 * Which files the locks are on that the kernel lists. /proc/locks has every lock of the machine, with the number of its
 * file and the process that took it, and no path. The path is found through a process that has the file open: its fdinfo
 * shows the same lock, so the descriptor is known without doubt, on whatever file system.
 *
 *   openers_look()    reads the list, and finds out about what it has not seen before
 *   openers_seen()    the locks of this look, but for those that the owner has no use for (`unused`)
 *
 * What was found is kept while the lock is listed, and looked for again after some minutes: a file may be renamed.
 *
 * What cannot be found: a lock whose description has no descriptor left (census.h), or only ones of processes that may not
 * be looked into, or of a thread with a table of its own; a file that our mount namespace does not have (mountmap.h), or
 * that is deleted. Locks of keepers are left out: they are probes.
 *
 * Costs: the list is read once (three times in the first look), a page of 4 kB at a time; the kernel's time for that grows with the square of the
 * number of locks, and lock calls of the machine wait during each page. What is new is looked for in the process that took
 * the lock, and, if it is listed a second time, all of it at once in all processes. So locks that come and go cost little, and the
 * caller rests after a look for a multiple of what it took.
 *
 * openers_look() is blocking, like holders.h: for a worker; the table is not to be used otherwise meanwhile.
 */
#ifndef DFLOCK_KEEPER_OPENERS_H
#define DFLOCK_KEEPER_OPENERS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uthash.h>

#include "keeper/array.h"
#include "keeper/kernel/mountmap.h"
#include "procfs/procfs.h"

#define OPENERS_MAX 65536 /* openers, and locks in one look */

/* The locks of one process on one file. */
struct opener_key {
	uint64_t dev, ino; /* the kernel's number (procfs.h) */
	int64_t locker;    /* the process that took them; -1: OFD locks, of whatever process */
};

enum opener_state {
	OPENER_NEW,    /* not found so far */
	OPENER_FOUND,  /* paths, pid and fd are known */
	OPENER_OTHER,  /* a keeper's, deleted, or a file that our mount namespace does not have */
	OPENER_NOWHERE /* no descriptor that may be looked at shows it */
};

struct opener {
	struct opener_key key;
	enum opener_state state;
	pid_t pid; /* a process that has it open, as descriptor fd */
	int fd;
	char *paths;    /* mountmap_paths() */
	bool plain;     /* ditto */
	bool before;    /* listed in the first look: nobody knows since when */
	bool unused;    /* the owner's word: locks of this opener are not wanted */
	bool alien;     /* ... not now, and perhaps later, when more is known of the file */
	bool checked;   /* the owner's: `unused` has been decided since the state last changed */
	unsigned look;  /* the last one that had it listed */
	unsigned looks; /* how many had, one after the other */
	int64_t sought_ns;
	UT_hash_handle hh;
};

struct openers_lock {
	struct opener *opener;
	struct procfs_lock lock;
};

struct openers {
	struct opener *all;
	struct mountmap mounts;
	UT_array locks;    /* struct openers_lock: of this look */
	unsigned look;     /* how many there were */
	bool began;        /* a look has seen the whole list: what is new now is new */
	size_t listed;     /* lock lines in the last look */
	size_t over;       /* ... for which there was no room */
	size_t nowhere;    /* openers that are OPENER_NOWHERE */
	const bool *leave; /* atomic; the look may end early; or NULL */
};

/* Begin with {0}. 0; -ENOMEM, or -errno of /proc: this look does not count. */
int openers_look(struct openers *openers);
void openers_free(struct openers *openers);

/* NULL: it is not listed any more. */
struct opener *openers_find(struct openers *openers, const struct opener_key *key);
/* The next look finds out anew. */
void openers_seek_again(struct opener *opener);
/* The rules have changed: nothing is decided, and locks for which there was no use, or which are new in the next look, count
 * as listed in the first look. */
void openers_begin_again(struct openers *openers);

/* Is a lock of this opener in this space still shown by its descriptor? Reads one fdinfo: a worker, or the loop. */
bool openers_shown(pid_t pid, int fd, const struct opener_key *key, enum wire_space space);

#endif
