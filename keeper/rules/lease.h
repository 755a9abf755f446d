/*
 * The life of one lease, as a table: (state, event) gives the next state and what is to be done. Pure: no
 * I/O, no clock, no memory; keeper/leases/act.c does what it says.
 *
 *   ASKING ----granted----> OPEN <----stopped---- STANDING <----stands---- TAKEN_UP, UNSURE, FORGOTTEN
 *     |                      |  ^
 *  unwanted       recalled / |  | in use, and
 *     |           asked /    v  | nobody waits
 *     |           lingered DRAINING --drained--> PROBING --in use, recalled--> WAITING
 *     |                      ^                      |  \                         |
 *     |                      |     stopped          |   `--needed--> STOPPING <--+ needed
 *     |                      `----------------------+-------------------'        |
 *     v                                    free     v     shared                 v
 *  RELEASING <--------------------------------------+-----------> SHRINKING --shrunk--> OPEN
 *     `--released--> ENDED
 *
 *   an operator takes it away (breaking.h):
 *   OPEN, DRAINING, PROBING, WAITING, STOPPING --break--> BREAKING --doomed--> ENDING --bereft--> RELEASING
 *                                          DRAINING <--spared--'
 *
 *   ASKING --gone--> RELEASING: granted, and lost before this host heard of it (redis_key)
 *   from every state that is a lease:  expired ----> UNSURE       forgotten ----> FORGOTTEN
 *   in both orders: the lease is lost  UNSURE --forgotten--> ENDED    FORGOTTEN --expired--> ENDED
 *
 * Closed to newcomers from DRAINING on. DRAINING: pins have not ended. PROBING: a probe asks the kernel whether a
 * process has the lock. WAITING: a process has it, and the probe waits for its end. STOPPING: the probe was told to
 * stop, since a caller that already has something under the lease must be let in.
 *
 * BREAKING: closed to all callers, also to those that have something under it, so that no new holder comes; until the
 * last pin has ended, and it is known which processes hold the lock. ENDING: the slot in the table says "lost", and the
 * parent ends the holders. The store still has the lease, so no other host gets it before all of them are dead. Only
 * then is it released. If the keeper dies meanwhile, the parent goes on, and the next keeper does not know the token: it
 * releases it when another host wants it.
 *
 * Four states are unsure (lease_is_unsure()): the store has to say that the lease stands. They differ in what a loss of
 * the store's memory means. Before the host's deadline no other host can have had the lease, so it is put back
 * (TAKEN_UP, STANDING; FORGOTTEN waits for it). Past the deadline nobody can tell which host had it since the store
 * lost its memory: then it is lost (UNSURE; FORGOTTEN when the deadline passes). STANDING: the store has said so,
 * and a probe from before has not ended yet; over an open lease none may run.
 *
 * Why a lease is never given back while a local process relies on it (promise 2): a process relies on a kernel lock
 * only if it took it while it had a pin, and before the pin's end. Pins are given in OPEN and DRAINING only, and a
 * lease enters PROBING only after the last pin has ended. So a process that relies on the lock took it before the probe
 * asked, and the probe finds the lock taken. A process that takes the kernel lock after the probe has looked has no
 * pin, or finds that its pin is over: it asks again before it relies on the lock. So the probe need not hold anything:
 * it lets go of what it took before it answers. And in WAITING its thread may send the release itself, which is what
 * "free" leads to (keeper/leases/early.c).
 *
 * A request that was sent may be executed at any later time: a server that hung goes on with requests from connections
 * that were given up long ago. So a lease that was to be released never opens again, and one that was to be shrunk
 * never becomes an exclusive one again, whatever the store says of it now: it is shrunk once more.
 */
#ifndef DFLOCK_KEEPER_LEASE_H
#define DFLOCK_KEEPER_LEASE_H

#include <stdbool.h>

enum lease_state {
	LEASE_ASKING,    /* acquire sent, or queued in the store */
	LEASE_OPEN,      /* open: callers are granted */
	LEASE_DRAINING,  /* closed; pins have not ended */
	LEASE_PROBING,   /* closed; the kernel is being asked */
	LEASE_WAITING,   /* closed and recalled; in use; the probe waits */
	LEASE_STOPPING,  /* closed; the probe was told to stop */
	LEASE_BREAKING,  /* closed to all; an operator takes it away: until its holders are known */
	LEASE_ENDING,    /* its holders are being ended; the store still has it */
	LEASE_SHRINKING, /* shrink sent */
	LEASE_RELEASING, /* release sent */
	LEASE_TAKEN_UP, /* closed; of an earlier keeper, before its deadline: until the store says that the token stands */
	LEASE_UNSURE,    /* closed; the host's deadline has passed: ditto */
	LEASE_FORGOTTEN, /* closed; the store lost its memory before the deadline: until it is put back */
	LEASE_STANDING,  /* closed; the store says that it stands: until no probe runs */
	LEASE_ENDED,
	LEASE_STATES
};

enum lease_cue {
	LEASE_CUE_GRANTED,    /* the store granted it */
	LEASE_CUE_UNSENT,     /* the request could not even be sent */
	LEASE_CUE_UNWANTED,   /* no caller waits for it any more */
	LEASE_CUE_RECALLED,   /* another host waits for it */
	LEASE_CUE_ASKED,      /* another host asks whether it is in use */
	LEASE_CUE_LINGERED,   /* no caller asked for it for linger_ms */
	LEASE_CUE_DRAINED,    /* the last pin has ended */
	LEASE_CUE_FREE,       /* the probe found that no process has the kernel lock */
	LEASE_CUE_SHARED,     /* the probe found that no process has it exclusively */
	LEASE_CUE_IN_USE,     /* a process has it, and another host waits for the lease */
	LEASE_CUE_KEPT,       /* a process has it, and no host waits */
	LEASE_CUE_NEEDED,     /* a caller that already has something under it wants more */
	LEASE_CUE_STOPPED,    /* the probe stopped without the kernel lock, or none runs */
	LEASE_CUE_BREAK,      /* an operator takes it away */
	LEASE_CUE_SPARED,     /* ... but it stays: a holder may not or cannot be ended */
	LEASE_CUE_DOOMED,     /* ... and its holders are to be ended: no pin is left */
	LEASE_CUE_BEREFT,     /* ... and the parent has ended them */
	LEASE_CUE_SUPERSEDED, /* another lease of this host covers it */
	LEASE_CUE_RELEASED,   /* the store acknowledged the release */
	LEASE_CUE_SHRUNK,     /* the store acknowledged the shrink */
	LEASE_CUE_UP,         /* the store is reachable again: what was under way may be lost */
	LEASE_CUE_EXPIRED,    /* the host's deadline has passed */
	LEASE_CUE_STANDS,     /* the store says that token and fence stand, or has it back */
	LEASE_CUE_UNSHRUNK,   /* ... in another mode: exclusive, though it was to be shrunk */
	LEASE_CUE_GONE,       /* the store says that they do not stand */
	LEASE_CUE_FORGOTTEN, /* the store lost its memory; raised after LEASE_CUE_EXPIRED if the deadline has passed, too */
	LEASE_EVENTS
};

/* What to do, in this order. */
enum lease_action {
	LEASE_DO_STOP_PROBE = 1 << 0, /* tell the probe to stop (LEASE_CUE_STOPPED, _FREE or _SHARED follows) */
	LEASE_DO_SHARE = 1 << 1,      /* its mode is shared from now on, in the table of leases, too */
	LEASE_DO_RETURN = 1 << 2,     /* it goes back: the table says so before a release is sent */
	LEASE_DO_ACQUIRE = 1 << 3,    /* send acquire with its token (again) */
	LEASE_DO_RELEASE = 1 << 4,    /* send release */
	LEASE_DO_SHRINK = 1 << 5,     /* send shrink */
	LEASE_DO_CONFIRM = 1 << 6, /* ask whether token and fence stand, or put it back if the store has forgotten it */
	LEASE_DO_TELL_IN_USE = 1 << 7,  /* answer the hosts that asked */
	LEASE_DO_LOST = 1 << 8,         /* report: it was lost */
	LEASE_DO_OPEN = 1 << 9,         /* it is open: a recall that is not served yet closes it again */
	LEASE_DO_SERVE = 1 << 10,       /* look again at the callers of this lock */
	LEASE_DO_CLOSE = 1 << 11,       /* LEASE_CUE_DRAINED when there are no pins */
	LEASE_DO_PROBE = 1 << 12,       /* start a probe */
	LEASE_DO_AWAIT_PROBE = 1 << 13, /* LEASE_CUE_STOPPED when no probe runs */
};

struct lease_step {
	enum lease_state next;
	unsigned actions; /* of enum lease_action */
};

/* Total: every pair has an answer; an event that means nothing in a state leaves it as it is, with no action. */
struct lease_step lease_step(enum lease_state state, enum lease_cue event);

/* For people and JSON. */
const char *lease_state_name(enum lease_state state);
const char *lease_cue_name(enum lease_cue event);

/* Does the store take this for a lease of ours (as far as we know), under which programs may hold locks? */
bool lease_is_ours(enum lease_state state);
/* ... and must it be asked first whether it stands? */
bool lease_is_unsure(enum lease_state state);

#endif
