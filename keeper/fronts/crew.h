/*
 * The fronts of each user, as the keeper has them: start, tell, end. Internal to this room: the others' header is
 * fronts.h. Loop only.
 *
 *   frontmsg.h              what keeper and fronts tell each other
 *   front.c                 the processes' own code; door.h forks them
 *   crew.h                  the processes of each user; which of them hang, and the limits; connections that wait to be closed
 *   away.h                  files that fronts keep
 *   fronts.h                questions: which front reads which connection; what fronts say; the timer
 *
 * Each group of fields below belongs to one module; only that module writes it. Fields without a module's name are
 * crew.c's. Exception: what a front does (busy, since_ns, dev, awaits) is set by the module that gave it the work.
 *
 * Nothing here waits: every socket to a front is non-blocking. Every front counts from its start until its socket says
 * that the process has ended. A process that hangs has not ended, so it counts.
 */
#ifndef DFLOCK_KEEPER_CREW_H
#define DFLOCK_KEEPER_CREW_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uthash.h>
#include <uv.h>

#include "keeper/fronts/fronts.h"
#include "keeper/fronts/frontmsg.h"

#define FRONTS_ALL 256 /* of all users together */

struct away;
struct away_probe;
struct fronts_news;
struct grave;
struct unsent;

struct front {
	struct fronts *fronts;
	struct front_user *user;
	uv_poll_t poll;
	int fd;
	bool ending;      /* its input has ended */
	bool settled;     /* keeps files of `dev` */
	bool busy;        /* has not said FRONT_READY */
	int64_t since_ns; /* busy: since when; else when it was needed last */
	uint64_t dev;     /* known while it is settled, or busy with a file that is not local */
	struct front *prev, *next;

	struct front_connection *connection; /* whose question it has; NULL: no connection waits */
	bool awaits; /* has a description, and waits for FRONT_GIVE (away.c) or FRONT_DROP (fronts.c) */

	struct {            /* fronts.c */
		bool held;  /* awaits is set, and the front is told later: fronts_hold() */
		bool lists; /* reads what the caller's process has: that may take long, and asks no file system */
	} reading;

	struct {                     /* away.c */
		struct away *giving; /* passes this on */
		void (*given)(struct front_connection *connection, struct away *away, const char *why);
		struct away *all; /* what it keeps */
		struct away_probe *probes;
		unsigned looks; /* of these: away_look() */
		struct unsent *unsent;
	} away;
};

struct front_user {
	struct fronts *all;
	uid_t uid;
	struct front *fronts;
	unsigned readers, keepers; /* that read questions; that keep files */
	UT_hash_handle hh;

	struct front_connection *queue; /* fronts.c: connections that no front reads, the oldest first */

	struct {
		struct grave *all;
		unsigned count;
	} graves;

	struct { /* devices that a front was seen to hang on, and when last; 0: none */
		uint64_t dev;
		int64_t seen_ns;
	} hung[FRONT_MAX_HUNG];
};

/* What the upper modules of this room do with news of the processes. */
struct crew_news {
	void (*said)(struct front *front, const struct front_answer *answer, const struct own_lock *before, int fd);
	void (*gone)(struct front *front);   /* the process has ended: crew_unlink(), crew_close() */
	void (*look)(struct fronts *fronts); /* crew_look_in() */
};

struct fronts {
	uv_loop_t *loop;
	int door;
	const struct fronts_news *news; /* fronts.h */
	const struct crew_news *crew;
	struct front_user *users;
	unsigned count;              /* of all fronts */
	unsigned in_pits, pits_hold; /* connections in all pits; how many these may hold */
	uint64_t last_id;            /* away.c */
	uv_timer_t timer;
	char buffer[FRONT_ANSWER_MAX] __attribute__((aligned(16)));
};

/* Finds or makes the crew of the user. NULL: no memory. */
struct front_user *crew_user(struct fronts *fronts, uid_t uid);
/* Frees the user's crew, if nothing is left in it. */
void crew_put_user(struct front_user *user);

/* Starts a process. settled: it will keep files; else it reads questions. NULL: the user has too many fronts, or the
 * process cannot be started. */
struct front *crew_start(struct front_user *user, bool settled);
/* Tells it to end; it counts until it has ended. */
void crew_end(struct front *front);
/* For a front that has ended, or that the keeper leaves behind: the first takes it out of its user's list, the second
 * closes its socket. The loop frees its memory later. */
void crew_unlink(struct front *front);
void crew_close(struct front *front);

/* Gives the front a connection's question; takes it away again, and returns the connection, or NULL. */
void crew_take(struct front *front, struct front_connection *connection);
struct front_connection *crew_let_go(struct front *front);

/* Sends a message, with a copy of fd unless that is -1. 0; -errno: the front ends, or hangs. */
int crew_tell(struct front *front, const struct front_ask *ask, int fd);
/* The same for work that keeps the front busy until it says FRONT_READY. */
int crew_give_work(struct front *front, const struct front_ask *ask, int fd);

/* crew->look() is called within so many ms. */
void crew_look_in(struct fronts *fronts, uint64_t ms);

/*
 * Which fronts of a user hang, and what follows: the limits that keep one user's hanging file systems from delaying
 * another user. Pure but for the user's notes: memory alone, the time is an argument.
 *
 * A front hangs if it has worked on one thing for FRONTS_SLOW_MS. A user has a bounded number of fronts that read
 * questions, and a front that hangs counts until it has ended. The second front is started when the first does not
 * answer at once. More are started only when all hang, because then it is known on which devices, and files on these
 * devices are refused. So a mount that hangs takes two fronts and not all, unless even closing its files hangs.
 */
#define FRONTS_PER_USER 4     /* fronts that read questions; one more may be started to close connections */
#define FRONTS_SLOW_MS  5000  /* a caller is told that its file's mount hangs */
#define FRONTS_BUSY_MS  20    /* a front that takes longer is not waited for if another can be started */
#define FRONTS_HUNG_MS  10000 /* after that time a device that hung is tried again */

/* Is a grave the next work, if there is one? Many of them come before questions, since they take the keeper's descriptors. */
bool crew_buries_first(const struct front_user *user);
/* An idle front of the user, which may be given the next work; NULL: none. The last one is for graves alone. */
struct front *crew_find_idle(const struct front_user *user);
/* No front is idle: should another one be started? limit: how many fronts that read questions the user may have. */
bool crew_needs_another(const struct front_user *user, unsigned limit, int64_t now_ns);
/* Do so many of the user's fronts hang that no front will read a question? */
bool crew_all_hang(const struct front_user *user, int64_t now_ns);

/* If the front hangs, notes the device that it hangs on for its user; drops the oldest note. */
void crew_note_hung(struct front *front, int64_t now_ns);
/* Fills in, for a front, on which devices fronts of its user hang. */
void crew_tell_hung(const struct front_user *user, struct front_ask *ask, int64_t now_ns);

/*
 * Connections that wait to be closed by a front.
 *
 * The last close of a connection closes what is in its queue. So if a connection has something unread when nothing can
 * be added to it any more (shutdown), a front closes it; it waits in a grave until a front is free. The keeper closes
 * the others itself, nearly all. If all fronts of a user hang, its graves share a pit: they wait in the queue of one
 * socket, and so take few of the keeper's descriptors. Descriptors in a pit are in flight; the kernel allows each user
 * as many of these as its RLIMIT_NOFILE. All pits
 * together hold half of them at the most: a pit is given to a front in the same way.
 */
/* Takes over fd. Returns NULL if it closed fd. Else fd waits in a grave of this user, and a front of the user has
 * work. */
struct front_user *crew_bury(struct fronts *fronts, uid_t uid, int fd);
/* Gives the oldest grave to an idle front. 0, or -errno: the front ends, and the grave stays. */
int crew_give_grave(struct front *front);
/* The keeper ends: the door keeps the connections until it ends, too. */
void crew_leave_graves(struct front_user *user);

#endif
