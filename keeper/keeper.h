/*
 * The keeper's state, shared by its modules. Everything here belongs to the event loop's thread.
 *
 *   sessions.c  sockets: questions in, answers out: replies.c   lookup.c, received.c from a descriptor to its lock
 *   question.c  checks questions                           serve.c  what a caller may have now
 *   locks.c     files, locks, leases: finding and freeing  act.c    does what lease.c's table says
 *   host.c      the store: beats, deadline, messages, dead hosts
 *   grace.c     a store that lost its memory
 *   lost.c      leases that were lost                  callers.c who waits for a lease
 *   unseen.c    holders that may not be looked into (worker)
 *   inspect.c   looks at a passed descriptor (worker)      probe.c  asks the kernel (threads)
 *   inquiry.c   what of ours is in another's way (worker)  answers.c  what others say is in ours
 *   fronts/     other users' descriptors, and the processes that have them: fronts.h
 *   table.c     the table of leases                        takeup.c takes up what an earlier keeper had
 *   reopen.c    opens its files again                      listed.c reads /proc/locks
 *   pagefile.c  the shared page's rules                    leasepage.c its leases
 *   room.c      room for leases: what is unused makes some
 *   configfile.c which rules are in force                  configwatch.c looks at the file   kept.c a copy of it
 *   ending.c    nobody needs it, or it was told to end    orphan.c the parent was killed
 *   status.c    JSON for people                        claims.c what a search of /proc is for
 *   holders.c   who holds a lock: the search           identity.c the number that the kernel shows a file under
 *   hidden.c, mappers.c  locks that no descriptor shows
 *   procfs.c    reads what /proc says                  errand.c what may never return
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
#include "keeper/leases/locks.h"
#include "keeper/leases/queue.h"
#include "keeper/kernel/identity.h"
#include "keeper/leases/room.h"
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
struct fronts;
struct keeper;
struct keeper_options;
struct leases_slot;
struct listener;
struct lock;
struct orphan;
struct reopen;
struct session;
struct sessions;

/* A lease that was lost, for status; the newest KEEPER_MAX_LOST are kept. */
#define KEEPER_MAX_LOST 32
struct lost {
	char *name, *path;
	struct holders_file file;
	struct store_range range;
	uint64_t fence;
	time_t when;
	char why[160];
	struct lost *prev, *next;
};

struct keeper {
	uv_loop_t *loop;
	const struct keeper_options *options;
	struct config *config; /* in force */
	struct configfile *configfile;
	struct configwatch *configwatch;
	struct sessions *sessions;
	struct listener *listener;
	struct deadlock *deadlock;
	struct ending *ending;
	struct orphan *orphan;
	bool unsupervised; /* the parent was killed, and none can be started */
	char runtime_dir[PLACE_DIR_BYTES];
	int dir_fd;
	char host[STORE_HOST_BYTES];
	bool system; /* serves several users */
	time_t started;
	struct page *page;
	struct store *store;
	struct watch *watch;    /* silent for a ttl: dead */
	struct watch *sweeping; /* silent for sweep_ms: removed */
	struct probes *probes;
	struct workers *workers;
	struct inquiry *inquiries; /* under way: inquiry.c */
	unsigned inquiry_count;
	struct fronts *fronts; /* NULL: only our own user asks */
	struct mounts *mounts;
	struct room room;
	struct table *table; /* of leases; shared with the parent */

	struct file *files;
	struct lease *leases;
	struct lost *lost;
	unsigned lost_count;

	/* reopen.c */
	struct reopen *searched; /* files that wait for a search of all processes */
	bool searching;

	/* A keeper that died may have given pins: after a restart every lease counts as pinned until then. */
	int64_t old_pins_until_ns;
	uv_timer_t old_pins;

	/* host.c */
	bool store_tried;     /* a connection stood or failed since the start */
	int64_t deadline_ns;  /* leases are sure until then; 0: never renewed */
	int64_t freeze_at_ns; /* freeze_margin_ms before it: as the parent was told, whatever the configuration says now
			       */
	bool expired;         /* the deadline's passing was noticed */
	int64_t beat_sent_ns;
	bool beat_under_way;
	uv_timer_t beat, deadline, sweep;
	int64_t noted_ns; /* when the log last had a line about a message of the store */

	/* grace.c */
	char taken_incarnation[STORE_INC_BYTES]; /* of the leases that were taken up; "" after that */
	char earlier_incarnation[STORE_INC_BYTES]; /* that this keeper has known before the store's own; "": none */
	int64_t grace_since_ns;
	size_t forgotten_count; /* leases that are unsure and forgotten */
	uv_timer_t grace;

	/* lost.c */
	bool losing; /* holders of lost leases are to be killed: nobody is to be taken for one of them meanwhile */
	uv_timer_t losing_timer;

	/* unseen.c */
	uv_timer_t unseen;
	bool unseen_looking; /* a worker does */
	size_t unseen_due_count;
	int64_t unseen_not_before_ns; /* the next look */

	struct queue queue;
	struct lease *confirms; /* questions whether leases stand, to be sent */
	unsigned confirms_sent;
	struct file *unused; /* files that may be so */
	struct lease *ended; /* leases that are freed when nothing refers to them any more */
	bool leaving; /* keeper_end(): nothing happens to leases and callers any more */
};

#endif
