/* The table of lease.h. A pair that is not named below stays as it is. */
#include "keeper/rules/lease.h"

#define STEP(state, act)                                                                                               \
	{                                                                                                              \
		.next = LEASE_##state, .actions = (act), .set = true                                                   \
	}
#define NOTHING 0

struct cell {
	enum lease_state next;
	unsigned actions;
	bool set;
};

#define RELEASE (LEASE_DO_RETURN | LEASE_DO_RELEASE)
#define SHRINK  (LEASE_DO_SHARE | LEASE_DO_SHRINK)
#define LOSE    (LEASE_DO_LOST | LEASE_DO_SERVE)
#define REOPEN  (LEASE_DO_OPEN | LEASE_DO_SERVE)

static const struct cell table[LEASE_STATES][LEASE_EVENTS] = {
	[LEASE_ASKING] =
		{
			[LEASE_EV_GRANTED] = STEP(HELD, REOPEN),
			[LEASE_EV_REFUSED] = STEP(RELEASING, RELEASE),
			[LEASE_EV_UNSENT] = STEP(ENDED, NOTHING),
			[LEASE_EV_UNWANTED] = STEP(RELEASING, RELEASE),
			/* Another host saw this host's token as a lease: the message that granted it was lost, or is
			 * late. */
			[LEASE_EV_RECALLED] = STEP(ASKING, LEASE_DO_ACQUIRE),
			[LEASE_EV_ASKED] = STEP(ASKING, LEASE_DO_ACQUIRE),
			[LEASE_EV_UP] = STEP(ASKING, LEASE_DO_ACQUIRE),
			[LEASE_EV_FORGOTTEN] = STEP(ASKING, LEASE_DO_ACQUIRE),
			/* It was granted, and this host has not heard of it: no caller was told. */
			[LEASE_EV_GONE] = STEP(RELEASING, RELEASE | LEASE_DO_SERVE),
		},
	[LEASE_HELD] =
		{
			[LEASE_EV_RECALLED] = STEP(DRAINING, LEASE_DO_CLOSE),
			[LEASE_EV_ASKED] = STEP(DRAINING, LEASE_DO_CLOSE),
			[LEASE_EV_LINGERED] = STEP(DRAINING, LEASE_DO_CLOSE),
			[LEASE_EV_BREAK] = STEP(BREAKING, NOTHING),
			[LEASE_EV_SUPERSEDED] = STEP(RELEASING, RELEASE),
			[LEASE_EV_EXPIRED] = STEP(UNSURE, LEASE_DO_CONFIRM),
			[LEASE_EV_FORGOTTEN] = STEP(FORGOTTEN, LEASE_DO_CONFIRM),
		},
	[LEASE_DRAINING] =
		{
			[LEASE_EV_DRAINED] = STEP(PROBING, LEASE_DO_PROBE),
			[LEASE_EV_BREAK] = STEP(BREAKING, NOTHING),
			[LEASE_EV_SUPERSEDED] = STEP(RELEASING, RELEASE),
			[LEASE_EV_EXPIRED] = STEP(UNSURE, LEASE_DO_CONFIRM),
			[LEASE_EV_FORGOTTEN] = STEP(FORGOTTEN, LEASE_DO_CONFIRM),
		},
	[LEASE_PROBING] =
		{
			[LEASE_EV_FREE] = STEP(RELEASING, RELEASE),
			[LEASE_EV_SHARED] = STEP(SHRINKING, SHRINK),
			[LEASE_EV_IN_USE] = STEP(WAITING, LEASE_DO_TELL_IN_USE | LEASE_DO_SERVE),
			[LEASE_EV_KEPT] = STEP(HELD, LEASE_DO_TELL_IN_USE | REOPEN),
			[LEASE_EV_STOPPED] = STEP(DRAINING, LEASE_DO_CLOSE),
			[LEASE_EV_NEEDED] = STEP(STOPPING, LEASE_DO_STOP_PROBE),
			[LEASE_EV_SUPERSEDED] = STEP(STOPPING, LEASE_DO_STOP_PROBE),
			[LEASE_EV_BREAK] = STEP(BREAKING, LEASE_DO_STOP_PROBE),
			[LEASE_EV_EXPIRED] = STEP(UNSURE, LEASE_DO_STOP_PROBE | LEASE_DO_CONFIRM),
			[LEASE_EV_FORGOTTEN] = STEP(FORGOTTEN, LEASE_DO_STOP_PROBE | LEASE_DO_CONFIRM),
		},
	[LEASE_WAITING] =
		{
			[LEASE_EV_FREE] = STEP(RELEASING, RELEASE),
			[LEASE_EV_SHARED] = STEP(SHRINKING, SHRINK),
			[LEASE_EV_STOPPED] = STEP(DRAINING, LEASE_DO_CLOSE),
			[LEASE_EV_RECALLED] = STEP(WAITING, LEASE_DO_TELL_IN_USE),
			[LEASE_EV_ASKED] = STEP(WAITING, LEASE_DO_TELL_IN_USE),
			[LEASE_EV_NEEDED] = STEP(STOPPING, LEASE_DO_STOP_PROBE),
			[LEASE_EV_SUPERSEDED] = STEP(STOPPING, LEASE_DO_STOP_PROBE),
			[LEASE_EV_BREAK] = STEP(BREAKING, LEASE_DO_STOP_PROBE),
			[LEASE_EV_EXPIRED] = STEP(UNSURE, LEASE_DO_STOP_PROBE | LEASE_DO_CONFIRM),
			[LEASE_EV_FORGOTTEN] = STEP(FORGOTTEN, LEASE_DO_STOP_PROBE | LEASE_DO_CONFIRM),
		},
	[LEASE_STOPPING] =
		{
			[LEASE_EV_FREE] = STEP(RELEASING, RELEASE),
			[LEASE_EV_SHARED] = STEP(SHRINKING, SHRINK),
			[LEASE_EV_STOPPED] = STEP(DRAINING, LEASE_DO_SERVE | LEASE_DO_CLOSE),
			[LEASE_EV_BREAK] = STEP(BREAKING, NOTHING),
			[LEASE_EV_EXPIRED] = STEP(UNSURE, LEASE_DO_CONFIRM),
			[LEASE_EV_FORGOTTEN] = STEP(FORGOTTEN, LEASE_DO_CONFIRM),
		},
	/* A loss of time or memory ends the attempt: the store may have given the lease to another host, and then its
	   holders end in any case. */
	[LEASE_BREAKING] =
		{
			[LEASE_EV_FREE] = STEP(RELEASING, RELEASE),
			[LEASE_EV_RECALLED] = STEP(BREAKING, LEASE_DO_TELL_IN_USE),
			[LEASE_EV_ASKED] = STEP(BREAKING, LEASE_DO_TELL_IN_USE),
			[LEASE_EV_SPARED] = STEP(DRAINING, LEASE_DO_SERVE | LEASE_DO_CLOSE),
			[LEASE_EV_DOOMED] = STEP(ENDING, LOSE),
			[LEASE_EV_EXPIRED] = STEP(UNSURE, LEASE_DO_CONFIRM),
			[LEASE_EV_FORGOTTEN] = STEP(FORGOTTEN, LEASE_DO_CONFIRM),
		},
	/* The parent has the slot, and ends the holders whatever the deadline or the store say. */
	[LEASE_ENDING] =
		{
			[LEASE_EV_BEREFT] = STEP(RELEASING, RELEASE),
		},
	[LEASE_SHRINKING] =
		{
			[LEASE_EV_SHRUNK] = STEP(HELD, REOPEN),
			[LEASE_EV_GONE] = STEP(ENDED, LOSE),
			[LEASE_EV_UP] = STEP(SHRINKING, SHRINK),
			[LEASE_EV_EXPIRED] = STEP(UNSURE, LEASE_DO_CONFIRM),
			[LEASE_EV_FORGOTTEN] = STEP(FORGOTTEN, LEASE_DO_CONFIRM),
		},
	[LEASE_RELEASING] =
		{
			[LEASE_EV_RELEASED] = STEP(ENDED, LEASE_DO_SERVE),
			[LEASE_EV_UP] = STEP(RELEASING, RELEASE),
			[LEASE_EV_FORGOTTEN] = STEP(ENDED, LEASE_DO_SERVE),
		},
	/* Those that are unsure are not superseded: if one has gone, its holders must be stopped, whatever this host has
	   got since. */
	[LEASE_TAKEN_UP] =
		{
			[LEASE_EV_STANDS] = STEP(STANDING, LEASE_DO_AWAIT_PROBE),
			[LEASE_EV_UNSHRUNK] = STEP(SHRINKING, SHRINK),
			[LEASE_EV_GONE] = STEP(ENDED, LOSE),
			[LEASE_EV_UP] = STEP(TAKEN_UP, LEASE_DO_CONFIRM),
			[LEASE_EV_EXPIRED] =
				STEP(UNSURE, NOTHING), /* a question is under way, or waits for the store */
			[LEASE_EV_FORGOTTEN] = STEP(FORGOTTEN, LEASE_DO_CONFIRM),
		},
	[LEASE_UNSURE] =
		{
			[LEASE_EV_STANDS] = STEP(STANDING, LEASE_DO_AWAIT_PROBE),
			[LEASE_EV_UNSHRUNK] = STEP(SHRINKING, SHRINK),
			[LEASE_EV_GONE] = STEP(ENDED, LOSE),
			[LEASE_EV_UP] = STEP(UNSURE, LEASE_DO_CONFIRM),
			[LEASE_EV_FORGOTTEN] = STEP(ENDED, LOSE),
		},
	[LEASE_FORGOTTEN] =
		{
			[LEASE_EV_STANDS] = STEP(STANDING, LEASE_DO_AWAIT_PROBE),
			[LEASE_EV_UNSHRUNK] = STEP(SHRINKING, SHRINK),
			[LEASE_EV_GONE] = STEP(ENDED, LOSE),
			[LEASE_EV_UP] = STEP(FORGOTTEN, LEASE_DO_CONFIRM),
			[LEASE_EV_EXPIRED] = STEP(ENDED, LOSE),
			[LEASE_EV_FORGOTTEN] = STEP(FORGOTTEN, LEASE_DO_CONFIRM),
		},
	[LEASE_STANDING] =
		{
			[LEASE_EV_STOPPED] = STEP(HELD, REOPEN),
			[LEASE_EV_GONE] = STEP(ENDED, LOSE),
			[LEASE_EV_EXPIRED] = STEP(UNSURE, LEASE_DO_CONFIRM),
			[LEASE_EV_FORGOTTEN] = STEP(FORGOTTEN, LEASE_DO_CONFIRM),
		},
};

struct lease_step lease_step(enum lease_state state, enum lease_event event)
{
	const struct cell *cell = &table[state][event]; /* mutant: lease-step */

	if (!cell->set)
		return (struct lease_step){.next = state, .actions = NOTHING};
	return (struct lease_step){.next = cell->next, .actions = cell->actions};
}

const char *lease_state_name(enum lease_state state)
{
	static const char *const names[LEASE_STATES] = {
		[LEASE_ASKING] = "asking",       [LEASE_HELD] = "held",         [LEASE_DRAINING] = "draining",
		[LEASE_PROBING] = "probing",     [LEASE_WAITING] = "waiting",   [LEASE_STOPPING] = "stopping",
		[LEASE_BREAKING] = "breaking",   [LEASE_ENDING] = "ending",     [LEASE_SHRINKING] = "shrinking",
		[LEASE_RELEASING] = "releasing", [LEASE_TAKEN_UP] = "taken up", [LEASE_UNSURE] = "unsure",
		[LEASE_FORGOTTEN] = "forgotten", [LEASE_STANDING] = "standing", [LEASE_ENDED] = "ended",
	};

	return names[state];
}

const char *lease_event_name(enum lease_event event)
{
	static const char *const names[LEASE_EVENTS] = {
		[LEASE_EV_GRANTED] = "granted",
		[LEASE_EV_REFUSED] = "refused",
		[LEASE_EV_UNSENT] = "unsent",
		[LEASE_EV_UNWANTED] = "unwanted",
		[LEASE_EV_RECALLED] = "recalled",
		[LEASE_EV_ASKED] = "asked",
		[LEASE_EV_LINGERED] = "lingered",
		[LEASE_EV_DRAINED] = "drained",
		[LEASE_EV_FREE] = "free",
		[LEASE_EV_SHARED] = "shared",
		[LEASE_EV_IN_USE] = "in use",
		[LEASE_EV_KEPT] = "kept",
		[LEASE_EV_NEEDED] = "needed",
		[LEASE_EV_STOPPED] = "stopped",
		[LEASE_EV_BREAK] = "break",
		[LEASE_EV_SPARED] = "spared",
		[LEASE_EV_DOOMED] = "doomed",
		[LEASE_EV_BEREFT] = "bereft",
		[LEASE_EV_SUPERSEDED] = "superseded",
		[LEASE_EV_RELEASED] = "released",
		[LEASE_EV_SHRUNK] = "shrunk",
		[LEASE_EV_UP] = "up",
		[LEASE_EV_EXPIRED] = "expired",
		[LEASE_EV_STANDS] = "stands",
		[LEASE_EV_UNSHRUNK] = "unshrunk",
		[LEASE_EV_GONE] = "gone",
		[LEASE_EV_FORGOTTEN] = "forgotten",
	};

	return names[event];
}

bool lease_is_ours(enum lease_state state)
{
	return state != LEASE_ASKING && state != LEASE_RELEASING && state != LEASE_ENDING && state != LEASE_ENDED;
}

bool lease_is_unsure(enum lease_state state)
{
	return state == LEASE_TAKEN_UP || state == LEASE_UNSURE || state == LEASE_FORGOTTEN || state == LEASE_STANDING;
}
