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
#include "keeper/rules/chases.h"
#include "keeper/leases/configfile.h"
#include "keeper/fronts/connection.h"
#include "keeper/guard/table.h"
#include "keeper/kernel/inspect.h"
#include "keeper/rules/lease.h"
#include "keeper/kernel/probe.h"
#include "keeper/leases/room.h"
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

/* Whom to tell that it is in use: those who ask and do not wait. */
#define LEASE_MAX_ASKERS 16
struct asker {
	char host[STORE_HOST_BYTES];
	char token[STORE_TOKEN_BYTES];
	struct store_range range;
};

/* How badly another host wants a lease: the larger counts. */
enum recall_level { RECALL_NONE, RECALL_LINGER, RECALL_ASK, RECALL_WAIT };

struct lease {
	struct lock *lock;
	enum lease_state state;
	struct store_range range;
	char token[STORE_TOKEN_BYTES];
	uint64_t fence;
	int64_t since_ns;        /* when the state was last entered */
	int64_t held_at;         /* unix seconds; 0: never granted */
	bool queued;             /* asking: the store has it in its queue */
	bool splitting;          /* pieces of it are asked for, to take its place (split.c) */
	struct lease *whole;     /* is to take the place of a part of this one, which is splitting; else NULL */
	bool insist;             /* asking: queues, though its callers do not wait long */
	struct answers *answers; /* asking: what holders said is in the way; NULL: none has said anything yet */
	bool forgotten;          /* unsure: the store has lost it; to be put back */
	bool lapsed;             /* asking, unsure: the deadline has passed since it was asked for, or known to stand */
	bool stands;             /* unsure: the store confirmed it, but the probe has not stopped yet */
	struct store_blocker *blockers; /* asking: who was in the way when last asked; NULL or blocker_count of them */
	size_t blocker_count;
	enum recall_level recall;
	bool recall_shared, recall_exclusive; /* what is wanted: either, or both */
	struct store_range recall_range;      /* what is wanted: by the first */
	struct asker askers[LEASE_MAX_ASKERS];
	unsigned asker_count;
	uint32_t slot;                             /* of the table; TABLE_NO_SLOT: lost, or not in it */
	struct leases_slot *shown;                 /* in the page; NULL: not, or closed */
	struct probe *probe;                       /* runs */
	struct away_probe *away_probe;             /* runs, in a front, instead of that one */
	bool probe_waits;                          /* ... and goes on after "in use" */
	bool probe_shared;                         /* ... and makes do with nobody having it exclusively */
	int64_t probe_pause_ms;                    /* the last one, after the kernel refused; 0: it did not */
	bool warned;                               /* an error that repeats was logged */
	bool unseen_due, unseen_said;              /* unseen.c: to be looked at; the log says who cannot be stopped */
	unsigned requests;                         /* store requests under way, or waiting to be sent */
	bool confirm_waits, confirm_sent;          /* requests.c: the question whether it stands */
	bool confirm_again;                        /* ... the answer under way is too old, whatever it will be */
	struct lease *confirm_prev, *confirm_next; /* keeper->confirms */
	int64_t keep_until_ns;                     /* not recalled before: min_hold_ms */
	int64_t linger_ns;                       /* how long unused before it is given back; doubles while it is used */
	uv_timer_t timer;                        /* asking: ask again. held: linger. releasing: try again */
	UT_hash_handle hh;                       /* keeper->leases, by token */
	struct lease *prev, *next;               /* lock->leases */
	struct lease *ended_prev, *ended_next;   /* keeper->ended */
	uid_t uid;                               /* whose call asked for it: room.h */
	struct lease *unused_prev, *unused_next; /* room.unused */
};

/* One space of one file. */
struct lock {
	struct file *file;
	enum wire_space space;
	struct lease *leases;
	struct session *sessions; /* every caller: waiting or pinned */
	int64_t given_back_ns;    /* when a lease went last to another host that waited */
};

struct file_key {
	uint64_t dev, ino;
};

struct file {
	struct keeper *keeper;
	struct file_key key;
	struct identity id;           /* the kernel's number: what lock lines in /proc show */
	char inode[STORE_FILE_BYTES]; /* "DEV:INO" */
	bool local;                   /* no call on it waits for another machine (mounts.h) */
	int fd;                /* the keeper's own description; pins the inode; -1: was not opened again yet, or away */
	struct away *away;     /* a front has one in its place (fronts.h); NULL: none */
	struct reopen *reopen; /* reopen.c: while there is neither */
	char *path;            /* as last seen */
	char *name;            /* lock name */
	struct lock locks[WIRE_SPACES];
	bool listed; /* keeper->unused */
	struct file *unused_prev, *unused_next;
	UT_hash_handle hh;
};

enum session_state {
	SESSION_READING,    /* no question yet, or the next one */
	SESSION_INSPECTING, /* a worker looks at the descriptor */
	SESSION_WAITING,    /* in lock->sessions */
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
	int64_t pin_until_ns;
	time_t started; /* unix: when the question came */
	bool told_waiting;
	bool told_away;            /* it was told that it waits for the store */
	int64_t away_ns;           /* blocking: since when it waits for the store to come back; 0: it does not */
	bool needs_pin;            /* waiting: may have one when the probes in its range have ended */
	bool roomless;             /* waiting: for room for another lease */
	bool named_dead;           /* non-blocking: the question was repeated with silent hosts named dead */
	struct caller_holds holds; /* what the caller's description had when it asked: flock */
	struct before before;      /* ditto: records; kept until the next question */
	bool shared_tested, shared_in_use; /* somebody had the flock shared when it asked */
	struct lock *lock;
	struct lease *lease; /* the asking one that it waits for */
	int64_t joined_ns;   /* since when */
	uint64_t arrival;    /* ditto: its place among all that wait; 0: not known yet */
	uint64_t look;       /* configwatch.c: of that number; 0: none */
	void (*then)(struct session *s);
	int held_fd; /* lookup.c: looking: the question's; -1 */
	struct session *lock_prev, *lock_next;
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
	struct table *table; /* of leases; shared with the parent */

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

	unsigned depth;         /* of lease_raise() */
	struct lease *confirms; /* questions whether leases stand, to be sent */
	unsigned confirms_sent;
	bool confirms_going; /* they are being sent */
	struct file *unused; /* files that may be so */
	struct lease *ended; /* leases that are freed when nothing refers to them any more */
	bool leaving;        /* the store was told that this host ends */
};

#endif
