/*
 * What has happened and was not dealt with yet: events of leases, and news for callers. Loop only.
 *
 * An input is one answer of the store, one message, one question, one answer of a probe or a worker, or one timer. The
 * function that takes it reads what it needs, raises events, and calls queue_settle() as its last act. So whatever an
 * input leads to has happened before the next input is looked at. No function reads the state of a lease after it has
 * raised an event for it: queue.c says what holds in between.
 *
 * Nothing here allocates memory but the reason of a refusal, so nothing is lost when there is none.
 */
#ifndef DFLOCK_KEEPER_QUEUE_H
#define DFLOCK_KEEPER_QUEUE_H

#include <stdbool.h>

#include "keeper/rules/lease.h"

struct asker;
struct keeper;
struct lease;
struct store_message;
struct waiter;

/* Part of struct lease: one for each kind of event. */
struct queue_event {
	struct lease *lease;
	struct queue_event *prev, *next; /* queue.events; prev is NULL: it is not in the queue */
};

/* News for callers that concern no single lease. */
enum queue_store {
	QUEUE_STORE_TRIED = 1 << 0, /* for the first time a connection stood or failed */
	QUEUE_STORE_DOWN = 1 << 1,
};

/* What act.c does for the queue. */
struct queue_work {
	/* The lease's timer ran out: an input. */
	void (*timer)(struct lease *lease);
	/* Another host asks for a lease, and the kernel shows no lock in its way (inquiry.h): an input. */
	void (*asked)(struct lease *lease, const struct asker *asker);
	/* Runs the lease's step. */
	void (*step)(struct lease *lease, enum lease_event event);
	/* No event waits: sends what must not be sent before. Raises nothing. */
	void (*send)(struct keeper *k);
	/* All callers have been told: a lease that another host wants may be closed. */
	void (*obey)(struct lease *lease);
	/* Nothing waits: frees what has ended. How many leases that were. */
	unsigned (*reap)(struct keeper *k);
};

/* What callers/ does with news. Each is called when no event waits, and may raise events. */
struct queue_news {
	void (*told)(struct waiter *waiter, unsigned news, const char *why); /* waiters.h */
	void (*in_use)(const struct lease *lease);                           /* by a program of this host */
	void (*store)(struct keeper *k, enum queue_store what);
	void (*leases_freed)(struct keeper *k);
	/* A chase has come (store message). Called at once; answers nobody. */
	void (*chase)(struct keeper *k, const struct store_message *message);
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
	struct waiter *told;   /* those with news */
	struct lease *in_use;  /* found in use */
	struct lease *obeying; /* to be looked at by obey() */
	unsigned store;        /* of enum queue_store */
	enum queue_state state;
};

/* Something happened to the lease: its step is run by queue_settle(), after those of the events that were raised before.
 * An event that waits already is not raised again. */
void queue_raise(struct lease *lease, enum lease_event event);
/* The same for every lease of the keeper. */
void queue_raise_all(struct keeper *k, enum lease_event event);

/* News for one caller: these bits (waiters.h), besides those that it was not told yet. */
void queue_tell(struct waiter *waiter, unsigned news);
/* It does not wait any more. */
void queue_untell(struct waiter *waiter);
/* A program of this host uses the lease. */
void queue_tell_in_use(struct lease *lease);
void queue_tell_store(struct keeper *k, enum queue_store what);

/* obey() when the callers that have news have been told: they come first. */
void queue_obey(struct lease *lease);

/* The last act of every input. Inside of itself it does nothing. */
void queue_settle(struct keeper *k);
/* The keeper ends: nothing is done any more. */
void queue_stop(struct keeper *k);

#endif
