/*
 * The keeper: puts together what its modules own. Only the event loop's thread touches it. Each folder's README.md says
 * what is in it. A struct that is only declared here is defined in the header or file of its name.
 */
#ifndef DFLOCK_KEEPER_KEEPER_H
#define DFLOCK_KEEPER_KEEPER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <uthash.h>
#include <uv.h>

#include "config/config.h"
#include "keeper/guard/table.h"
#include "keeper/rules/lease.h"
#include "keeper/kernel/probe.h"
#include "keeper/kernel/identity.h"
#include "keeper/leases/act.h"
#include "keeper/leases/breaking.h"
#include "keeper/leases/ages.h"
#include "keeper/leases/host.h"
#include "keeper/leases/recall.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/lost.h"
#include "keeper/leases/past.h"
#include "keeper/leases/queue.h"
#include "keeper/leases/reopen.h"
#include "keeper/leases/room.h"
#include "keeper/leases/seenout.h"
#include "keeper/leases/toolong.h"
#include "keeper/leases/touched.h"
#include "keeper/leases/survey.h"
#include "keeper/leases/hidden.h"
#include "keeper/leases/waiters.h"
#include "keeper/rules/watch.h"
#include "store/store.h"
#include "wire/msg.h"
#include "wire/place.h"

struct away;
struct configfile;
struct configwatch;
struct deadlock;
struct ending;
struct events;
struct fronts;
struct keeper;
struct keeper_options;
struct leases_slot;
struct listener;
struct lock;
struct reopen;
struct session;
struct sessions;
struct who;

/* orphan.c */
struct orphan {
	uv_poll_t parent; /* the pipe that ends when it dies */
	uv_timer_t retry;
};

struct keeper {
	uv_loop_t *loop;
	const struct keeper_options *options;
	struct config *config; /* in force; configfile.c replaces it */

	/* callers/ */
	struct configfile *configfile;
	struct configwatch *configwatch;
	struct sessions *sessions;
	struct listener *listener;
	struct deadlock *deadlock;
	struct {                 /* who.c */
		struct who *all; /* those with a session */
		unsigned count;  /* also of those whose session has ended, while they make work */
		unsigned searches;
	} whos;
	struct ending *ending;

	struct orphan orphan;
	bool unsupervised; /* the parent was killed, and none can be started */

	/* keeper.c; constant */
	char runtime_dir[PLACE_DIR_BYTES];
	int dir_fd;
	char *names_dir; /* resolved: of the files of `dflock lock`; NULL: it could not be made */
	char host[STORE_HOST_BYTES];
	uid_t uid;       /* the keeper's effective user */
	bool system;     /* serves several users */
	bool foreground; /* does not end when no program needs it */
	time_t started;
	struct page *page;
	struct member members[CONFIG_MAX_MEMBERS]; /* one for each store; constant is how many */
	unsigned member_count;
	char twin[STORE_HOST_BYTES]; /* the host that had this one's id, or whose id this one had; "": none is known */
	struct probes *probes;
	struct workers *workers;
	struct fronts *fronts; /* NULL: the keeper serves only its own user */
	struct mounts *mounts;
	struct room room;
	struct table *table; /* of leases; shared with the parent */

	struct file *files, *files_by_id;
	struct lease *leases;
	struct given_back given_back[GIVEN_BACK]; /* recall.c */
	struct act_counts act;
	struct file *unused; /* files that may be unused */
	struct lease *ended; /* ended leases, freed when nothing refers to them any more */

	struct token_bytes token_bytes;
	struct queue queue;
	struct lost lost;
	struct breakings breakings;
	struct surveys surveys;
	struct hidden hidden;
	struct past past;
	struct ages ages;
	struct toolong toolong;
	struct events *events;
	struct touched touched;
	struct reopens reopens;
	struct seenout seenout;
	struct inquiries inquiries;
	struct old_pins old_pins;
	unsigned leaves; /* keeper_end(): stores that have still to say that this host left */
	bool leaving;    /* set by keeper_end(): nothing happens to leases and callers any more */
};

/* The number of a store, in the table of leases and for the parent. */
static inline unsigned member_number(const struct member *m)
{
	return (unsigned)(m - m->keeper->members);
}

/* The number of its store, of which it may be one shard of several: for the log. */
static inline unsigned member_store(const struct member *m)
{
	return (unsigned)(m->config - m->keeper->config->stores);
}

/* The store that has the leases of the lock that it waits for, or is granted. */
static inline struct member *waiter_member(const struct waiter *waiter)
{
	return waiter->lock->file->member;
}

#endif
