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
 *   journal.c   what a restarted keeper takes up           takeup.c does so
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
#include "keeper/rules/chases.h"
#include "keeper/leases/configfile.h"
#include "keeper/fronts/connection.h"
#include "keeper/guard/fence.h"
#include "keeper/kernel/inspect.h"
#include "keeper/rules/lease.h"
#include "keeper/kernel/probe.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/queue.h"
#include "keeper/leases/room.h"
#include "keeper/leases/waiters.h"
#include "keeper/rules/watch.h"
#include "store/store.h"
#include "wire/msg.h"
#include "wire/place.h"

struct away;
struct configwatch;
struct fronts;
struct keeper;
struct keeper_options;
struct leases_slot;
struct lock;
struct reopen;

enum session_state {
	SESSION_READING,    /* no question yet, or the next one */
	SESSION_INSPECTING, /* a worker looks at the descriptor */
	SESSION_WAITING,    /* its waiter is the lock's */
	SESSION_PINNED,     /* ditto: granted */
	SESSION_STATUS,     /* the answer is being made */
	SESSION_INIT,       /* WIRE_INIT: waits for the store */
	SESSION_STOPPING,   /* WIRE_STOP: waits until all is given back */
	SESSION_RELOADING,  /* WIRE_RELOAD: waits for a look at the file (configwatch.c) */
	SESSION_LOOKING,    /* a question that waits for one */
	SESSION_CLOSED,
};

struct session {
	struct keeper *keeper;
	enum session_state state;
	int fd;
	struct ucred peer;
	uv_timer_t timer; /* non-blocking: probe_ms. blocking: store_wait_ms. pinned: the pin's end */
	unsigned uses;    /* by the timer, by a worker; the last frees */
	struct inspect *job;
	struct inspect_result *inspected; /* while a worker reads what its process holds (before_job.h); else NULL */
	struct wire_request request;
	bool local; /* the file that it is about: mounts.h */
	/* fronts.h: the peer is a user whose descriptors do not come to the keeper */
	bool foreign;
	struct front_connection reading;
	struct inspect_result *found; /* received.c: by that; NULL: it has been looked up, or there is none */
	int64_t received_ns;
	time_t started; /* unix: when the question came */
	bool told_waiting;
	bool told_away;            /* it was told that it waits for the store */
	int64_t away_ns;           /* blocking: since when it waits for the store to come back; 0: it does not */
	bool named_dead;           /* non-blocking: the question was repeated with silent hosts named dead */
	struct caller_holds holds; /* what the caller's description had when it asked: flock */
	struct before before;      /* ditto: records; kept until the next question */
	bool shared_tested, shared_in_use; /* somebody had the flock shared when it asked */
	struct waiter waiter; /* waiting, pinned: what leases know of it (waiters.h) */
	uint64_t look;       /* configwatch.c: of that number; 0: none */
	void (*then)(struct session *s);
	int held_fd; /* lookup.c: looking: the question's; -1 */
	struct session *prev, *next; /* keeper->sessions */
};

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
	struct configfile configfile;
	struct configwatch *configwatch;
	char runtime_dir[PLACE_DIR_BYTES];
	int dir_fd;
	char host[STORE_HOST_BYTES];
	bool system;       /* serves several users */
	uid_t unknown_uid; /* overflowuid_get() */
	time_t started;
	struct page *page;
	struct journal *journal;
	struct store *store;
	struct watch *watch;    /* silent for a ttl: dead */
	struct watch *sweeping; /* silent for sweep_ms: removed */
	struct probes *probes;
	struct workers *workers;
	struct inquiry *inquiries; /* under way: inquiry.c */
	unsigned inquiry_count;
	struct fronts *fronts; /* NULL: only our own user asks */
	struct mounts *mounts;
	struct chases chases;
	struct room room;
	struct fence *fence;
	struct fence_old *fence_taken; /* while the journal is taken up */

	struct file *files;
	struct lease *leases;
	struct session *sessions;
	unsigned session_count, session_limit;
	struct lost *lost;
	unsigned lost_count;

	int listen_fd, spare_fd;
	uv_poll_t listen;
	int session_epoll; /* of all sessions: cheaper by far than a handle of the loop for each */
	uv_poll_t session_events;

	/* ending.c */
	uv_signal_t sigterm, sigint;
	uv_timer_t idle, term;
	int64_t told_ns;  /* to end; 0: it was not */
	uint64_t look_ms; /* until it looks again whether it can */
	bool ending;      /* it waits for what is in use */

	/* reopen.c */
	struct reopen *searched; /* files that wait for a search of all processes */
	bool searching;

	/* orphan.c */
	uv_poll_t parent;
	uv_timer_t orphan_timer;
	bool orphan; /* the parent was killed, and none can be started */

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
	int64_t idle_since_ns;
	int64_t noted_ns; /* when the log last had a line about a message of the store */

	/* grace.c */
	char journal_incarnation[STORE_INC_BYTES]; /* of the leases that were taken up; "" after that */
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
	bool leaving;        /* the store was told that this host ends */
};

#endif
