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
			[LEASE_CUE_GRANTED] = STEP(OPEN, REOPEN),
			[LEASE_CUE_UNSENT] = STEP(ENDED, NOTHING),
			[LEASE_CUE_UNWANTED] = STEP(RELEASING, RELEASE),
			/* Another host saw this host's token as a lease: the message that granted it was lost, or is
			 * late. */
			[LEASE_CUE_RECALLED] = STEP(ASKING, LEASE_DO_ACQUIRE),
			[LEASE_CUE_ASKED] = STEP(ASKING, LEASE_DO_ACQUIRE),
			[LEASE_CUE_UP] = STEP(ASKING, LEASE_DO_ACQUIRE),
			[LEASE_CUE_FORGOTTEN] = STEP(ASKING, LEASE_DO_ACQUIRE),
			/* It was granted, and this host has not heard of it: no caller was told. */
			[LEASE_CUE_GONE] = STEP(RELEASING, RELEASE | LEASE_DO_SERVE),
		},
	[LEASE_OPEN] =
		{
			[LEASE_CUE_RECALLED] = STEP(DRAINING, LEASE_DO_CLOSE),
			[LEASE_CUE_ASKED] = STEP(DRAINING, LEASE_DO_CLOSE),
			[LEASE_CUE_LINGERED] = STEP(DRAINING, LEASE_DO_CLOSE),
			[LEASE_CUE_BREAK] = STEP(BREAKING, NOTHING),
			[LEASE_CUE_SUPERSEDED] = STEP(RELEASING, RELEASE),
			[LEASE_CUE_EXPIRED] = STEP(UNSURE, LEASE_DO_CONFIRM),
			[LEASE_CUE_FORGOTTEN] = STEP(FORGOTTEN, LEASE_DO_CONFIRM),
		},
	[LEASE_DRAINING] =
		{
			[LEASE_CUE_DRAINED] = STEP(PROBING, LEASE_DO_PROBE),
			[LEASE_CUE_BREAK] = STEP(BREAKING, NOTHING),
			[LEASE_CUE_SUPERSEDED] = STEP(RELEASING, RELEASE),
			[LEASE_CUE_EXPIRED] = STEP(UNSURE, LEASE_DO_CONFIRM),
			[LEASE_CUE_FORGOTTEN] = STEP(FORGOTTEN, LEASE_DO_CONFIRM),
		},
	[LEASE_PROBING] =
		{
			[LEASE_CUE_FREE] = STEP(RELEASING, RELEASE),
			[LEASE_CUE_SHARED] = STEP(SHRINKING, SHRINK),
			[LEASE_CUE_IN_USE] = STEP(WAITING, LEASE_DO_TELL_IN_USE | LEASE_DO_SERVE),
			[LEASE_CUE_KEPT] = STEP(OPEN, LEASE_DO_TELL_IN_USE | REOPEN),
			[LEASE_CUE_STOPPED] = STEP(DRAINING, LEASE_DO_CLOSE),
			[LEASE_CUE_NEEDED] = STEP(STOPPING, LEASE_DO_STOP_PROBE),
			[LEASE_CUE_SUPERSEDED] = STEP(STOPPING, LEASE_DO_STOP_PROBE),
			[LEASE_CUE_BREAK] = STEP(BREAKING, LEASE_DO_STOP_PROBE),
			[LEASE_CUE_EXPIRED] = STEP(UNSURE, LEASE_DO_STOP_PROBE | LEASE_DO_CONFIRM),
			[LEASE_CUE_FORGOTTEN] = STEP(FORGOTTEN, LEASE_DO_STOP_PROBE | LEASE_DO_CONFIRM),
		},
	[LEASE_WAITING] =
		{
			[LEASE_CUE_FREE] = STEP(RELEASING, RELEASE),
			[LEASE_CUE_SHARED] = STEP(SHRINKING, SHRINK),
			[LEASE_CUE_STOPPED] = STEP(DRAINING, LEASE_DO_CLOSE),
			[LEASE_CUE_RECALLED] = STEP(WAITING, LEASE_DO_TELL_IN_USE),
			[LEASE_CUE_ASKED] = STEP(WAITING, LEASE_DO_TELL_IN_USE),
			[LEASE_CUE_NEEDED] = STEP(STOPPING, LEASE_DO_STOP_PROBE),
			[LEASE_CUE_SUPERSEDED] = STEP(STOPPING, LEASE_DO_STOP_PROBE),
			[LEASE_CUE_BREAK] = STEP(BREAKING, LEASE_DO_STOP_PROBE),
			[LEASE_CUE_EXPIRED] = STEP(UNSURE, LEASE_DO_STOP_PROBE | LEASE_DO_CONFIRM),
			[LEASE_CUE_FORGOTTEN] = STEP(FORGOTTEN, LEASE_DO_STOP_PROBE | LEASE_DO_CONFIRM),
		},
	[LEASE_STOPPING] =
		{
			[LEASE_CUE_FREE] = STEP(RELEASING, RELEASE),
			[LEASE_CUE_SHARED] = STEP(SHRINKING, SHRINK),
			[LEASE_CUE_STOPPED] = STEP(DRAINING, LEASE_DO_SERVE | LEASE_DO_CLOSE),
			[LEASE_CUE_BREAK] = STEP(BREAKING, NOTHING),
			[LEASE_CUE_EXPIRED] = STEP(UNSURE, LEASE_DO_CONFIRM),
			[LEASE_CUE_FORGOTTEN] = STEP(FORGOTTEN, LEASE_DO_CONFIRM),
		},
	/* A loss of time or memory ends the attempt: the store may have given the lease to another host, and then its
	   holders end in any case. */
	[LEASE_BREAKING] =
		{
			[LEASE_CUE_FREE] = STEP(RELEASING, RELEASE),
			[LEASE_CUE_RECALLED] = STEP(BREAKING, LEASE_DO_TELL_IN_USE),
			[LEASE_CUE_ASKED] = STEP(BREAKING, LEASE_DO_TELL_IN_USE),
			[LEASE_CUE_SPARED] = STEP(DRAINING, LEASE_DO_SERVE | LEASE_DO_CLOSE),
			[LEASE_CUE_DOOMED] = STEP(ENDING, LOSE),
			[LEASE_CUE_EXPIRED] = STEP(UNSURE, LEASE_DO_CONFIRM),
			[LEASE_CUE_FORGOTTEN] = STEP(FORGOTTEN, LEASE_DO_CONFIRM),
		},
	/* The parent has the slot, and ends the holders whatever the deadline or the store say. */
	[LEASE_ENDING] =
		{
			[LEASE_CUE_BEREFT] = STEP(RELEASING, RELEASE),
		},
	[LEASE_SHRINKING] =
		{
			[LEASE_CUE_SHRUNK] = STEP(OPEN, REOPEN),
			[LEASE_CUE_GONE] = STEP(ENDED, LOSE),
			[LEASE_CUE_UP] = STEP(SHRINKING, SHRINK),
			[LEASE_CUE_EXPIRED] = STEP(UNSURE, LEASE_DO_CONFIRM),
			[LEASE_CUE_FORGOTTEN] = STEP(FORGOTTEN, LEASE_DO_CONFIRM),
		},
	[LEASE_RELEASING] =
		{
			[LEASE_CUE_RELEASED] = STEP(ENDED, LEASE_DO_SERVE),
			[LEASE_CUE_UP] = STEP(RELEASING, RELEASE),
			[LEASE_CUE_FORGOTTEN] = STEP(ENDED, LEASE_DO_SERVE),
		},
	/* Those that are unsure are not superseded: if one has gone, its holders must be stopped, whatever this host has
	   got since. */
	[LEASE_TAKEN_UP] =
		{
			[LEASE_CUE_STANDS] = STEP(STANDING, LEASE_DO_AWAIT_PROBE),
			[LEASE_CUE_UNSHRUNK] = STEP(SHRINKING, SHRINK),
			[LEASE_CUE_GONE] = STEP(ENDED, LOSE),
			[LEASE_CUE_UP] = STEP(TAKEN_UP, LEASE_DO_CONFIRM),
			[LEASE_CUE_EXPIRED] =
				STEP(UNSURE, NOTHING), /* a question is under way, or waits for the store */
			[LEASE_CUE_FORGOTTEN] = STEP(FORGOTTEN, LEASE_DO_CONFIRM),
		},
	[LEASE_UNSURE] =
		{
			[LEASE_CUE_STANDS] = STEP(STANDING, LEASE_DO_AWAIT_PROBE),
			[LEASE_CUE_UNSHRUNK] = STEP(SHRINKING, SHRINK),
			[LEASE_CUE_GONE] = STEP(ENDED, LOSE),
			[LEASE_CUE_UP] = STEP(UNSURE, LEASE_DO_CONFIRM),
			[LEASE_CUE_FORGOTTEN] = STEP(ENDED, LOSE),
		},
	[LEASE_FORGOTTEN] =
		{
			[LEASE_CUE_STANDS] = STEP(STANDING, LEASE_DO_AWAIT_PROBE),
			[LEASE_CUE_UNSHRUNK] = STEP(SHRINKING, SHRINK),
			[LEASE_CUE_GONE] = STEP(ENDED, LOSE),
			[LEASE_CUE_UP] = STEP(FORGOTTEN, LEASE_DO_CONFIRM),
			[LEASE_CUE_EXPIRED] = STEP(ENDED, LOSE),
			[LEASE_CUE_FORGOTTEN] = STEP(FORGOTTEN, LEASE_DO_CONFIRM),
		},
	[LEASE_STANDING] =
		{
			[LEASE_CUE_STOPPED] = STEP(OPEN, REOPEN),
			[LEASE_CUE_GONE] = STEP(ENDED, LOSE),
			[LEASE_CUE_EXPIRED] = STEP(UNSURE, LEASE_DO_CONFIRM),
			[LEASE_CUE_FORGOTTEN] = STEP(FORGOTTEN, LEASE_DO_CONFIRM),
		},
};

struct lease_step lease_step(enum lease_state state, enum lease_cue event)
{
	const struct cell *cell = &table[state][event]; /* mutant: lease-step */

	if (!cell->set)
		return (struct lease_step){.next = state, .actions = NOTHING};
	return (struct lease_step){.next = cell->next, .actions = cell->actions};
}

const char *lease_state_name(enum lease_state state)
{
	static const char *const names[LEASE_STATES] = {
		[LEASE_ASKING] = "asking",       [LEASE_OPEN] = "held",         [LEASE_DRAINING] = "draining",
		[LEASE_PROBING] = "probing",     [LEASE_WAITING] = "waiting",   [LEASE_STOPPING] = "stopping",
		[LEASE_BREAKING] = "breaking",   [LEASE_ENDING] = "ending",     [LEASE_SHRINKING] = "shrinking",
		[LEASE_RELEASING] = "releasing", [LEASE_TAKEN_UP] = "taken up", [LEASE_UNSURE] = "unsure",
		[LEASE_FORGOTTEN] = "forgotten", [LEASE_STANDING] = "standing", [LEASE_ENDED] = "ended",
	};

	return names[state];
}

const char *lease_cue_name(enum lease_cue event)
{
	static const char *const names[LEASE_EVENTS] = {
		[LEASE_CUE_GRANTED] = "granted",
		[LEASE_CUE_UNSENT] = "unsent",
		[LEASE_CUE_UNWANTED] = "unwanted",
		[LEASE_CUE_RECALLED] = "recalled",
		[LEASE_CUE_ASKED] = "asked",
		[LEASE_CUE_LINGERED] = "lingered",
		[LEASE_CUE_DRAINED] = "drained",
		[LEASE_CUE_FREE] = "free",
		[LEASE_CUE_SHARED] = "shared",
		[LEASE_CUE_IN_USE] = "in use",
		[LEASE_CUE_KEPT] = "kept",
		[LEASE_CUE_NEEDED] = "needed",
		[LEASE_CUE_STOPPED] = "stopped",
		[LEASE_CUE_BREAK] = "break",
		[LEASE_CUE_SPARED] = "spared",
		[LEASE_CUE_DOOMED] = "doomed",
		[LEASE_CUE_BEREFT] = "bereft",
		[LEASE_CUE_SUPERSEDED] = "superseded",
		[LEASE_CUE_RELEASED] = "released",
		[LEASE_CUE_SHRUNK] = "shrunk",
		[LEASE_CUE_UP] = "up",
		[LEASE_CUE_EXPIRED] = "expired",
		[LEASE_CUE_STANDS] = "stands",
		[LEASE_CUE_UNSHRUNK] = "unshrunk",
		[LEASE_CUE_GONE] = "gone",
		[LEASE_CUE_FORGOTTEN] = "forgotten",
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
