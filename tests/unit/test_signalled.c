/* keeper/guard/signalled.c: which processes go on after an outage because a process of theirs was stopped by SIGSTOP.
 * Made-up processes; test_stopped.c has real ones. */
#include "keeper/guard/stopped.h"

#include "tests/unit/suite.h"

#define ROOM 8

/* pid 10 is a job that got SIGSTOP; 20 its parent, in group 2; 30 in the same group; 40 in another. */
enum { JOB, PARENT, PEER, OTHER, COUNT };
static struct procfs_stat all[COUNT];
static struct table_signalled noted[ROOM];
static struct signalled s;

static void setup(void)
{
	for (int i = 0; i < COUNT; i++)
		all[i] = (struct procfs_stat){
			.pid = 10 * (i + 1), .parent = 1, .group = 2, .state = 'S', .started = 100 + i};
	all[JOB].group = 1;
	all[JOB].parent = 20;
	all[OTHER].group = 4;
	for (int i = 0; i < ROOM; i++)
		noted[i] = (struct table_signalled){0};
	s = (struct signalled){.noted = noted, .room = ROOM, .before = all, .before_count = COUNT};
}
FIXTURE(setup, NULL)

static void stop(int which)
{
	all[which].state = 'T';
	all[which].stop_signal = SIGSTOP;
}

static bool goes_on(int which)
{
	signalled_note_stopped(&s, all, COUNT);
	return signalled_is_to_go_on(&s, &all[which], all, COUNT);
}

static void note(void)
{
	signalled_add(&s, &all[JOB], TABLE_OURS);
	signalled_note_kin(&s, &all[PARENT]);
}

TEST(ancestors_and_their_groups)
{
	note();
	ck_assert(!goes_on(PARENT)); /* it runs */
	for (int i = 0; i < COUNT; i++)
		stop(i);
	ck_assert(goes_on(PARENT) && goes_on(PEER));
	ck_assert(!goes_on(OTHER));
	ck_assert(!goes_on(JOB)); /* signalled_continue() does that */
}

/* A script, and what it has started beside the job. */
TEST(the_group_of_an_ancestor_that_runs)
{
	note();
	stop(PEER);
	ck_assert(!goes_on(PEER));
	stop(PARENT);
	ck_assert(goes_on(PEER) && goes_on(PARENT));
	all[PARENT].state = 'S'; /* it has been continued first */
	ck_assert(goes_on(PEER) && !goes_on(PARENT));
	note();
	ck_assert_int_eq(noted[2].pid, 0);
}

TEST(stopped_before_stays_so)
{
	stop(PEER);
	note();
	stop(PARENT);
	ck_assert(goes_on(PARENT) && !goes_on(PEER));
}

TEST(a_terminals_stop_stays)
{
	note();
	stop(PARENT);
	all[PARENT].stop_signal = SIGTSTP;
	ck_assert(!goes_on(PARENT));
	all[PARENT].stop_signal = 0; /* this kernel does not say */
	ck_assert(goes_on(PARENT));
}

TEST(another_process_with_the_number)
{
	note();
	stop(PARENT);
	all[PARENT].started++;
	ck_assert(!goes_on(PARENT));
}

/* Kin must not take the room of processes that only these notes let go. */
TEST(room_for_our_own)
{
	for (int i = 0; i < ROOM; i++)
		signalled_add(&s, &(struct procfs_stat){.pid = 100 + i, .started = 1}, TABLE_KIN);
	ck_assert_int_ne(noted[ROOM / 2 - 1].pid, 0);
	ck_assert_int_eq(noted[ROOM / 2].pid, 0);
	for (int i = 0; i < ROOM; i++)
		signalled_add(&s, &(struct procfs_stat){.pid = 200 + i, .started = 1}, TABLE_OURS);
	ck_assert_int_eq(noted[ROOM - 1].noted, TABLE_OURS);
	ck_assert_int_ne(noted[ROOM - 1].pid, 0);
}

TEST(each_once)
{
	note();
	note();
	ck_assert_int_eq(noted[2].pid, 0);
}
