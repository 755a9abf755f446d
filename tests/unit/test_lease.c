/* The lease table: every (state, event) pair has its row here, and what no pair may ever do. */
#include <check.h>
#include <stdlib.h>

#include "keeper/rules/lease.h"

#define REL  (LEASE_DO_RETURN | LEASE_DO_RELEASE)
#define LOSE (LEASE_DO_LOST | LEASE_DO_SERVE)
#define OPEN (LEASE_DO_OPEN | LEASE_DO_SERVE)

struct row {
	enum lease_event event;
	enum lease_state next;
	unsigned actions;
};

/* In the order of enum lease_event: a row for each. */
static void check_state(enum lease_state state, const struct row rows[LEASE_EVENTS])
{
	for (int e = 0; e < LEASE_EVENTS; e++) {
		struct lease_step step = lease_step(state, e);

		ck_assert_int_eq(rows[e].event, e);
		ck_assert_msg(step.next == rows[e].next, "%s in %s: next is %s, not %s", lease_event_name(e),
			      lease_state_name(state), lease_state_name(step.next), lease_state_name(rows[e].next));
		ck_assert_msg(step.actions == rows[e].actions, "%s in %s: actions are %#x, not %#x",
			      lease_event_name(e), lease_state_name(state), step.actions, rows[e].actions);
	}
}

#define ROW(ev, state, act) [LEASE_EV_##ev] = {LEASE_EV_##ev, LEASE_##state, act}
#define STAY(ev, state)     ROW(ev, state, 0)

START_TEST(asking)
{
	check_state(LEASE_ASKING, (const struct row[LEASE_EVENTS]){ROW(GRANTED, HELD, OPEN),
								   ROW(REFUSED, RELEASING, REL),
								   ROW(UNSENT, ENDED, 0),
								   ROW(UNWANTED, RELEASING, REL),
								   ROW(RECALLED, ASKING, LEASE_DO_ACQUIRE),
								   ROW(ASKED, ASKING, LEASE_DO_ACQUIRE),
								   STAY(LINGERED, ASKING),
								   STAY(DRAINED, ASKING),
								   STAY(FREE, ASKING),
								   STAY(SHARED, ASKING),
								   STAY(IN_USE, ASKING),
								   STAY(KEPT, ASKING),
								   STAY(NEEDED, ASKING),
								   STAY(STOPPED, ASKING),
								   STAY(SUPERSEDED, ASKING),
								   STAY(RELEASED, ASKING),
								   STAY(SHRUNK, ASKING),
								   ROW(UP, ASKING, LEASE_DO_ACQUIRE),
								   STAY(EXPIRED, ASKING),
								   STAY(STANDS, ASKING),
								   STAY(UNSHRUNK, ASKING),
								   STAY(GONE, ASKING),
								   ROW(FORGOTTEN, ASKING, LEASE_DO_ACQUIRE)});
}
END_TEST

START_TEST(held)
{
	check_state(LEASE_HELD, (const struct row[LEASE_EVENTS]){STAY(GRANTED, HELD),
								 STAY(REFUSED, HELD),
								 STAY(UNSENT, HELD),
								 STAY(UNWANTED, HELD),
								 ROW(RECALLED, DRAINING, LEASE_DO_CLOSE),
								 ROW(ASKED, DRAINING, LEASE_DO_CLOSE),
								 ROW(LINGERED, DRAINING, LEASE_DO_CLOSE),
								 STAY(DRAINED, HELD),
								 ROW(FREE, HELD, LEASE_DO_UNPROBE),
								 ROW(SHARED, HELD, LEASE_DO_UNPROBE),
								 STAY(IN_USE, HELD),
								 STAY(KEPT, HELD),
								 STAY(NEEDED, HELD),
								 STAY(STOPPED, HELD),
								 ROW(SUPERSEDED, RELEASING, REL),
								 STAY(RELEASED, HELD),
								 STAY(SHRUNK, HELD),
								 STAY(UP, HELD),
								 ROW(EXPIRED, UNSURE, LEASE_DO_CONFIRM),
								 STAY(STANDS, HELD),
								 STAY(UNSHRUNK, HELD),
								 STAY(GONE, HELD),
								 ROW(FORGOTTEN, UNSURE, LEASE_DO_CONFIRM)});
}
END_TEST

START_TEST(draining)
{
	check_state(LEASE_DRAINING, (const struct row[LEASE_EVENTS]){STAY(GRANTED, DRAINING),
								     STAY(REFUSED, DRAINING),
								     STAY(UNSENT, DRAINING),
								     STAY(UNWANTED, DRAINING),
								     STAY(RECALLED, DRAINING),
								     STAY(ASKED, DRAINING),
								     STAY(LINGERED, DRAINING),
								     ROW(DRAINED, PROBING, LEASE_DO_PROBE),
								     ROW(FREE, DRAINING, LEASE_DO_UNPROBE),
								     ROW(SHARED, DRAINING, LEASE_DO_UNPROBE),
								     STAY(IN_USE, DRAINING),
								     STAY(KEPT, DRAINING),
								     STAY(NEEDED, DRAINING),
								     STAY(STOPPED, DRAINING),
								     ROW(SUPERSEDED, RELEASING, REL),
								     STAY(RELEASED, DRAINING),
								     STAY(SHRUNK, DRAINING),
								     STAY(UP, DRAINING),
								     ROW(EXPIRED, UNSURE, LEASE_DO_CONFIRM),
								     STAY(STANDS, DRAINING),
								     STAY(UNSHRUNK, DRAINING),
								     STAY(GONE, DRAINING),
								     ROW(FORGOTTEN, UNSURE, LEASE_DO_CONFIRM)});
}
END_TEST

START_TEST(probing)
{
	check_state(LEASE_PROBING,
		    (const struct row[LEASE_EVENTS]){STAY(GRANTED, PROBING),
						     STAY(REFUSED, PROBING),
						     STAY(UNSENT, PROBING),
						     STAY(UNWANTED, PROBING),
						     STAY(RECALLED, PROBING),
						     STAY(ASKED, PROBING),
						     STAY(LINGERED, PROBING),
						     STAY(DRAINED, PROBING),
						     ROW(FREE, RELEASING, REL),
						     ROW(SHARED, SHRINKING, LEASE_DO_SHARE | LEASE_DO_SHRINK),
						     ROW(IN_USE, WAITING, LEASE_DO_TELL_IN_USE | LEASE_DO_SERVE),
						     ROW(KEPT, HELD, LEASE_DO_TELL_IN_USE | OPEN),
						     ROW(NEEDED, STOPPING, LEASE_DO_STOP_PROBE),
						     ROW(STOPPED, DRAINING, LEASE_DO_CLOSE),
						     ROW(SUPERSEDED, STOPPING, LEASE_DO_STOP_PROBE),
						     STAY(RELEASED, PROBING),
						     STAY(SHRUNK, PROBING),
						     STAY(UP, PROBING),
						     ROW(EXPIRED, UNSURE, LEASE_DO_STOP_PROBE | LEASE_DO_CONFIRM),
						     STAY(STANDS, PROBING),
						     STAY(UNSHRUNK, PROBING),
						     STAY(GONE, PROBING),
						     ROW(FORGOTTEN, UNSURE, LEASE_DO_STOP_PROBE | LEASE_DO_CONFIRM)});
}
END_TEST

START_TEST(waiting)
{
	check_state(LEASE_WAITING,
		    (const struct row[LEASE_EVENTS]){STAY(GRANTED, WAITING),
						     STAY(REFUSED, WAITING),
						     STAY(UNSENT, WAITING),
						     STAY(UNWANTED, WAITING),
						     ROW(RECALLED, WAITING, LEASE_DO_TELL_IN_USE),
						     ROW(ASKED, WAITING, LEASE_DO_TELL_IN_USE),
						     STAY(LINGERED, WAITING),
						     STAY(DRAINED, WAITING),
						     ROW(FREE, RELEASING, REL),
						     ROW(SHARED, SHRINKING, LEASE_DO_SHARE | LEASE_DO_SHRINK),
						     STAY(IN_USE, WAITING),
						     STAY(KEPT, WAITING),
						     ROW(NEEDED, STOPPING, LEASE_DO_STOP_PROBE),
						     ROW(STOPPED, DRAINING, LEASE_DO_CLOSE),
						     ROW(SUPERSEDED, STOPPING, LEASE_DO_STOP_PROBE),
						     STAY(RELEASED, WAITING),
						     STAY(SHRUNK, WAITING),
						     STAY(UP, WAITING),
						     ROW(EXPIRED, UNSURE, LEASE_DO_STOP_PROBE | LEASE_DO_CONFIRM),
						     STAY(STANDS, WAITING),
						     STAY(UNSHRUNK, WAITING),
						     STAY(GONE, WAITING),
						     ROW(FORGOTTEN, UNSURE, LEASE_DO_STOP_PROBE | LEASE_DO_CONFIRM)});
}
END_TEST

START_TEST(stopping)
{
	check_state(LEASE_STOPPING,
		    (const struct row[LEASE_EVENTS]){STAY(GRANTED, STOPPING),
						     STAY(REFUSED, STOPPING),
						     STAY(UNSENT, STOPPING),
						     STAY(UNWANTED, STOPPING),
						     STAY(RECALLED, STOPPING),
						     STAY(ASKED, STOPPING),
						     STAY(LINGERED, STOPPING),
						     STAY(DRAINED, STOPPING),
						     ROW(FREE, RELEASING, REL),
						     ROW(SHARED, SHRINKING, LEASE_DO_SHARE | LEASE_DO_SHRINK),
						     STAY(IN_USE, STOPPING),
						     ROW(KEPT, STOPPING, 0),
						     STAY(NEEDED, STOPPING),
						     ROW(STOPPED, DRAINING, LEASE_DO_SERVE | LEASE_DO_CLOSE),
						     STAY(SUPERSEDED, STOPPING),
						     STAY(RELEASED, STOPPING),
						     STAY(SHRUNK, STOPPING),
						     STAY(UP, STOPPING),
						     ROW(EXPIRED, UNSURE, LEASE_DO_CONFIRM),
						     STAY(STANDS, STOPPING),
						     STAY(UNSHRUNK, STOPPING),
						     STAY(GONE, STOPPING),
						     ROW(FORGOTTEN, UNSURE, LEASE_DO_CONFIRM)});
}
END_TEST

START_TEST(shrinking)
{
	check_state(LEASE_SHRINKING,
		    (const struct row[LEASE_EVENTS]){STAY(GRANTED, SHRINKING),
						     STAY(REFUSED, SHRINKING),
						     STAY(UNSENT, SHRINKING),
						     STAY(UNWANTED, SHRINKING),
						     STAY(RECALLED, SHRINKING),
						     STAY(ASKED, SHRINKING),
						     STAY(LINGERED, SHRINKING),
						     STAY(DRAINED, SHRINKING),
						     STAY(FREE, SHRINKING),
						     STAY(SHARED, SHRINKING),
						     STAY(IN_USE, SHRINKING),
						     STAY(KEPT, SHRINKING),
						     STAY(NEEDED, SHRINKING),
						     STAY(STOPPED, SHRINKING),
						     STAY(SUPERSEDED, SHRINKING),
						     STAY(RELEASED, SHRINKING),
						     ROW(SHRUNK, HELD, LEASE_DO_UNPROBE | OPEN),
						     ROW(UP, SHRINKING, LEASE_DO_SHARE | LEASE_DO_SHRINK),
						     ROW(EXPIRED, UNSURE, LEASE_DO_UNPROBE | LEASE_DO_CONFIRM),
						     STAY(STANDS, SHRINKING),
						     STAY(UNSHRUNK, SHRINKING),
						     ROW(GONE, ENDED, LEASE_DO_UNPROBE | LOSE),
						     ROW(FORGOTTEN, UNSURE, LEASE_DO_UNPROBE | LEASE_DO_CONFIRM)});
}
END_TEST

START_TEST(releasing)
{
	check_state(LEASE_RELEASING,
		    (const struct row[LEASE_EVENTS]){STAY(GRANTED, RELEASING),
						     STAY(REFUSED, RELEASING),
						     STAY(UNSENT, RELEASING),
						     STAY(UNWANTED, RELEASING),
						     STAY(RECALLED, RELEASING),
						     STAY(ASKED, RELEASING),
						     STAY(LINGERED, RELEASING),
						     STAY(DRAINED, RELEASING),
						     ROW(FREE, RELEASING, LEASE_DO_UNPROBE),
						     ROW(SHARED, RELEASING, LEASE_DO_UNPROBE),
						     STAY(IN_USE, RELEASING),
						     STAY(KEPT, RELEASING),
						     STAY(NEEDED, RELEASING),
						     STAY(STOPPED, RELEASING),
						     STAY(SUPERSEDED, RELEASING),
						     ROW(RELEASED, ENDED, LEASE_DO_UNPROBE | LEASE_DO_SERVE),
						     STAY(SHRUNK, RELEASING),
						     ROW(UP, RELEASING, REL),
						     ROW(EXPIRED, RELEASING, LEASE_DO_UNPROBE),
						     STAY(STANDS, RELEASING),
						     STAY(UNSHRUNK, RELEASING),
						     STAY(GONE, RELEASING),
						     ROW(FORGOTTEN, ENDED, LEASE_DO_UNPROBE | LEASE_DO_SERVE)});
}
END_TEST

START_TEST(unsure)
{
	check_state(LEASE_UNSURE,
		    (const struct row[LEASE_EVENTS]){STAY(GRANTED, UNSURE),
						     STAY(REFUSED, UNSURE),
						     STAY(UNSENT, UNSURE),
						     STAY(UNWANTED, UNSURE),
						     STAY(RECALLED, UNSURE),
						     STAY(ASKED, UNSURE),
						     STAY(LINGERED, UNSURE),
						     STAY(DRAINED, UNSURE),
						     ROW(FREE, UNSURE, LEASE_DO_UNPROBE),
						     ROW(SHARED, UNSURE, LEASE_DO_UNPROBE),
						     STAY(IN_USE, UNSURE),
						     STAY(KEPT, UNSURE),
						     STAY(NEEDED, UNSURE),
						     STAY(STOPPED, UNSURE),
						     STAY(SUPERSEDED, UNSURE),
						     STAY(RELEASED, UNSURE),
						     STAY(SHRUNK, UNSURE),
						     ROW(UP, UNSURE, LEASE_DO_CONFIRM),
						     STAY(EXPIRED, UNSURE),
						     ROW(STANDS, HELD, OPEN),
						     ROW(UNSHRUNK, SHRINKING, LEASE_DO_SHARE | LEASE_DO_SHRINK),
						     ROW(GONE, ENDED, LOSE),
						     ROW(FORGOTTEN, UNSURE, LEASE_DO_CONFIRM)});
}
END_TEST

START_TEST(ended)
{
	struct row rows[LEASE_EVENTS];

	for (int e = 0; e < LEASE_EVENTS; e++)
		rows[e] =
			(struct row){e, LEASE_ENDED, e == LEASE_EV_FREE || e == LEASE_EV_SHARED ? LEASE_DO_UNPROBE : 0};
	check_state(LEASE_ENDED, rows);
}
END_TEST

/* Laws that hold for every pair, whatever the rows say. */
START_TEST(laws)
{
	for (int s = 0; s < LEASE_STATES; s++) {
		for (int e = 0; e < LEASE_EVENTS; e++) {
			struct lease_step step = lease_step(s, e);

			/* The table of leases says that it goes back before a release is sent; and never of one that is lost, whose
			 * holders the parent has to find there. */
			if (step.actions & LEASE_DO_RELEASE && s != LEASE_RELEASING)
				ck_assert(step.actions & LEASE_DO_RETURN);
			if (step.actions & LEASE_DO_LOST)
				ck_assert(!(step.actions & LEASE_DO_RETURN));
			/* In use or not is found out before it is given back: only a probe's result or another lease of
			 * ours leads from a lease to its release. */
			if (lease_is_ours(s) && step.next == LEASE_RELEASING)
				ck_assert(e == LEASE_EV_FREE || e == LEASE_EV_SUPERSEDED);
			/* A probe starts only after the pins have ended. */
			if (step.actions & LEASE_DO_PROBE)
				ck_assert_int_eq(e, LEASE_EV_DRAINED);
			/* What has ended stays so, and what is lost is said. */
			if (s == LEASE_ENDED)
				ck_assert_int_eq(step.next, LEASE_ENDED);
			if (lease_is_ours(s) && step.next == LEASE_ENDED)
				ck_assert(step.actions & LEASE_DO_LOST);
			/* Unsure leases open only when the store has confirmed them. */
			if (s == LEASE_UNSURE && step.next == LEASE_HELD)
				ck_assert_int_eq(e, LEASE_EV_STANDS);
			/* Past the deadline nothing stays open. */
			if (e == LEASE_EV_EXPIRED)
				ck_assert(step.next != LEASE_HELD);
		}
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("lease");
	TCase *tc = tcase_create("table");
	SRunner *runner;
	int failed;

	tcase_add_test(tc, asking);
	tcase_add_test(tc, held);
	tcase_add_test(tc, draining);
	tcase_add_test(tc, probing);
	tcase_add_test(tc, waiting);
	tcase_add_test(tc, stopping);
	tcase_add_test(tc, shrinking);
	tcase_add_test(tc, releasing);
	tcase_add_test(tc, unsure);
	tcase_add_test(tc, ended);
	tcase_add_test(tc, laws);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
