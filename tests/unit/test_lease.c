/*
 * The lease table. Laws say what an event means in every state, and what entering a state does; the few steps that no
 * law gives are rows. A pair that neither names must leave the lease as it is. The last test alters every entry of the
 * table in every way, one at a time: the checks must find each change.
 */
#include "keeper/rules/lease.h"
#include "tests/unit/suite.h"

#define ACTIONS 15 /* of enum lease_action */

static struct lease_step (*step_of)(enum lease_state state, enum lease_cue event) = lease_step;
static bool named[LEASE_STATES][LEASE_EVENTS];
static char wrong[256]; /* the first one found; empty: nothing is wrong */

static void expect(bool good, const char *law, enum lease_state state, enum lease_cue event)
{
	struct lease_step step = step_of(state, event);

	if (!good && !*wrong)
		snprintf(wrong, sizeof(wrong), "%s: %s in %s leads to %s, with actions %#x", law, lease_cue_name(event),
			 lease_state_name(state), lease_state_name(step.next), step.actions);
}

static void expect_step(const char *law, enum lease_state state, enum lease_cue event, enum lease_state next,
			unsigned actions)
{
	struct lease_step step = step_of(state, event);

	named[state][event] = true;
	expect(step.next == next && step.actions == actions, law, state, event);
}

static void expect_nothing(const char *law, enum lease_state state, enum lease_cue event)
{
	expect_step(law, state, event, state, 0);
}

/* The actions of entering a state. For ENDED they depend on the state before. */
static const unsigned entering[LEASE_STATES] = {
	[LEASE_OPEN] = LEASE_DO_OPEN | LEASE_DO_SERVE,
	[LEASE_DRAINING] = LEASE_DO_CLOSE,
	[LEASE_PROBING] = LEASE_DO_PROBE,
	[LEASE_WAITING] = LEASE_DO_TELL_IN_USE | LEASE_DO_SERVE,
	[LEASE_STOPPING] = LEASE_DO_STOP_PROBE,
	[LEASE_SHRINKING] = LEASE_DO_SHARE | LEASE_DO_SHRINK,
	[LEASE_RELEASING] = LEASE_DO_RETURN | LEASE_DO_RELEASE,
	[LEASE_TAKEN_UP] = LEASE_DO_CONFIRM,
	[LEASE_UNSURE] = LEASE_DO_CONFIRM,
	[LEASE_FORGOTTEN] = LEASE_DO_CONFIRM,
	[LEASE_STANDING] = LEASE_DO_AWAIT_PROBE,
};

#define RELEASE (LEASE_DO_RETURN | LEASE_DO_RELEASE)
#define LOSE    (LEASE_DO_LOST | LEASE_DO_SERVE)

/* States in which a probe is under way, and the lease waits for its result. */
static bool is_probed(enum lease_state state)
{
	return state == LEASE_PROBING || state == LEASE_WAITING || state == LEASE_STOPPING;
}

/* A probe that has not been told to stop. */
static unsigned end_probe(enum lease_state s)
{
	return s == LEASE_PROBING || s == LEASE_WAITING ? LEASE_DO_STOP_PROBE : 0;
}

static void law_deadline(enum lease_state s)
{
	static const char law[] = "past the deadline the store must confirm, and no probe goes on";

	if (!lease_is_ours(s) || s == LEASE_UNSURE)
		expect_nothing(law, s, LEASE_CUE_EXPIRED);
	else if (s == LEASE_FORGOTTEN) /* nobody can tell which host had it since */
		expect_step(law, s, LEASE_CUE_EXPIRED, LEASE_ENDED, LOSE);
	else if (s == LEASE_TAKEN_UP) /* asked about already */
		expect_step(law, s, LEASE_CUE_EXPIRED, LEASE_UNSURE, 0);
	else
		expect_step(law, s, LEASE_CUE_EXPIRED, LEASE_UNSURE, end_probe(s) | LEASE_DO_CONFIRM);
}

static void law_lost_memory(enum lease_state s)
{
	static const char law[] = "what the store has forgotten is put back, asked for again, or needs no release";

	if (s == LEASE_ASKING)
		expect_step(law, s, LEASE_CUE_FORGOTTEN, s, LEASE_DO_ACQUIRE);
	else if (s == LEASE_RELEASING)
		expect_step(law, s, LEASE_CUE_FORGOTTEN, LEASE_ENDED, LEASE_DO_SERVE);
	else if (s == LEASE_UNSURE) /* nobody can tell which host had it before */
		expect_step(law, s, LEASE_CUE_FORGOTTEN, LEASE_ENDED, LOSE);
	else if (lease_is_ours(s))
		expect_step(law, s, LEASE_CUE_FORGOTTEN, LEASE_FORGOTTEN, end_probe(s) | LEASE_DO_CONFIRM);
	else
		expect_nothing(law, s, LEASE_CUE_FORGOTTEN);
}

static void law_sent_again(enum lease_state s)
{
	static const char law[] = "what was under way when the store was away is sent again";

	switch (s) {
	case LEASE_ASKING:
		expect_step(law, s, LEASE_CUE_UP, s, LEASE_DO_ACQUIRE);
		break;
	case LEASE_SHRINKING:
	case LEASE_RELEASING:
	case LEASE_TAKEN_UP:
	case LEASE_UNSURE:
	case LEASE_FORGOTTEN:
		expect_step(law, s, LEASE_CUE_UP, s, entering[s]);
		break;
	default:
		expect_nothing(law, s, LEASE_CUE_UP);
	}
}

static void law_probe_result(enum lease_state s)
{
	static const char law[] = "what a probe of the lease found leads to a release or a shrink";

	if (is_probed(s)) {
		expect_step(law, s, LEASE_CUE_FREE, LEASE_RELEASING, entering[LEASE_RELEASING]);
		expect_step(law, s, LEASE_CUE_SHARED, LEASE_SHRINKING, entering[LEASE_SHRINKING]);
	} else {
		if (s == LEASE_BREAKING) /* a probe from before had looked when no pin was left */
			expect_step(law, s, LEASE_CUE_FREE, LEASE_RELEASING, entering[LEASE_RELEASING]);
		else
			expect_nothing(law, s, LEASE_CUE_FREE);
		expect_nothing(law, s, LEASE_CUE_SHARED);
	}
}

static void law_probe_stopped(enum lease_state s)
{
	static const char law[] = "a probe that stopped leaves a closed lease, and starts again when no pin is left";

	if (is_probed(s)) /* the probe was stopped for a caller, which is served now */
		expect_step(law, s, LEASE_CUE_STOPPED, LEASE_DRAINING,
			    LEASE_DO_CLOSE | (s == LEASE_STOPPING ? LEASE_DO_SERVE : 0));
	else if (s == LEASE_STANDING) /* it waited for that alone */
		expect_step(law, s, LEASE_CUE_STOPPED, LEASE_OPEN, entering[LEASE_OPEN]);
	else
		expect_nothing(law, s, LEASE_CUE_STOPPED);
}

static void law_gone(enum lease_state s)
{
	static const char law[] = "a lease that has gone is lost, once the store was asked about it";

	if (lease_is_unsure(s) || s == LEASE_SHRINKING)
		expect_step(law, s, LEASE_CUE_GONE, LEASE_ENDED, LOSE);
	else if (
		s ==
		LEASE_ASKING) /* granted, and this host has not heard of it: nothing is lost, and the callers ask anew */
		expect_step(law, s, LEASE_CUE_GONE, LEASE_RELEASING, entering[LEASE_RELEASING] | LEASE_DO_SERVE);
	else
		expect_nothing(law, s, LEASE_CUE_GONE);
}

static void law_confirmed(enum lease_state s)
{
	static const char law[] = "what the store was asked about stands, or is shrunk once more";

	if (lease_is_unsure(s) && s != LEASE_STANDING) {
		expect_step(law, s, LEASE_CUE_STANDS, LEASE_STANDING, entering[LEASE_STANDING]);
		expect_step(law, s, LEASE_CUE_UNSHRUNK, LEASE_SHRINKING, entering[LEASE_SHRINKING]);
	} else {
		expect_nothing(law, s, LEASE_CUE_STANDS);
		expect_nothing(law, s, LEASE_CUE_UNSHRUNK);
	}
}

static void law_broken(enum lease_state s)
{
	static const char law[] = "a lease that the store has confirmed can be taken away, and is closed first";

	if (s == LEASE_OPEN || s == LEASE_DRAINING || is_probed(s))
		expect_step(law, s, LEASE_CUE_BREAK, LEASE_BREAKING, end_probe(s));
	else
		expect_nothing(law, s, LEASE_CUE_BREAK);
}

static void law_wanted_elsewhere(enum lease_state s)
{
	static const char law[] = "a recall and a question do the same";
	struct lease_step recalled = step_of(s, LEASE_CUE_RECALLED);

	expect_step(law, s, LEASE_CUE_ASKED, recalled.next, recalled.actions);
}

/* The steps that no law gives; the actions besides those of entering the state. */
static const struct {
	enum lease_state state;
	enum lease_cue event;
	enum lease_state next;
	unsigned actions;
} rows[] = {
	{LEASE_ASKING, LEASE_CUE_GRANTED, LEASE_OPEN, 0},
	{LEASE_ASKING, LEASE_CUE_UNWANTED, LEASE_RELEASING, 0},
	{LEASE_ASKING, LEASE_CUE_UNSENT, LEASE_ENDED, 0},
	{LEASE_ASKING, LEASE_CUE_RECALLED, LEASE_ASKING, LEASE_DO_ACQUIRE},
	{LEASE_OPEN, LEASE_CUE_RECALLED, LEASE_DRAINING, 0},
	{LEASE_OPEN, LEASE_CUE_LINGERED, LEASE_DRAINING, 0},
	{LEASE_OPEN, LEASE_CUE_SUPERSEDED, LEASE_RELEASING, 0},
	{LEASE_DRAINING, LEASE_CUE_DRAINED, LEASE_PROBING, 0},
	{LEASE_DRAINING, LEASE_CUE_SUPERSEDED, LEASE_RELEASING, 0},
	{LEASE_PROBING, LEASE_CUE_IN_USE, LEASE_WAITING, 0},
	{LEASE_PROBING, LEASE_CUE_KEPT, LEASE_OPEN, LEASE_DO_TELL_IN_USE},
	{LEASE_PROBING, LEASE_CUE_NEEDED, LEASE_STOPPING, 0},
	{LEASE_PROBING, LEASE_CUE_SUPERSEDED, LEASE_STOPPING, 0},
	{LEASE_WAITING, LEASE_CUE_RECALLED, LEASE_WAITING, LEASE_DO_TELL_IN_USE},
	{LEASE_WAITING, LEASE_CUE_NEEDED, LEASE_STOPPING, 0},
	{LEASE_WAITING, LEASE_CUE_SUPERSEDED, LEASE_STOPPING, 0},
	{LEASE_BREAKING, LEASE_CUE_RECALLED, LEASE_BREAKING, LEASE_DO_TELL_IN_USE},
	{LEASE_BREAKING, LEASE_CUE_SPARED, LEASE_DRAINING, LEASE_DO_SERVE},
	{LEASE_BREAKING, LEASE_CUE_DOOMED, LEASE_ENDING, LOSE},
	{LEASE_ENDING, LEASE_CUE_BEREFT, LEASE_RELEASING, 0},
	{LEASE_SHRINKING, LEASE_CUE_SHRUNK, LEASE_OPEN, 0},
	{LEASE_RELEASING, LEASE_CUE_RELEASED, LEASE_ENDED, LEASE_DO_SERVE},
};

static void expect_rows(void)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		expect_step("row", rows[i].state, rows[i].event, rows[i].next,
			    rows[i].actions | (rows[i].next == rows[i].state ? 0 : entering[rows[i].next]));
}

/* What must never be, whatever the rest says: each is a promise of docs/design.md or of lease.h. */
static void expect_promises(enum lease_state s, enum lease_cue e)
{
	struct lease_step step = step_of(s, e);

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

/* Checks everything; NULL: nothing is wrong. */
static const char *find_wrong(void)
{
	*wrong = '\0';
	for (int s = 0; s < LEASE_STATES; s++) {
		for (int e = 0; e < LEASE_EVENTS; e++) {
			named[s][e] = false;
			expect_promises(s, e);
		}
		law_deadline(s);
		law_lost_memory(s);
		law_sent_again(s);
		law_probe_result(s);
		law_probe_stopped(s);
		law_gone(s);
		law_confirmed(s);
		law_broken(s);
		law_wanted_elsewhere(s);
	}
	expect_rows();
	for (int s = 0; s < LEASE_STATES; s++)
		for (int e = 0; e < LEASE_EVENTS; e++)
			if (!named[s][e])
				expect_nothing("an event that means nothing in a state changes nothing", s, e);
	return *wrong ? wrong : NULL;
}

TEST(laws_and_rows)
{
	const char *what = find_wrong();

	ck_assert_msg(!what, "%s", what);
}

/* --- can the checks fail? --- */

static struct {
	enum lease_state state;
	enum lease_cue event;
	struct lease_step step;
} altered;

static struct lease_step altered_step(enum lease_state state, enum lease_cue event)
{
	return state == altered.state && event == altered.event ? altered.step : lease_step(state, event);
}

static void expect_found(enum lease_state state, enum lease_cue event, enum lease_state next, unsigned actions)
{
	altered.state = state;
	altered.event = event;
	altered.step = (struct lease_step){.next = next, .actions = actions};
	ck_assert_msg(find_wrong(), "not found: %s in %s leads to %s, with actions %#x", lease_cue_name(event),
		      lease_state_name(state), lease_state_name(next), actions);
}

TEST(every_altered_entry_is_found)
{
	step_of = altered_step;
	for (int s = 0; s < LEASE_STATES; s++) {
		for (int e = 0; e < LEASE_EVENTS; e++) {
			struct lease_step good = lease_step(s, e);

			for (int next = 0; next < LEASE_STATES; next++)
				if (next != (int)good.next)
					expect_found(s, e, next, good.actions);
			for (int action = 0; action < ACTIONS; action++)
				expect_found(s, e, good.next, good.actions ^ 1u << action);
		}
	}
}

/* The laws alone, without the rows: a mistake that would break a promise is found by the law that names it. */
TEST(a_broken_promise_is_named)
{
	static const struct {
		enum lease_state state;
		enum lease_cue event;
		struct lease_step step;
		const char *law;
	} broken[] = {
		{LEASE_PROBING, LEASE_CUE_IN_USE, {LEASE_RELEASING, LEASE_DO_RETURN | LEASE_DO_RELEASE}, "given back"},
		{LEASE_OPEN, LEASE_CUE_LINGERED, {LEASE_OPEN, LEASE_DO_PROBE}, "a probe starts"},
		{LEASE_PROBING, LEASE_CUE_FREE, {LEASE_RELEASING, LEASE_DO_RELEASE}, "the table says"},
		{LEASE_RELEASING, LEASE_CUE_GRANTED, {LEASE_OPEN, LEASE_DO_OPEN}, "a lease that was to be released"},
		{LEASE_UNSURE, LEASE_CUE_UP, {LEASE_OPEN, LEASE_DO_OPEN}, "an unsure lease"},
		{LEASE_UNSURE, LEASE_CUE_STANDS, {LEASE_OPEN, LEASE_DO_OPEN}, "an unsure lease"},
		{LEASE_UNSURE, LEASE_CUE_UP, {LEASE_STANDING, LEASE_DO_AWAIT_PROBE}, "the store alone"},
		{LEASE_UNSURE, LEASE_CUE_FORGOTTEN, {LEASE_FORGOTTEN, LEASE_DO_CONFIRM}, "past the deadline"},
		{LEASE_FORGOTTEN, LEASE_CUE_EXPIRED, {LEASE_UNSURE, LEASE_DO_CONFIRM}, "what is forgotten"},
		{LEASE_DRAINING, LEASE_CUE_EXPIRED, {LEASE_OPEN, LEASE_DO_CONFIRM}, "nothing is open"},
		{LEASE_OPEN, LEASE_CUE_DOOMED, {LEASE_ENDING, LEASE_DO_LOST}, "holders are ended"},
		{LEASE_ENDING, LEASE_CUE_EXPIRED, {LEASE_RELEASING, RELEASE}, "a broken lease"},
		{LEASE_WAITING, LEASE_CUE_GONE, {LEASE_ENDED, LEASE_DO_SERVE}, "a loss is reported"},
	};

	step_of = altered_step;
	for (size_t i = 0; i < sizeof(broken) / sizeof(*broken); i++) {
		altered.state = broken[i].state;
		altered.event = broken[i].event;
		altered.step = broken[i].step;
		*wrong = '\0';
		expect_promises(broken[i].state, broken[i].event);
		ck_assert_msg(strstr(wrong, broken[i].law) == wrong, "found as \"%s\", not as \"%s\"", wrong,
			      broken[i].law);
	}
}
