/*
 * The lease table. Rows say what an event does in which states; a pair that no row has must leave the lease as it is. Promises are what
 * must never be, whatever the rows say.
 */
#include "keeper/rules/lease.h"
#include "tests/unit/suite.h"

#define IN(state)  (1u << LEASE_##state)
#define LOOKED     (IN(PROBING) | IN(WAITING)) /* a probe is under way that was not told to stop */
#define PROBED     (LOOKED | IN(STOPPING))     /* the lease waits for its result */
#define CONFIRMING (IN(TAKEN_UP) | IN(UNSURE) | IN(FORGOTTEN))
#define RELEASE    (LEASE_DO_RETURN | LEASE_DO_RELEASE)
#define SHRINK     (LEASE_DO_SHARE | LEASE_DO_SHRINK)
#define LOSE       (LEASE_DO_LOST | LEASE_DO_SERVE)
#define SERVED     (LEASE_DO_OPEN | LEASE_DO_SERVE)
#define IN_USE     LEASE_DO_TELL_IN_USE
#define SAME       LEASE_STATES

static const struct row {
	unsigned states;
	enum lease_cue event;
	enum lease_state next;
	unsigned actions;
} rows[] = {
	/* Past the deadline the store must confirm, and no probe goes on. */
	{IN(OPEN) | IN(DRAINING) | IN(STOPPING) | IN(BREAKING) | IN(SHRINKING) | IN(STANDING), LEASE_CUE_EXPIRED,
	 LEASE_UNSURE, LEASE_DO_CONFIRM},
	{LOOKED, LEASE_CUE_EXPIRED, LEASE_UNSURE, LEASE_DO_STOP_PROBE | LEASE_DO_CONFIRM},
	{IN(TAKEN_UP), LEASE_CUE_EXPIRED, LEASE_UNSURE, 0},    /* asked about already */
	{IN(FORGOTTEN), LEASE_CUE_EXPIRED, LEASE_ENDED, LOSE}, /* nobody can tell which host had it since */
	/* What the store has forgotten is put back, asked for again, or needs no release. */
	{IN(OPEN) | IN(DRAINING) | IN(STOPPING) | IN(BREAKING) | IN(SHRINKING) | IN(TAKEN_UP) | IN(FORGOTTEN) |
		 IN(STANDING),
	 LEASE_CUE_FORGOTTEN, LEASE_FORGOTTEN, LEASE_DO_CONFIRM},
	{LOOKED, LEASE_CUE_FORGOTTEN, LEASE_FORGOTTEN, LEASE_DO_STOP_PROBE | LEASE_DO_CONFIRM},
	{IN(UNSURE), LEASE_CUE_FORGOTTEN, LEASE_ENDED, LOSE}, /* nobody can tell which host had it before */
	{IN(ASKING), LEASE_CUE_FORGOTTEN, SAME, LEASE_DO_ACQUIRE},
	{IN(RELEASING), LEASE_CUE_FORGOTTEN, LEASE_ENDED, LEASE_DO_SERVE},
	/* What was under way when the store was away is sent again. */
	{IN(ASKING), LEASE_CUE_UP, SAME, LEASE_DO_ACQUIRE},
	{IN(SHRINKING), LEASE_CUE_UP, SAME, SHRINK},
	{IN(RELEASING), LEASE_CUE_UP, SAME, RELEASE},
	{CONFIRMING, LEASE_CUE_UP, SAME, LEASE_DO_CONFIRM},
	/* What a probe of the lease found leads to a release or a shrink. One from before a break had looked when no pin was left. */
	{PROBED | IN(BREAKING), LEASE_CUE_FREE, LEASE_RELEASING, RELEASE},
	{PROBED, LEASE_CUE_SHARED, LEASE_SHRINKING, SHRINK},
	/* A probe that stopped leaves a closed lease, and starts again when no pin is left; or the lease waited for that alone. */
	{LOOKED, LEASE_CUE_STOPPED, LEASE_DRAINING, LEASE_DO_CLOSE},
	{IN(STOPPING), LEASE_CUE_STOPPED, LEASE_DRAINING,
	 LEASE_DO_CLOSE | LEASE_DO_SERVE}, /* it was stopped for a caller */
	{IN(STANDING), LEASE_CUE_STOPPED, LEASE_OPEN, SERVED},
	/* A lease that has gone is lost, once the store was asked about it. One that was granted, of which this host has not heard, is not. */
	{CONFIRMING | IN(STANDING) | IN(SHRINKING), LEASE_CUE_GONE, LEASE_ENDED, LOSE},
	{IN(ASKING), LEASE_CUE_GONE, LEASE_RELEASING, RELEASE | LEASE_DO_SERVE},
	/* What the store was asked about stands, or is shrunk once more. */
	{CONFIRMING, LEASE_CUE_STANDS, LEASE_STANDING, LEASE_DO_AWAIT_PROBE},
	{CONFIRMING, LEASE_CUE_UNSHRUNK, LEASE_SHRINKING, SHRINK},
	/* A lease that the store has confirmed can be taken away, and is closed first. */
	{IN(OPEN) | IN(DRAINING) | IN(STOPPING), LEASE_CUE_BREAK, LEASE_BREAKING, 0},
	{LOOKED, LEASE_CUE_BREAK, LEASE_BREAKING, LEASE_DO_STOP_PROBE},
	{IN(BREAKING), LEASE_CUE_SPARED, LEASE_DRAINING, LEASE_DO_CLOSE | LEASE_DO_SERVE},
	{IN(BREAKING), LEASE_CUE_DOOMED, LEASE_ENDING, LOSE},
	{IN(ENDING), LEASE_CUE_BEREFT, LEASE_RELEASING, RELEASE},
	/* A recall; a question does the same. */
	{IN(ASKING), LEASE_CUE_RECALLED, SAME, LEASE_DO_ACQUIRE},
	{IN(OPEN), LEASE_CUE_RECALLED, LEASE_DRAINING, LEASE_DO_CLOSE},
	{IN(WAITING) | IN(BREAKING), LEASE_CUE_RECALLED, SAME, IN_USE},
	/* The ordinary course. */
	{IN(ASKING), LEASE_CUE_GRANTED, LEASE_OPEN, SERVED},
	{IN(ASKING), LEASE_CUE_UNWANTED, LEASE_RELEASING, RELEASE},
	{IN(ASKING), LEASE_CUE_UNSENT, LEASE_ENDED, 0},
	{IN(OPEN), LEASE_CUE_LINGERED, LEASE_DRAINING, LEASE_DO_CLOSE},
	{IN(DRAINING), LEASE_CUE_DRAINED, LEASE_PROBING, LEASE_DO_PROBE},
	{IN(PROBING), LEASE_CUE_IN_USE, LEASE_WAITING, IN_USE | LEASE_DO_SERVE},
	{IN(PROBING), LEASE_CUE_KEPT, LEASE_OPEN, IN_USE | SERVED},
	{LOOKED, LEASE_CUE_NEEDED, LEASE_STOPPING, LEASE_DO_STOP_PROBE},
	{IN(OPEN) | IN(DRAINING), LEASE_CUE_SUPERSEDED, LEASE_RELEASING, RELEASE},
	{LOOKED, LEASE_CUE_SUPERSEDED, LEASE_STOPPING, LEASE_DO_STOP_PROBE},
	{IN(SHRINKING), LEASE_CUE_SHRUNK, LEASE_OPEN, SERVED},
	{IN(RELEASING), LEASE_CUE_RELEASED, LEASE_ENDED, LEASE_DO_SERVE},
};

static void expect(bool good, const char *what, enum lease_state state, enum lease_cue event)
{
	struct lease_step step = lease_step(state, event);

	ck_assert_msg(good, "%s: %s in %s leads to %s, with actions %#x", what, lease_cue_name(event),
		      lease_state_name(state), lease_state_name(step.next), step.actions);
}

static void expect_row(enum lease_state state, enum lease_cue event)
{
	const struct row *row = rows, none = {.next = SAME};
	const enum lease_cue as = event == LEASE_CUE_ASKED ? LEASE_CUE_RECALLED : event;
	struct lease_step step = lease_step(state, event);

	while (row < rows + ROWS(rows) && (row->event != as || !(row->states & 1u << state)))
		row++;
	if (row == rows + ROWS(rows))
		row = &none;
	expect(step.next == (row->next == SAME ? state : row->next) && step.actions == row->actions, "row", state,
	       event);
}

/* Each is a promise of docs/design.md or of lease.h. */
static void expect_promises(enum lease_state s, enum lease_cue e)
{
	struct lease_step step = lease_step(s, e);

	if (step.actions & LEASE_DO_RELEASE && s != LEASE_RELEASING)
		expect(step.actions & LEASE_DO_RETURN, "the table says that it goes back before the release is sent", s,
		       e);
	if (lease_is_ours(s) && step.next == LEASE_RELEASING)
		expect(e == LEASE_CUE_FREE || e == LEASE_CUE_SUPERSEDED,
		       "given back only if the kernel says that it is free, or another lease of ours covers it", s, e);
	if (step.actions & LEASE_DO_PROBE)
		expect(e == LEASE_CUE_DRAINED, "a probe starts when the pins have ended", s, e);
	if (step.next == LEASE_ENDING && s != LEASE_ENDING)
		expect(s == LEASE_BREAKING && step.actions & LEASE_DO_LOST,
		       "holders are ended after the lease was closed to all", s, e);
	if (s == LEASE_ENDING && step.next != LEASE_ENDING)
		expect(step.next == LEASE_RELEASING && e == LEASE_CUE_BEREFT,
		       "a broken lease is released when its holders have ended", s, e);
	if (s == LEASE_ENDED)
		expect(step.next == LEASE_ENDED, "what has ended stays so", s, e);
	if (s == LEASE_RELEASING)
		expect(step.next == LEASE_RELEASING || step.next == LEASE_ENDED,
		       "a lease that was to be released never opens again", s, e);
	if (lease_is_ours(s) && step.next == LEASE_ENDED)
		expect(step.actions & LEASE_DO_LOST, "a loss is reported", s, e);
	if (lease_is_unsure(s) && step.next == LEASE_OPEN)
		expect(s == LEASE_STANDING && e == LEASE_CUE_STOPPED,
		       "an unsure lease opens when the store has confirmed it and no probe runs", s, e);
	if (step.next == LEASE_STANDING && s != LEASE_STANDING)
		expect(e == LEASE_CUE_STANDS, "the store alone says that a lease stands", s, e);
	if (s == LEASE_UNSURE)
		expect(step.next != LEASE_FORGOTTEN, "past the deadline nothing is put back", s, e);
	if (s == LEASE_FORGOTTEN)
		expect(step.next != LEASE_UNSURE, "what is forgotten is put back before the deadline, or lost", s, e);
	if (e == LEASE_CUE_EXPIRED)
		expect(step.next != LEASE_OPEN, "nothing is open past the deadline", s, e);
}

TEST(promises_and_rows)
{
	for (int s = 0; s < LEASE_STATES; s++)
		for (int e = 0; e < LEASE_EVENTS; e++) {
			expect_promises(s, e);
			expect_row(s, e);
		}
}
