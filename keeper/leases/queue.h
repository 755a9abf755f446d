/*
 * What has happened and still waits to be handled: events of leases, and news for callers. Loop only.
 *
 * An input is one answer of the store, one message, one question, one answer of a probe or a worker, or one timer. The
 * function that takes it reads what it needs, raises events, and calls queue_settle() as its last act. So all
 * consequences of an input have happened before the next input is taken. No function reads the state of a lease after
 * it has raised an event for it: queue.c says what holds in between.
 *
 * Only the reason of a refusal needs memory, so no event is lost when there is none.
 */
#ifndef DFLOCK_KEEPER_QUEUE_H
#define DFLOCK_KEEPER_QUEUE_H

#include <stdbool.h>

#include "keeper/rules/lease.h"
#include "store/store.h"

struct keeper;
struct lease;
struct member;
struct store_message;
struct waiter;

/* Part of struct lease: one for each kind of event, and one for each of what waits until no event does. */
struct queue_event {
	struct lease *lease;
	struct queue_event *prev, *next; /* of its list in struct queue; prev is NULL: it does not wait */
};
enum { QUEUE_IN_USE = LEASE_EVENTS, QUEUE_OBEY, QUEUE_EVENTS };

/* News for callers that concern no single lease. */
enum queue_store {
	QUEUE_STORE_TRIED = 1 << 0, /* a connection stood, or failed, for the first time */
	QUEUE_STORE_DOWN = 1 << 1,
};

/* What the queue calls in act.c. */
struct queue_work {
	/* The lease's timer ran out: an input. */
	void (*timer)(struct lease *lease);
	/* Runs the lease's step. */
	void (*step)(struct lease *lease, enum lease_cue event);
	/* No event waits: sends requests that must not be sent earlier. Raises nothing. */
	void (*send)(struct keeper *k);
	/* All callers have been told their news: may close a lease that another host wants. */
	void (*obey)(struct lease *lease);
	/* Nothing waits: frees what has ended. Returns how many leases that were. */
	unsigned (*reap)(struct keeper *k);
};

/* What the queue calls in callers/. Each is called when no event waits, and may raise events. */
struct queue_news {
	void (*told)(struct waiter *waiter, unsigned news, const char *why); /* waiters.h */
	void (*in_use)(const struct lease *lease);                           /* by a program of this host */
	void (*store)(struct member *m, enum queue_store what);
	void (*leases_freed)(struct keeper *k);
	/* A chase has come (store message). Called at once; answers nobody. */
	void (*chase)(struct keeper *k, const struct store_message *message);
	/* What became of a lease that was to be taken away (breaking.h): a store message; of this host's own: holder is "". */
	void (*broken)(struct keeper *k, const struct store_message *message);
	/* Another host asks which processes here hold a lock, or answers such a question of this host. Called at once. */
	void (*who)(struct member *m, const struct store_message *message);
};

enum queue_state {
	QUEUE_IDLE, /* between two inputs */
	QUEUE_SETTLING,
	QUEUE_STOPPED, /* for good */
};

/* Part of struct keeper. */
struct queue {
	const struct queue_work *work;
	const struct queue_news *news;
	struct queue_event *events;
	struct waiter *told;         /* waiters with news */
	struct queue_event *in_use;  /* leases that were found in use */
	struct queue_event *obeying; /* leases that obey() must look at */
	bool store;                  /* a member has something to tell */
	enum queue_state state;
};

/* Something happened to the lease: queue_settle() runs its step, after those of events that were raised earlier. An
 * event that waits already is not raised again. */
void queue_raise(struct lease *lease, enum lease_cue event);
/* The same for every lease in this store. */
void queue_raise_all(struct member *m, enum lease_cue event);

/* News for one caller: adds these bits (waiters.h) to those that it was not told so far. */
void queue_tell(struct waiter *waiter, unsigned news);
/* The waiter does not wait any more. */
void queue_untell(struct waiter *waiter);
/* A program of this host uses the lease. */
void queue_tell_in_use(struct lease *lease);
void queue_tell_store(struct member *m, enum queue_store what);

/* obey() will look at the lease, after all callers with news have been told. */
void queue_obey(struct lease *lease);

/* The last act of every input. A call from inside queue_settle() does nothing. */
void queue_settle(struct keeper *k);
/* The keeper ends: queue_settle() does nothing any more. */
void queue_stop(struct keeper *k);

#endif
