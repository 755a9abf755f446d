/* What fronts.c, readers.c and away.c share, and nobody else includes: see fronts.h. */
#ifndef DFLOCK_KEEPER_FRONTS_INSIDE_H
#define DFLOCK_KEEPER_FRONTS_INSIDE_H

#include "keeper/fronts/front.h"
#include "keeper/fronts/fronts.h"

#define FRONTS_SLOW_MS  5000  /* a caller is told that its file's mount hangs */
#define FRONTS_BUSY_MS  20    /* a front that takes longer is not waited for if another can be started */
#define FRONTS_LOOK_MS  500   /* between two looks at those that are busy */
#define FRONTS_QUEUE_MS 9000  /* nobody reads it: longer than it takes to know which devices hang */
#define FRONTS_HUNG_MS  10000 /* after that long a device that hung is tried again */
#define FRONTS_IDLE_MS  5000  /* a front that nobody needs is ended */

struct unsent {
	struct front_ask ask;
	struct unsent *prev, *next;
};

struct grave {
	int fd; /* the connection; of a pit: the end to be closed */
	int in; /* of a pit: the other end; -1: it is none */
	struct grave *prev, *next;
};

struct front {
	struct fronts *fronts;
	struct front_user *user;
	uv_poll_t poll;
	int fd;
	bool busy;    /* has not said FRONT_READY */
	bool ending;  /* its input has ended */
	bool awaits;  /* FRONT_GIVE or FRONT_DROP */
	bool held;    /* ... and will yet be told: fronts_hold() */
	bool reading; /* what the caller's process holds: that may take long, and no file system is asked */
	bool settled; /* keeps files of `dev` */
	uint64_t dev; /* known while it is settled, or busy with a file that is not local */
	int64_t since_ns;
	struct session *session; /* whose question it has; NULL: nobody waits for it */
	struct away *giving;     /* what it passes on */
	fronts_kept_cb *given;
	struct away *away; /* settled: what it has */
	struct away_probe *probes;
	unsigned looks; /* of these: away_look() */
	struct unsent *unsent;
	struct front *prev, *next;
};

struct front_user {
	struct fronts *all;
	uid_t uid;
	struct front *fronts;
	unsigned readers, keepers;
	struct session *queue;
	struct grave *graves;
	unsigned grave_count;
	struct {
		uint64_t dev;
		int64_t seen_ns;
	} hung[FRONT_MAX_HUNG]; /* when a front was last seen to hang on it */
	UT_hash_handle hh;
};

struct fronts {
	struct keeper *k;
	int door;
	struct front_user *users;
	unsigned count;
	uint64_t last_id;
	uv_timer_t timer;
	char buffer[FRONT_ANSWER_MAX] __attribute__((aligned(16)));
};

struct away {
	struct front *front;
	uint64_t id;
	struct away **owner;
	struct away *prev, *next;
};

struct away_probe {
	struct front *front;
	uint64_t id;
	bool wait, told;
	probe_cb *cb;            /* a probe; else NULL */
	away_look_cb *way;       /* away_look() */
	void *arg;               /* of cb, or way */
	struct session *session; /* fronts_test_shared(): for whom; NULL: nobody any more */
	fronts_shared_cb *shared;
	UT_hash_handle hh; /* front->probes */
};

/* --- fronts.c --- */

/* NULL: no memory. */
struct front_user *front_user_get(struct fronts *fronts, uid_t uid);
/* Starts a process. settled: to keep files; else to read questions. NULL: there are too many, or it cannot be started.
 */
struct front *front_new(struct front_user *user, bool settled);
/* Tells it to end; it counts until it has. */
void front_end(struct front *front);
/* 0; -errno: it ends, or hangs. */
int front_tell(struct front *front, const struct front_ask *ask, int fd);
void fronts_look_in(struct fronts *fronts, uint64_t ms);
/* What came for s while a front read for it is read next. */
void fronts_receive_again(struct session *s);
/* It has a description that it was not told to pass on: it closes that. */
void front_drop(struct front *front);

/* --- readers.c --- */

/* If it hangs, the device is noted. */
void front_note_hung(struct front *front);
/* Refuses the questions that no front has read for FRONTS_QUEUE_MS. */
void fronts_refuse_old(struct front_user *user);
/* Gives the user's idle fronts what there is to do. */
void fronts_serve(struct front_user *user);

/* --- away.c --- */

/* To a keeping front: in order, and not lost while that hangs. */
void front_tell_in_order(struct front *front, const struct front_ask *ask);
/* Again what it did not take. True: nothing is left. */
bool front_send_unsent(struct front *front);
/* The keeper ends. */
void away_free_probes(struct front *front);
/* The front has ended, with what it kept. */
void away_lose(struct front *front);
void away_given(struct front *front, const struct front_answer *a);
void away_probed(struct front *front, const struct front_answer *a);

#endif
