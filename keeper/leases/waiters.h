/*
 * What leases must know of callers: which caller waits for which lease, and which pins have been given. A waiter is
 * part of a caller's session, which belongs to callers/; news for a waiter goes there (queue.h). Loop only.
 *
 * A pin is the keeper's word that no lease of the lock in this range is given back before pin_until_ns.
 */
#ifndef DFLOCK_KEEPER_WAITERS_H
#define DFLOCK_KEEPER_WAITERS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "store/store.h"

struct keeper;
struct lease;
struct lock;

/* What a waiter may be told. */
enum waiter_news {
	WAITER_SERVE = 1 << 0,      /* something changed: look whether it can be granted now */
	WAITER_QUEUED = 1 << 1,     /* the store has its lease in its queue */
	WAITER_IN_USE = 1 << 2,     /* a holder on another host has answered that it uses the lock */
	WAITER_REFUSED = 1 << 3,    /* its lease cannot be had; with the reason */
	WAITER_RESTING = 1 << 4,    /* the lock's name rests */
	WAITER_PIN_WANTED = 1 << 5, /* somebody waits for the end of its pin */
};

/* Why a lock call was refused, for counts; operators read the words in docs/operating.md. */
enum refusal {
	REFUSAL_STORE,   /* it is not there, or answers with an error */
	REFUSAL_GRACE,   /* it grants nothing new */
	REFUSAL_ROOM,    /* leases, ranges, descriptors, connections, memory */
	REFUSAL_FILE,    /* it cannot be looked at, or has no usable name */
	REFUSAL_RULE,    /* its rule forbids this call */
	REFUSAL_CONFIG,  /* the program goes by another configuration */
	REFUSAL_VERSION, /* ... or has a library of another version */
	REFUSAL_PROGRAM, /* the keeper cannot see the program: namespaces */
	REFUSALS
};

/* Part of struct keeper. A keeper that died may have given pins: until then every lease counts as pinned. */
struct old_pins {
	int64_t until_ns;
	uv_timer_t timer;
};

/* Waiting for a lease, for room and for the end of probes may come together: a lease that it joined is asked for while
 * another opens. So these are fields of their own, and no state. */
struct waiter {
	struct lock *lock;        /* NULL: it neither waits nor has a pin, and no other field counts */
	struct lease *lease;      /* the asking one that it waits for; NULL: none */
	struct store_range range; /* what it wants */
	uid_t uid;
	bool nonblocking;     /* constant, as the next: wants an answer now: LOCK_NB, a test */
	bool may_pass;        /* has record locks of the file: a kernel would let it pass others */
	bool needs_pin;       /* gets a pin when the probes in its range have ended; none starts before */
	bool roomless;        /* waits for room for another lease: room.c */
	bool rests;           /* the end of its connection is not noticed until it has been told WAITER_PIN_WANTED */
	int64_t pin_until_ns; /* 0: it has none */
	int64_t joined_ns;    /* since when it waits for its lease */
	uint64_t arrival;     /* its place among all that wait, as the store numbers them; 0: not known so far */
	unsigned news;        /* of enum waiter_news; 0: none waits to be told */
	enum refusal refusal; /* WAITER_REFUSED, as the next */
	char *why;            /* NULL: there was no memory for it */
	struct waiter *prev, *next;           /* lock->waiters */
	struct waiter *told_prev, *told_next; /* queue.told: while it has news */
	struct waiter *room_prev, *room_next; /* room.roomless: while it is */
};

/* The waiter wants `waiter->range` of the lock, and has neither lease nor pin. Set range, uid, nonblocking and may_pass
 * before. */
void waiters_add(struct waiter *waiter, struct lock *lock);
/* The waiter was answered, or is gone: ends its pin, and gives up what it alone waited for. */
void waiters_remove(struct waiter *waiter);

/* The waiter waits for this asking lease from now on. */
void waiters_join(struct waiter *waiter, struct lease *lease);
/* The waiter does not wait for its lease any more; if no other waiter does, the lease is unwanted. */
void waiters_leave(struct waiter *waiter);
/* The lease is not asking any more: no waiter waits for it from now on. */
void waiters_detach(struct lease *lease);

/* Does any waiter wait for this asking lease; one that blocks; one that does not block? Is there one that may pass
 * others? */
bool waiters_exist(const struct lease *lease);
bool waiters_block(const struct lease *lease);
bool waiters_ask(const struct lease *lease);
bool waiters_may_pass(const struct lease *lease);

/* Is there a waiter, in this range or a part of it, that gets a pin when the probes there have ended? */
bool waiters_need_pin(const struct lock *lock, const struct store_range *range);
/* Is there a waiter, in this range or a part of it, that has a pin, or may an earlier keeper have given one there? Or is a call under way
 * there? Then its thread is seen out of it (seenout.h). waiters_rest_pinned(): the same, but no thread is disturbed for that. */
bool waiters_rest_pinned(const struct lock *lock, const struct store_range *range);
bool waiters_are_pinned(const struct lock *lock, const struct store_range *range);
/* A pin of the lock has ended, or is not needed any more: leases that wait for its end go on. */
void waiters_unpinned(struct lock *lock);

/* Tells all that wait for an asking lease: WAITER_IN_USE or WAITER_RESTING; or WAITER_QUEUED, which sets this arrival for those that had joined the lease when the store
 * was asked, and tells those that had none, or `again` all. */
void waiters_queued(struct lease *lease, int64_t asked_ns, uint64_t arrival, bool again);
void waiters_tell(struct lease *lease, unsigned news);
void waiters_refuse(struct lease *lease, enum refusal refusal, const char *why);
void waiters_refuse_nonblocking(struct lease *lease, enum refusal refusal, const char *why);
/* Tells WAITER_SERVE to all waiters of a lock, or of all locks. */
void waiters_serve(struct lock *lock);
void waiters_serve_all(struct keeper *k);

#endif
