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
#include "keeper/kernel/identity.h"
#include "keeper/leases/deadline.h"
#include "keeper/leases/grace.h"
#include "keeper/leases/host.h"
#include "keeper/leases/inquiry.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/lost.h"
#include "keeper/leases/queue.h"
#include "keeper/leases/reopen.h"
#include "keeper/leases/requests.h"
#include "keeper/leases/room.h"
#include "keeper/leases/unseen.h"
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
	struct probes *probes;
	struct workers *workers;
	struct fronts *fronts; /* NULL: only our own user asks */
	struct mounts *mounts;
	struct room room;
	struct table *table; /* of leases; shared with the parent */

	struct file *files;
	struct lease *leases;
	struct file *unused; /* files that may be so */
	struct lease *ended; /* leases that are freed when nothing refers to them any more */

	struct queue queue;
	struct deadline deadline;
	struct host_in_store host_in_store;
	struct grace grace;
	struct requests requests;
	struct lost lost;
	struct unseen unseen;
	struct reopens reopens;
	struct inquiries inquiries;
	struct old_pins old_pins;
	bool leaving; /* keeper_end(): nothing happens to leases and callers any more */
};

#endif
