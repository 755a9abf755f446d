/* The keeper's files, locks and leases: making, finding, freeing. Loop only. */
#ifndef DFLOCK_KEEPER_LOCKS_H
#define DFLOCK_KEEPER_LOCKS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <uthash.h>
#include <uv.h>

#include "keeper/array.h"
#include "keeper/kernel/claims.h"
#include "keeper/kernel/identity.h"
#include "keeper/kernel/probe.h"
#include "keeper/leases/queue.h"
#include "keeper/rules/lease.h"
#include "store/store.h"
#include "wire/msg.h"

struct answers;
struct away;
struct away_probe;
struct early;
struct age;
struct keeper;
struct leases_slot;
struct lock;
struct member;
struct reopen;
struct waiter;

#define LEASE_MAX_ASKERS 1000 /* a name has no more requests (store/rules/acquire.lua) */
/* A host that asks whether the lease is in use, and does not wait. */
struct asker {
	char host[STORE_HOST_BYTES];
	char token[STORE_TOKEN_BYTES];
	struct store_range range;
};

#define LEASE_OF_NOBODY ((uid_t)-1)

/* How much a lease is wanted back: the larger value counts. RULE: its rule (at_least_ms, redis_key) wants it back as soon as
 * it is unused, though no other host waits. */
enum recall_level { RECALL_NONE, RECALL_LINGER, RECALL_ASK, RECALL_RULE, RECALL_WAIT };

/* The question whether a lease stands: confirm.c. */
enum confirm_state {
	CONFIRM_NONE,
	CONFIRM_WAITS, /* to be sent: member->confirms.waiting */
	CONFIRM_SENT,
	CONFIRM_STALE, /* sent, but what it asks about has changed: it is asked again, whatever the answer says */
};

/* The look at which processes have a lease's lock: hidden.c. */
enum unseen_state {
	UNSEEN_LEFT_ALONE,
	UNSEEN_DUE,
	UNSEEN_SAID /* the log says that the process cannot be stopped: no more looks */
};

/* Of a lease in LEASE_ASKING: requests.c, answers.c. */
struct lease_asking {
	uint64_t fence;   /* that the store has granted it with; 0 */
	int64_t from, to; /* ... for this range; to 0: for that of the lease */
	bool queued;      /* the store has it in its queue; also with `insist` */
	int64_t told_ns;  /* when all its callers were last told so */
	bool resting;     /* the name rests */
	bool taken;       /* a Redis client has the key, or none has it, and it is left free for clients */
	char client[STORE_CLIENT_BYTES]; /* taken: the beginning of its token; "": none has it */
	int64_t pace_ms;                 /* taken: when to ask again at the latest (pace_question()) */
	int64_t taken_until_ns;          /* taken: until then, unless it is renewed; 0: for ever */
	bool insist;                     /* the holders must be asked, though they know of other hosts that wait */
	bool lapsed;                     /* the deadline has passed since: a message that it was granted may be older */
	struct store_blocker *blockers;  /* the hosts in the way at the last answer; blocker_count */
	size_t blocker_count;
	struct answers *answers; /* what holders said is in the way; NULL: none has said anything yet */
	uint64_t chased;         /* deadlock.c: the last chase that was sent on from here */
};

/* What other hosts want of it: recall.c. */
struct lease_recalled {
	enum recall_level level;
	bool shared, exclusive;   /* a set: either, or both; not with RECALL_NONE or _LINGER */
	struct store_range range; /* what is wanted, by the first asker */
	int64_t since_ns;         /* since when another host wants it; 0: none does */
	UT_array askers;          /* struct asker */
	int64_t keep_until_ns;    /* no recall is obeyed before this: min_hold_ms */
};

/* In state ENDING: the slot that is the parent's. */
struct lease_ending {
	uint32_t slot;
	uint64_t generation;
};

/* probing.c */
struct lease_probed {
	struct probe *probe;     /* runs */
	struct away_probe *away; /* runs, in a front, instead of that one */
	struct probe_want want;  /* what the one that runs was asked */
	struct early *early;     /* early.c: its release is prepared, and perhaps sent; NULL */
	bool early_refused;      /* ... and answered with an error, or not at all */
	int64_t pause_ms;        /* after the last probe, if the kernel refused; else 0 */
};

/* recall.c: parts of it are asked for, to take its place. */
struct lease_split {
	bool running;        /* the parts are those whose `whole` it is */
	struct lease *whole; /* of a part: the lease that is being split; else NULL */
};

/*
 * Each of its parts is written by the files that are named there. What stays a flag beside `state` is true or false in several states,
 * whatever else happens: that parts are asked for, that something was logged, which modes others want.
 */
struct lease {
	struct lock *lock;
	enum lease_state state; /* lease_set_state() */
	struct store_range range;
	char token[STORE_TOKEN_BYTES];
	uint64_t fence;            /* 0: it was not granted yet */
	int64_t since_ns;          /* when the state was last entered; of those that are unsure, the first */
	int64_t held_at;           /* unix seconds; 0: never granted */
	int64_t granted_ns;        /* act.c; 0: not granted by the store to this keeper, or given back or lost since */
	int64_t linger_ns;         /* given back after so long without use; doubles while it is used */
	uid_t uid;                 /* whose call asked for it, or LEASE_OF_NOBODY: room.h */
	uint32_t slot;             /* in the table, while it is a lease */
	struct leases_slot *shown; /* its slot in the page; NULL: not shown, or closed */
	int64_t rest_ms;           /* its grant begins a rest of so long, and the lease is for one lock; 0: as others */
	char *key;                 /* "FORMAT KEY": the lease is also the lock of this key (keys.h); NULL: of none */
	bool spent;                /* a caller was granted under it, or may have been */
	struct store_job job;      /* the program that asked for it; pid 0: not known, or not to be told */

	/* awaited.c, confirm.c */
	unsigned requests; /* store requests under way, or waiting to be sent */
	bool warned;       /* an error that repeats was logged */

	struct lease_asking asking;
	struct lease_recalled recalled;
	struct lease_probed probed;
	struct lease_split split;
	enum store_key_state key_lost; /* keys.c: why its key is not its own any more, and the lease ends; 0: it is */
	struct lease_ending ending;    /* act.c */
	enum confirm_state confirm;
	struct lease *confirm_prev, *confirm_next; /* member->confirms.waiting */
	enum unseen_state unseen;

	uv_timer_t timer;                        /* asking: ask again. held: linger. releasing: try again */
	UT_hash_handle hh;                       /* keeper->leases, by token */
	struct lease *prev, *next;               /* lock->leases */
	struct lease *ended_prev, *ended_next;   /* keeper->ended */
	struct queue_event events[QUEUE_EVENTS]; /* the events that wait: queue.c */
	struct lease *unused_prev, *unused_next; /* room.unused */
};

/* Part of struct member: how many of its leases are in each state. */
struct lease_states {
	unsigned count[WIRE_SPACES][LEASE_STATES];
};

struct file_key {
	uint64_t dev, ino;
};

#define GIVEN_BACK 64 /* that a keeper remembers, at most */

/* A lock of which a lease went to another host that waited. It may have been freed since then. */
struct given_back {
	struct file_key file; /* the two spaces of one file have different places */
	int64_t since_ns;
};

/* One space of one file. */
struct lock {
	struct file *file;
	enum wire_space space;
	struct lease *leases;
	struct waiter *waiters; /* every caller: waiting or pinned */
	time_t leased_at; /* Unix time: without an end since then, there was a lease; no process has had it for longer. 0: none */
	bool taken_up; /* ... but for leases of an earlier keeper */

	/* ages.c, toolong.c */
	struct age *ages;  /* of processes that were granted a lock, if the file's rule has a limit */
	int64_t warned_ns; /* running clock: when the log last said that it is held too long; 0: never */
	int64_t looked_ns; /* the last look at it began */
	struct lock *held_prev, *held_next; /* keeper->ages.locks */
};

struct file {
	struct keeper *keeper;
	struct member *member; /* of the store that has its leases; stays, as the name */
	struct file_key key;
	struct identity id;           /* the kernel's number: what lock lines in /proc show */
	char inode[STORE_FILE_BYTES]; /* "DEV:INO" */
	bool local;                   /* no call on it waits for another machine (mounts.h) */
	int fd;                /* the keeper's own description; pins the inode; -1: not opened again so far, or away */
	struct away *away;     /* a front has the description (fronts.h); NULL: none */
	struct reopen *reopen; /* reopen.c: while there is neither fd nor away */
	char *path;            /* as last seen */
	char *name;            /* lock name */
	char *redis_key;       /* of its rule (file_follow_rule()), as the next four: "FORMAT KEY"; NULL: none */
	int64_t at_least_ms;   /* 0: none */
	int64_t warn_after_ms, kill_after_ms;
	int64_t wait_warn_ms;
	struct lock locks[WIRE_SPACES];
	struct file *unused_prev, *unused_next; /* keeper->unused; prev NULL: it is not there */
	UT_hash_handle hh;                      /* keeper->files */
	UT_hash_handle by_id;                   /* keeper->files_by_id */
};

/* How the store names it: "DEV:INO". Pure. */
void file_inode_text(const struct file_key *key, char out[STORE_FILE_BYTES]);

/* The file of this inode, or NULL. */
struct file *file_find(struct keeper *k, uint64_t dev, uint64_t ino);
/* A file with this number of the kernel's, or NULL. On btrfs other files may have the same number (procfs.h). */
struct file *file_find_by_id(struct keeper *k, uint64_t dev, uint64_t ino);
/*
 * The file of this inode under this lock name, whose leases are in this store. Takes over fd (closes it if the file is known already); -1 is allowed.
 * local: as mounts_local() says. 0 and *out; -EEXIST: the inode is in use under another name, or in another store (*out is that file);
 * -ENOMEM.
 */
int file_get(struct member *m, const struct stat *st, bool local, const char *path, const char *name, int fd,
	     struct file **out);
/* A front has a description of the file (fronts.h). If the file has a description already, drops the new one. */
void file_is_away(struct file *file, struct away *away);
/* Does it have a description with which its leases can be probed? */
static inline bool file_is_open(const struct file *file)
{
	return file->fd >= 0 || file->away;
}
/* Does it have leases, or waiters? */
bool file_is_used(const struct file *file);
/* Nothing may refer to it. */
void file_free(struct file *file);
/* The path is known anew, or other rules are in force: sets redis_key, at_least_ms, wait_warn_ms, warn_after_ms and
 * kill_after_ms. */
void file_follow_rule(struct file *file);
/* Does its rule have a limit for how long a lock is held? Then each lock that is taken asks the keeper (ages.h). */
static inline bool file_is_limited(const struct file *file)
{
	return file->warn_after_ms || file->kill_after_ms;
}
/* The file has got a description: probes the leases that waited for one. */
void file_opened(struct file *file);
/* Closes a descriptor (-1: none) of a file on this device. Unless the file is local, a worker does it, since close()
 * may wait. */
void file_close(struct keeper *k, uint64_t dev, int fd, bool local);
/* Perhaps nothing uses the file any more: looks at it when the queue is empty. */
void file_unused(struct file *file);

/* The file as a search of /proc needs it (holders.h). */
struct holders_file file_searched(const struct file *file);
/* Takes the kernel's number from an inspection, or from the table of an earlier keeper; ino 0: not known. */
void file_learnt(struct file *file, const struct identity *id);

/* 128 random bits: no two requests of any two hosts ever have the same token. */
#define TOKEN_RANDOM_BYTES ((STORE_TOKEN_BYTES - 1) / 2)

/* Random bytes for the next tokens: k->token_bytes. locks.c's. */
struct token_bytes {
	unsigned char bytes[16 * TOKEN_RANDOM_BYTES];
	unsigned left;
};

/* A new token. 0; -EIO: there is no randomness. */
int lease_make_token(struct keeper *k, char token[STORE_TOKEN_BYTES]);

/* A new asking lease of the lock, with a token of its own; in both tables. uid: the user whose call asks for it. NULL:
 * no memory or no randomness. */
struct lease *lease_new(struct lock *lock, const struct store_range *range, uid_t uid);
/* A lease that has a token already, from the table; the caller sets its state. uid: as above. */
struct lease *lease_take_up(struct lock *lock, const struct store_range *range, const char *token, uid_t uid);
/* Frees it. Nothing may refer to it. */
void lease_free(struct lease *lease);
struct lease *lease_find(struct keeper *k, const char *token);

static inline struct member *lease_member(const struct lease *lease)
{
	return lease->lock->file->member;
}

static inline struct keeper *lease_keeper(const struct lease *lease)
{
	return lease->lock->file->keeper;
}

static inline bool lease_is_probed(const struct lease *lease)
{
	return lease->probed.probe || lease->probed.away;
}

/* Is this a part of a lease that still stands (recall.h)? Then it stays open, whatever other hosts want, since the whole
 * is given up only when all parts are open. */
static inline bool lease_is_part(const struct lease *lease)
{
	return lease->split.whole != NULL;
}

/* Its rule wants the lease back as soon as it is unused. */
void lease_recall_by_rule(struct lease *lease);
/* The lease, which the store does not have so far as we know, is also the lock of this key; NULL: of none. Without
 * memory, the process ends. */
void lease_set_key(struct lease *lease, const char *key);

/* The lease's one timer; what it means depends on the state, and a change of state stops it. Its end is an input
 * (queue.h). */
void lease_start_timer(struct lease *lease, int64_t ms);

/* Sets the state, and counts the leases in each: for each answer of the store the keeper must know whether any is forgotten, and there
 * may be as many answers as leases. */
void lease_set_state(struct lease *lease, enum lease_state state);

bool range_overlaps(const struct store_range *a, const struct store_range *b);

/* This host's lease that covers the range; an open one is preferred to a closed one. NULL: none. */
struct lease *lock_covering(const struct lock *lock, const struct store_range *range);
/* Do other open leases of this host together cover all of this one? Leases that are being split do not count. */
bool lock_covered_without(const struct lease *lease);
/* Is a lease of this lock being taken away (breaking.h)? Then no caller is answered: the lease's end, or its opening,
 * serves again. */
bool lock_is_breaking(const struct lock *lock);
/* "NAME (PATH)", for people. */
void lock_describe(const struct lock *lock, char *out, size_t size);

#endif
