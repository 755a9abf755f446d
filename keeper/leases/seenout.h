/*
 * The calls under way (keeper/guard/underway.h) at work: noted before a grant, and seen out of the kernel when a lease is wanted
 * back.
 *
 * Why no two hosts can have the lock. A thread of the net takes the kernel lock at some moment after its supervisor said
 * "continue", which the kernel obeys only while the thread is in that call. The supervisor says it after the grant, and the
 * entry was there before the grant. While there is an entry, the lease counts as pinned (waiters_are_pinned()): it neither goes
 * back nor is it shared, and no probe runs. The entry ends in two ways only: the thread was seen out of the call (seeout.h), or it
 * made a later call, which it cannot do from inside the first one. In both cases the thread has the kernel lock or will not have
 * it, and the probe that comes after that tells which.
 *
 * A question of a supervisor that died may be read after the question of the one that followed it. It has the number of the same
 * call, or of an earlier one, and neither ends the entry (underway_begin()).
 *
 * No host waits for ever, unless the kernel keeps a thread for ever: a thread that waits in the kernel for a local holder is
 * called back by ptrace, and its next question waits until the probe has said whether the lease can go (calledback.c). A call
 * that was granted, and is asked about again, is granted again even if the lease is closed: the lease cannot go back before this call has
 * ended.
 *
 * Loop only.
 */
#ifndef DFLOCK_KEEPER_SEENOUT_H
#define DFLOCK_KEEPER_SEENOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "keeper/guard/underway.h"
#include "keeper/kernel/seeout.h"
#include "store/store.h"

struct keeper;
struct lease;
struct lock;
struct onbehalf;
struct seeouts;

/*
 * --- calledback.c ---
 *
 * Threads that were called back out of a lock call in which they slept: behind a local holder, as a rule. Such a call begins
 * anew, and its next question says what is to come of it.
 *
 *   - It keeps its place: it had been granted before the other host asked. So it waits until the probe has said whether a local process
 *     has the lock, and if so, it goes on waiting in the kernel, as on one kernel. If not, the lease goes back, and it queues behind the
 *     other host.
 *   - It is not called back again at once: the answer would be the same. The pause doubles each time, up to CALLEDBACK_MAX_MS. Then it is,
 *     since more may be wanted of the lease meanwhile, or less be in use.
 *   - All have to be out at one time for a probe. So pauses end at the multiples of their length by the clock, where the shorter ones end,
 *     too: those who were called back at different times are called back together.
 *
 * Pure memory: time is an argument. What is forgotten for want of room is called back, and queued, as if it were for the first time.
 */
#define CALLEDBACK_THREADS 64
#define CALLEDBACK_MIN_MS  20
#define CALLEDBACK_MAX_MS  320

/* All zero: none. Times are those of clock_now_ns(). */
struct calledback {
	struct calledback_one {
		struct underway_call call;
		int64_t at_ns, pause_ns;
		bool asked; /* its next question has come */
	} all[CALLEDBACK_THREADS];
};

/* The thread was called back out of this call. */
void calledback_note(struct calledback *calledback, const struct underway_call *call, int64_t now_ns);
/* Is it too early to call this thread back, out of a call for the same lock? */
bool calledback_lately(const struct calledback *calledback, const struct underway_call *call, int64_t now_ns);
/* Is this question (its number does not count) the one of the call that begins anew? True once for each calledback_note(). */
bool calledback_asks(struct calledback *calledback, const struct underway_call *call);

/* All entries, and those that have ended while a thread looks after them. */
#define SEENOUT_WANTED (UNDERWAY_CALLS + SEEOUT_MAX)

/* Part of struct keeper. */
struct seenout {
	struct seeouts *seeouts;
	void (*unpinned)(struct lock *lock);
	uv_timer_t rest; /* active while there are entries */
	uint64_t rest_ms;
	uv_timer_t again; /* active while there are wanted entries that no thread sees out */
	/* The entries, in no order. An entry that has ended since is forgotten when its answer comes. */
	struct seenout_wanted {
		struct underway_call call;
		size_t at; /* of underway_next() */
		bool wanted, running;
		bool gently;       /* nobody waits for it: only if that disturbs no thread */
		int64_t since_ns;  /* since when another host, or an operator, waits for it */
		bool asked_gently; /* ... when it was started */
	} wanted[SEENOUT_WANTED];
	struct calledback called_back;
	uint16_t places[UNDERWAY_CALLS]; /* where the entry with this index was put last */
	size_t last_place;               /* that was free */
	size_t first;                    /* whose turn it is */
	bool left;                       /* some found no place among the threads */
	int64_t tidy_ns;                 /* not before */
	uint64_t seen, refused;          /* since the start: threads that were seen out; that could not be */
};

/* unpinned: called for a lock that a call under way does not keep from its leases any more (waiters_unpinned()). 0 or -errno. */
int seenout_start(struct keeper *k, void (*unpinned)(struct lock *lock));
void seenout_stop(struct keeper *k);

/* How many entries there are. */
size_t seenout_under_way(const struct keeper *k);

/*
 * A question on behalf of this thread has come: ends the entries of its earlier calls. False: the question is of an earlier call than
 * one that was granted; it must not be answered. *again: this very call was granted before, and its supervisor died since, or was
 * too late.
 */
bool seenout_begin(struct keeper *k, const struct onbehalf *who, uint64_t number, bool *again);
/* Does this question begin a call anew, for the same range of the lock, out of which the thread was called back? Once for each. */
bool seenout_called_back(const struct lock *lock, const struct store_range *range, const struct onbehalf *who);
/* Before a grant to this thread. 0; -ENOSPC: there is no room for another call; -EDQUOT: for another call of this user. */
int seenout_note(struct lock *lock, const struct store_range *range, const struct onbehalf *who, uint64_t number);

/* The calls that keep a lease which is to go back, or to be taken away: *next is 0 for the first one. False: no more, or nobody wants the
 * lease. Most entries are of calls that have ended, but while such a lease is here, these were not seen to. */
bool seenout_next_keeping(const struct lease *lease, size_t *next, struct underway_call *out);

/*
 * Is a call on the lock under way in this range or a part of it? Then its thread is seen out, and unpinned() is called when that is
 * done. gently: no thread is disturbed for it, and some may not be seen out.
 */
bool seenout_is_wanted(const struct lock *lock, const struct store_range *range, bool gently);

#endif
