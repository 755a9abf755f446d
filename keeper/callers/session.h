/*
 * A session: one connection of a program or an operator, and its present question. Loop only.
 *
 *   session.c       its life, the list of all sessions, and answers
 *   dispatch.h      reads questions and gives each to the module that answers it: lookup.h, control.h
 *   listener.h      the socket that new connections come from
 *
 * A module that has taken over a question says so with session_enter(). Until when it waits, and what is to be done then, it says with
 * session_expect(); what is to be given up if the session leaves that state, with `leave`. The next state, which mostly is READING with
 * the answer, ends both. Each group of fields below belongs to one module; others read them.
 */
#ifndef DFLOCK_KEEPER_SESSION_H
#define DFLOCK_KEEPER_SESSION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>
#include <uv.h>

#include "keeper/callers/configwatch.h"
#include "keeper/callers/lookup.h"
#include "keeper/fronts/fronts.h"
#include "keeper/kernel/inspect.h"
#include "keeper/kernel/onbehalf.h"
#include "keeper/leases/waiters.h"
#include "store/histogram.h"
#include "wire/msg.h"

struct control_break;
struct keeper;
struct quota_user;
struct status_job;
struct store_range;
struct who;

/*
 *   READING --> LOOKING --> READING --> INSPECTING --> WAITING --> PINNED     a question for a lock
 *                                            ^------------'                   (has a process the lock shared?)
 *   READING --> STATUS, METRICS, INIT, STOPPING, RELOADING, FIT, WHO, BREAKING         any other question
 *
 * The answer leads back to READING from each of them but PINNED: there the next question does. From each state to CLOSED, by way of
 * UNREAD where the peer keeps a descriptor.
 */
enum session_state {
	SESSION_READING,    /* no question yet, or the next one */
	SESSION_INSPECTING, /* a worker or a front looks at the descriptor */
	SESSION_WAITING,    /* its waiter is the lock's */
	SESSION_PINNED,     /* ditto: granted */
	SESSION_STATUS,     /* the answer is being made */
	SESSION_METRICS,    /* ditto */
	SESSION_INIT,       /* WIRE_INIT: waits for the store */
	SESSION_STOPPING,   /* WIRE_STOP: waits until all is given back */
	SESSION_RELOADING,  /* WIRE_RELOAD: waits for a look at the configuration file */
	SESSION_LOOKING,    /* another question that waits for such a look */
	SESSION_FIT,        /* WIRE_FIT: waits for the store */
	SESSION_BREAKING,   /* WIRE_BREAK and what belongs to it: waits for holders, the store or another host */
	SESSION_WHO,        /* WIRE_WHO, WIRE_HELD: waits for this host's /proc, the store and other hosts */
	SESSION_UNREAD,     /* has ended, but for an answer with a descriptor that the peer has not read */
	SESSION_CLOSED,
};

/* Had a process the flock shared when the session asked? */
enum session_shared { SESSION_SHARED_UNTESTED, SESSION_SHARED_FREE, SESSION_SHARED_IN_USE };

struct session {
	/* session.c; constant */
	struct keeper *keeper;
	int fd;
	struct ucred peer; /* ... but for its pid: the process that the present question is about (session_ask_for()) */
	pid_t connected;   /* the process that has connected */
	bool foreign;      /* the peer's descriptors must not come to the keeper: fronts.h */

	/* session.c */
	bool gave_file;           /* an answer had a descriptor */
	enum session_state state; /* session_enter() */
	uv_timer_t timer;         /* session_expect() */
	void (*late)(struct session *s);
	void (*leave)(struct session *
			      s); /* set after session_enter(); called once, when the state ends; NULL: nothing to do */
	unsigned uses;            /* by the timer, by a worker; the last one to end frees the session */
	struct session *prev, *next;
	struct session *rest_prev, *rest_next; /* sessions.resting: while waiter.rests */

	/* dispatch.c: the question */
	struct wire_request request;
	struct onbehalf behalf; /* the thread for which it is asked */
	bool again;             /* ... and whose call was granted before */
	bool called_back;       /* ... and was called back out of the call that it begins anew (seenout.h); serve.c */
	int64_t received_ns;    /* read after the question was received: session_grant() */
	time_t started;         /* the same moment, unix */

	/* lookup.c */
	struct lookup lookup;
	struct caller_holds holds;  /* what the caller's description had when it asked: flock */
	struct own_locks before;    /* ditto: records; kept until the next question */
	enum session_shared shared; /* ditto: what others had */

	/* control.c and lookup.c: waits for a look at the configuration file */
	struct configwatch_wait look;

	/* fronts/; of a foreign session */
	struct front_connection reading;

	/* serve.c; waiting, pinned */
	struct waiter waiter; /* what leases/ know of it */

	unsigned store;                 /* control.c: SESSION_INIT: which of the keeper's stores is opened now */
	struct control_break *breaking; /* control_break.c: SESSION_BREAKING; else NULL */
	struct status_job *status;      /* status.c: SESSION_STATUS; else NULL */
	struct who *who;                /* who.c: SESSION_WHO; else NULL */

	/* waiting.c, callers.c: what happened to this question, in any order; so no state says it */
	bool told_waiting;
	bool warned;    /* it has waited for too long, and that was said (callers.h) */
	bool told_away; /* the caller was told that it waits for the store */
	bool held_back; /* ... for what the lease's probe says */
	/* Non-blocking: the holders were asked a second time, since a message may be lost; then the question was repeated with
	 * silent hosts named dead. */
	bool asked_twice, named_dead;
	int64_t away_ns;        /* blocking: since when it waits for the store to come back; 0: it does not */
	uint64_t granted_fence; /* of the lease under which this call was granted last; 0: none. Stays over questions */
};

/* Of lock calls, by what became of them; never go back. A call that asks again after its pin counts again. */
struct session_counts {
	struct histogram waited[WIRE_SPACES]; /* granted: from the question to the answer */
	uint64_t busy[WIRE_SPACES];           /* another host had it, and the caller did not wait */
	uint64_t refused[REFUSALS];           /* tests too, and connections that were turned away */
	uint64_t deadlocks;
	uint64_t abandoned;  /* the caller went away while it waited */
	uint64_t long_waits; /* callers.h */
};

/*
 * --- quota.c ---
 *
 * What one user of a system keeper may have under way, so that users leave room for each other. Root, and the keeper's own user,
 * are not counted; a keeper that serves one user counts nothing. Leases have shares of their own (leases/room.h).
 *
 * Work counts from its begin to its end, also if the connection that asked for it was closed meanwhile: else a user could begin
 * any amount of it by asking and hanging up.
 */
enum quota_kind {
	QUOTA_CONNECTION, /* a quarter of listener.limit for each user; seven eighths for all together */
	QUOTA_STATUS,     /* WIRE_STATUS: looks through /proc, and asks the store */
	QUOTA_WHO,        /* WIRE_WHO, WIRE_HELD: the same about one lock, on all hosts */
	QUOTA_KINDS
};

#define QUOTA_STATUS_EACH 2
#define QUOTA_STATUS_ALL  6 /* workers.h has sixteen threads */
#define QUOTA_WHO_EACH    8
#define QUOTA_WHO_ALL     48 /* of 64 searches (who.c) */

/* Part of struct sessions. */
struct quotas {
	struct quota_user *users;
	unsigned all[QUOTA_KINDS];
};

/* Is this user one whose share is limited? */
bool quota_is_limited(const struct keeper *k, uid_t uid);
/* 0: begin; quota_give() when it has ended. -EDQUOT: this user has its share already; -EBUSY: all users together have theirs;
 * -ENOMEM. */
int quota_take(struct keeper *k, uid_t uid, enum quota_kind kind);
void quota_give(struct keeper *k, uid_t uid, enum quota_kind kind);

/* All sessions: k->sessions. */
struct sessions {
	struct session *all;
	unsigned count;
	struct session *resting; /* those that are not watched, the first one longest: listener.h */
	unsigned rests;          /* how many these are */
	uv_timer_t rest;
	uv_timer_t look;               /* listener.c: at all sessions */
	unsigned waiting[WIRE_SPACES]; /* how many are in SESSION_WAITING */
	uint64_t accepted;             /* since the start */
	struct session_counts counts;
	int64_t idle_since_ns; /* when the last one ended, or the keeper started */
	int epoll;             /* of the connections: far cheaper than one libuv handle each */
	struct quotas quotas;  /* quota.c */
	int64_t metrics_ns;    /* metrics.c: when the last answer was made; 0: none was */
};

/* --- session.c --- */

/* Sets k->sessions. 0 or -ENOMEM. */
int sessions_init(struct keeper *k);
/* No session may exist any more. */
void sessions_free(struct keeper *k);

/* Makes a connection's session, and adds it to the list; it rests (listener.h). The caller closes fd: at once if this returns
 * NULL (no memory), else after session_end(). The caller has taken QUOTA_CONNECTION, and gives it back after NULL;
 * session_end() gives it back otherwise. */
struct session *session_new(struct keeper *k, int fd, const struct ucred *peer, bool foreign);
/* Takes it out of the list; session_unuse() frees it with its last use. It must not wait for anything any more:
 * dispatch_close(). */
void session_end(struct session *s);

/* What comes from the peer, and its hang-up, also one of before, is reported from now on. If there is no memory for that, the session
 * rests on. Nothing happens if it is watched. */
void session_watch(struct session *s);

/* Has the peer hung up, whether or not that was reported? */
bool session_has_hung_up(const struct session *s);

/* The question has come so far. Only this sets `state`. Another state than before ends what session_expect() began, and calls `leave`. */
void session_enter(struct session *s, enum session_state state);
/* Calls late() in so many ms, and settles (queue.h), unless the state ends before that. Takes the place of an earlier call. */
void session_expect(struct session *s, int64_t ms, void (*late)(struct session *s));

/* The question is asked on behalf of this thread; thread 0: for the peer itself. */
void session_ask_for(struct session *s, const struct onbehalf *who);

/* What the program is called, for people: as it says itself, printable; "" if the process is gone. */
void session_command(const struct session *s, char out[JOB_COMMAND_BYTES]);

/* A worker works for this session: it is not freed before session_unuse(). */
void session_use(struct session *s);
void session_unuse(struct session *s);

/* Has this process a connection? Then it may have asked, whether or not it is known what about. */
bool session_is_asking(const struct keeper *k, pid_t pid);

/* The session was answered, or its peer is gone: ends its pin, and gives up what it alone waited for. */
void session_stop_waiting(struct session *s);

/* --- answers. None waits for the peer --- */

/* WIRE_WAITING leaves the session as it is; any other verdict ends the question. fd: passed along, or -1. */
void session_reply(struct session *s, enum wire_verdict verdict, const char *reason, int fd);
void session_refuse(struct session *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same for a lock call or a test, which counts it. may_mend: the reason may be gone later, without a change to the
 * question: a caller whose rule says so waits. */
void session_refuse_call(struct session *s, enum refusal refusal, bool may_mend, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* WIRE_WOULD_BLOCK; to WIRE_TEST with the lock in the way (NULL: not known more exactly than what was asked for). */
void session_would_block(struct session *s, const struct store_range *in_use);
/* WIRE_GRANTED, sure until until_ns of the keeper's clock. The question goes on: the session has a pin. */
void session_grant(struct session *s, int64_t until_ns, uint64_t fence);

/* Has the peer an answer that it has not read? Then none with a descriptor should follow: the kernel bounds how many of these
 * the keeper may have on their way, and those to other users would not arrive. */
bool session_has_unread(const struct session *s);

/* Sends the first lock that the program has from this byte on. One at a time, since a message may not have room for
 * all. */
void session_tell_before(struct session *s, int64_t from);
/* Refuses a peer that gets no session, and counts that. may_mend: as for session_refuse_call(). */
void session_turn_away(struct keeper *k, int to, enum refusal refusal, const char *why, bool may_mend);

#endif
