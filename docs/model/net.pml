/*
 * Calls under way: the filter hands a thread's lock call to a supervisor. The supervisor asks the keeper; the keeper writes an entry
 * into the table that its parent and the next keeper share, and answers; the supervisor lets the kernel continue the call, and the kernel
 * takes the lock at any later moment, or not at all. One exclusive lock, two hosts with a kernel lock each; for each host a keeper,
 * its parent, and two supervisors of which the second goes on when the first has died.
 *
 * What is shown: a thread whose call got the lock executes instructions of its program only while its host has the lease, so threads of
 * both hosts never do at the same time; no call meets the keeper's own probe. With LIVE: when nothing can go on, nobody waits.
 *
 * HOSTS=2     both hosts are modelled, with a thread each; else one, with THREADS, and the other one only has the lease at times
 * DEATHS=n    so many supervisors die; what they asked may still lie at the keeper
 * CRASHES=n   so many keepers die
 * OUTAGES=n   so many times a lease cannot be renewed
 * LIVE        each thread makes CALLS calls, and the other host wants the lease once
 *
 * PROCESS     all threads are one process, which is stopped, goes on and ends as a whole; else each is a process
 *
 * REPLAY      one thread, and only what a run of the simulator did (replay.py): each step that a letter of tests/sim/lives.c stands for happens
 *             when that letter is next. All else may happen at any moment, as often as it likes
 *
 * Mutants, each of which must be caught:
 *   the entry           ENTER_LATE (after the answer) NOT_TAKEN_UP (by the next keeper) PROBE_EARLY (while there is one)
 *   old questions       STALE_ENDS, SAME_ENDS (an entry) STALE_ENTERS (although a later one is there) KEEPS_STALE
 *   proofs              RUNS_IS_OUT HANDS_ARE_OUT (a call that the supervisor has) SEEN_ANY (ends an entry of a later call) NO_SEE_OUT
 *   asked again         SECOND_CONTINUES (without asking) LATE_CONTINUE (after the answer's time) KEEPS_ENTERED NO_REASK
 *   an outage           HOLDERS_ONLY HOLDERS_FIRST LOCK_FIRST (looks for the lock before the stop) HELD_GOES THAW_FIRST
 *                       EACH_THREAD (looks at one thread of a process, with PROCESS)
 */
#ifdef REPLAY
c_decl {
\#include "lives.h"
}
#define THREADS 1
#define DEATHS  1
#define CRASHES 1
#define OUTAGES 1
#define CALLS   255
short at;                       /* the next letter of the life: */
byte next;
#define TAKE                    c_code { now.at = lives_step(now.at); now.next = lives_letter(now.at); }
#define STEP(letter, when, what) atomic { next == letter && (when) -> TAKE; what }
#define ENDS(t)                 (entry[t] == 0 || next == (entry[t] == LAST -> 'x' : 'y'))
#define END(t)                  if :: entry[t] -> TAKE; entry[t] = 0 :: else fi
#define END_ALL(t)              END(t)
#define NOTES(t, n)             (entry[t] >= n || (entry[t] == 0 && next == (n == LAST -> 'E' : 'F')))
#define NOTE(t, n)              if :: entry[t] < n -> TAKE; entry[t] = n :: else fi
#define SPEND(what)             skip
#else
#define STEP(letter, when, what) atomic { (when) -> what }
#define ENDS(t)                 true
#define END(t)                  entry[t] = 0
#define END_ALL(t)              SET(entry, 0)
#define NOTES(t, n)             true
#define NOTE(t, n)              if :: entry[t] < n -> entry[t] = n :: else fi
#define SPEND(what)             what--
#endif
#ifndef HOSTS
#define HOSTS 1
#endif
#ifndef THREADS
#define THREADS 2 /* all of them */
#endif
#ifndef DEATHS
#define DEATHS 0
#endif
#ifndef CRASHES
#define CRASHES 0
#endif
#ifndef OUTAGES
#define OUTAGES 0
#endif
#ifndef CALLS
#define CALLS 2
#endif
#if HOSTS == 2
#define HOST(t)     (t)
#define FIRST(h)    (h)
#define BEYOND(h)   ((h) + 1)
#else
#define HOST(t)     0
#define FIRST(h)    0
#define BEYOND(h)   THREADS
#endif
#define MINE(h)     ((h) + 1)
#define PROBE       9

/* ASKED: with the supervisor. CALLED: continued, and still without the lock: in the window, or waiting for a local holder.
 * LOCKED: has the lock, and is still in the kernel. OUT, RUNS: in the program, without or with the lock. */
mtype:thread = { OUT, ASKED, CALLED, LOCKED, RUNS, DEAD };
/* What the supervisor knows of the call. NEW: it has not received it. CHECKED: the answer's time had not passed. */
mtype:call = { NEW, ASKS, GRANTED, CHECKED };
/* The question: none, on its way, kept by the keeper, its entry is written. (ANSWERED: ENTER_LATE only.) */
mtype:question = { NO, SENT, KEPT, ENTERED, ANSWERED };
/* The lease at the keeper. RECALLED: no new entries. FREE: the probe has seen it free. */
mtype:closing = { OPEN, RECALLED, PROBING, FREE };

mtype:thread state[THREADS];
mtype:call call[THREADS];
mtype:question question[THREADS];
bool waits[THREADS];            /* the call is one that waits */
bool fresh[THREADS];            /* the time up to which the answer counts has not passed */
bool stopped[THREADS];          /* executes nothing of its program; what it has begun in the kernel goes on */
bool killed[THREADS];

/* Numbers of calls, as an order: 4 is the thread's last call, less is earlier, 0 none. */
#define LAST 4
byte entry[THREADS];            /* in the table: a call under way */
byte old[THREADS];              /* a question that nobody waits for any longer, and which the keeper will read some time */
bool old_kept[THREADS];         /* ... has read */
byte seen[THREADS];             /* the keeper has a proof, and will act on it: the thread is out of this call */

byte kernel[HOSTS];             /* who has the kernel lock: 0 nobody, thread + 1, PROBE */
byte lease;                     /* the store: 0, or MINE(h); 2 is the other host */
bool wants[2];                  /* at the store */
mtype:closing closing[HOSTS];
bool expired[HOSTS];            /* the time of the lease is over for the host */

byte deaths = DEATHS, crashes = CRASHES, outages = OUTAGES;
byte calls[THREADS];

#ifdef LIVE
#define BEGIN(t)        calls[t]++
#define AGAIN(t)        calls[t]--
#define MAY_END(t)      !waits[t]
#else
#define BEGIN(t)        skip
#define AGAIN(t)        skip
#define MAY_END(t)      true
#endif
#define BELIEVES(t) (state[t] == RUNS && !stopped[t] && !killed[t])
#define IN_PROGRAM(t) (state[t] == OUT || state[t] == RUNS || state[t] == DEAD)

/* The thread begins a call: its number is the highest. The order of the others stays. */
#define HAS(t, n)       (entry[t] == n || old[t] == n || seen[t] == n)
#define DOWN(t, n) \
	if :: entry[t] == n -> entry[t] = n - 1 :: else fi; \
	if :: old[t] == n -> old[t] = n - 1 :: else fi; \
	if :: seen[t] == n -> seen[t] = n - 1 :: else fi
inline next_number(t) {
	if
	:: HAS(t, LAST) && HAS(t, 3) -> DOWN(t, 2); DOWN(t, 3)
	:: else
	fi;
	DOWN(t, LAST)
}

/* Nobody waits for the answer any longer; the keeper may know that or not. One such question at a time, and of one thread. */
inline withdraw(t) {
	if
#if DEATHS > 0
	:: t == 0 && (question[t] == SENT || question[t] == KEPT) -> old[t] = LAST; old_kept[t] = (question[t] == KEPT)
#endif
	:: true
	fi;
	question[t] = NO
}

proctype thread(byte t)
{
end:	do
	:: STEP('c', state[t] == OUT && !stopped[t] && !killed[t] && calls[t] < CALLS,
		BEGIN(t);
		next_number(t);
		if :: waits[t] = true :: waits[t] = false fi;
		state[t] = ASKED)
	/* The supervisor has not received the call. */
	:: STEP('n', state[t] == ASKED && call[t] == NEW && (stopped[t] || killed[t]), AGAIN(t); state[t] = OUT)
	/* Also when it is to stop or to end: it does so at the boundary of the kernel. */
	:: STEP('l', state[t] == CALLED && kernel[HOST(t)] == 0,
		kernel[HOST(t)] = t + 1; state[t] = LOCKED; waits[t] = false)
	:: STEP('o', state[t] == CALLED && kernel[HOST(t)] != 0 && !waits[t],
		assert(kernel[HOST(t)] != PROBE || killed[t]);
		state[t] = OUT)
	/* It waits for a local holder. ptrace (in a recall) or a stop ends that, and the call begins anew. */
	:: STEP('o', state[t] == CALLED && waits[t] && (closing[HOST(t)] != OPEN || stopped[t]),
		AGAIN(t);
		waits[t] = false;
		state[t] = OUT)
	:: STEP('r', state[t] == LOCKED && !killed[t], state[t] = RUNS)
	:: STEP('u', state[t] == RUNS && !stopped[t] && !killed[t], kernel[HOST(t)] = 0; state[t] = OUT)
	:: atomic { killed[t] && state[t] != DEAD ->
		if :: kernel[HOST(t)] == t + 1 -> kernel[HOST(t)] = 0 :: else fi;
		state[t] = DEAD;
		waits[t] = false;
		call[t] = NEW;
		fresh[t] = false;
		withdraw(t) }
	:: state[t] == DEAD -> break
	od
}

/* Both supervisors of a host, and what they do for one thread. */
proctype supervisor(byte t)
{
end:	do
	:: atomic { state[t] == ASKED && call[t] == NEW -> call[t] = ASKS; question[t] = SENT }
#ifdef LATE_CONTINUE
	:: atomic { call[t] == GRANTED -> call[t] = CHECKED; fresh[t] = false }
#else
	:: atomic { call[t] == GRANTED && fresh[t] -> call[t] = CHECKED; fresh[t] = false }
	:: atomic { call[t] == GRANTED && !fresh[t] -> call[t] = ASKS; question[t] = SENT }
#endif
	:: STEP('g', call[t] == CHECKED, call[t] = NEW; state[t] = CALLED)
	/* An error is the answer: another host has the lock, and the call is not one that waits; or a signal came. */
	:: STEP('n', (call[t] == ASKS || call[t] == GRANTED) && MAY_END(t),
		call[t] = NEW;
		fresh[t] = false;
		state[t] = OUT;
		waits[t] = false;
		withdraw(t))
	:: state[t] == DEAD -> break
	od
}

/* The second supervisor knows all received calls, and asks anew. */
proctype deaths_of_supervisors(byte h)
{
	byte t;
end:	do
	:: atomic { deaths > 0 ->
		SPEND(deaths);
		for (t : FIRST(h) .. BEYOND(h) - 1) {
			if
			:: call[t] != NEW ->
				withdraw(t);
				fresh[t] = false;
#ifdef SECOND_CONTINUES
				call[t] = CHECKED
#else
				call[t] = ASKS;
				question[t] = SENT
#endif
			:: else
			fi
		};
		t = 0 }
	od
}

/* The proofs that a thread is out of its earlier calls: it sleeps elsewhere, it stopped for ptrace, or it has ended. */
#if defined RUNS_IS_OUT
#define IS_OUT(t)       (IN_PROGRAM(t) || state[t] == CALLED || state[t] == LOCKED)
#elif defined HANDS_ARE_OUT
#define IS_OUT(t)       (IN_PROGRAM(t) || state[t] == ASKED)
#else
#define IS_OUT(t)       IN_PROGRAM(t)
#endif

/* The question of a call that has its entry, but was not continued (the answer was lost or came late). This call is in the supervisor's
 * hands, so no proof ends its entry before it is answered: it is granted although the lease is recalled. */
#ifdef KEEPS_ENTERED
#define AGAIN_ASKED(t)  false
#else
#define AGAIN_ASKED(t)  (entry[t] == LAST)
#endif

/* The keeper has a question of a later call than the old one. */
#ifdef KEEPS_STALE
#define NEWER_KNOWN(t)  false
#else
#define NEWER_KNOWN(t)  (old[t] < LAST && (question[t] == KEPT || question[t] == ENTERED))
#endif

/* What the keeper does about one thread. */
proctype calls_under_way(byte t)
{
end:	do
	/* It reads a question: the thread has left its earlier calls, so their entry ends, and so does a question of theirs. */
	:: atomic { question[t] == SENT && (entry[t] == LAST || ENDS(t)) ->
		question[t] = KEPT;
		if :: entry[t] < LAST -> END(t) :: else fi;
#ifndef KEEPS_STALE
		if :: old_kept[t] && old[t] < LAST -> old[t] = 0; old_kept[t] = false :: else fi
#endif
		}
	/* ... that nobody waits for any longer. */
	:: atomic { old[t] && !old_kept[t] && !NEWER_KNOWN(t) && (entry[t] >= old[t] || ENDS(t)) ->
#if defined STALE_ENDS
		entry[t] = 0;
#elif defined SAME_ENDS
		if :: entry[t] <= old[t] -> entry[t] = 0 :: else fi;
#else
		if :: entry[t] < old[t] -> END(t) :: else fi;
#endif
		old_kept[t] = true }
	:: atomic { old[t] -> old[t] = 0; old_kept[t] = false } /* the supervisor's connection has ended */
	/* It grants. Its look at the clock may have been long ago. */
	:: atomic { question[t] == KEPT && lease == MINE(HOST(t)) && (closing[HOST(t)] == OPEN || AGAIN_ASKED(t)) && NOTES(t, LAST) ->
#ifndef ENTER_LATE
		NOTE(t, LAST);
#endif
		question[t] = ENTERED;
		fresh[t] = !expired[HOST(t)] }
	:: atomic { question[t] == ENTERED ->
		call[t] = GRANTED;
#ifdef ENTER_LATE
		question[t] = ANSWERED }
	:: atomic { question[t] == ANSWERED -> entry[t] = LAST; question[t] = NO }
#else
		question[t] = NO }
#endif
	:: atomic { old_kept[t] && lease == MINE(HOST(t)) && closing[HOST(t)] == OPEN && NOTES(t, old[t]) ->
#if defined STALE_ENTERS
		entry[t] = old[t];
#else
		NOTE(t, old[t]);
#endif
		old[t] = 0;
		old_kept[t] = false }
	/* It sees that the thread is out of the call of its entry, and ends the entry. */
#ifndef NO_SEE_OUT
	:: atomic { entry[t] && !seen[t] && closing[HOST(t)] != OPEN && IS_OUT(t) -> seen[t] = entry[t] }
#endif
	:: atomic { seen[t] && (seen[t] != entry[t] || ENDS(t)) ->
#ifdef SEEN_ANY
		entry[t] = 0;
#else
		if :: seen[t] == entry[t] -> END(t) :: else fi;
#endif
		seen[t] = 0 }
	od
}

#ifdef PROBE_EARLY
#define ENTRIES(h)      false
#else
#define ENTRIES(h)      (entry[FIRST(h)] || entry[BEYOND(h) - 1])
#endif
#define WANTED(t)       (question[t] == KEPT || old_kept[t])

/* What it does about the lease. */
proctype keeper(byte h)
{
	byte t;
end:	do
	:: atomic { lease != MINE(h) && !wants[h] && (WANTED(FIRST(h)) || WANTED(BEYOND(h) - 1)) -> wants[h] = true }
	:: atomic { lease == 0 && wants[h] -> lease = MINE(h); wants[h] = false }
	:: atomic { lease == MINE(h) && wants[1 - h] && closing[h] == OPEN -> closing[h] = RECALLED }
	:: atomic { closing[h] == RECALLED && !ENTRIES(h) && kernel[h] == 0 -> kernel[h] = PROBE; closing[h] = PROBING }
	:: atomic { closing[h] == PROBING -> kernel[h] = 0; closing[h] = FREE }
	:: atomic { closing[h] == FREE && !expired[h] -> lease = 0; closing[h] = OPEN }
	/* The other host does not want it any longer. */
	:: atomic { (closing[h] == RECALLED || closing[h] == FREE) && !wants[1 - h] -> closing[h] = OPEN }
	/* It dies, and the next one goes by the table. */
	:: atomic { crashes > 0 ->
		SPEND(crashes);
		closing[h] = OPEN;
		if :: kernel[h] == PROBE -> kernel[h] = 0 :: else fi;
		for (t : FIRST(h) .. BEYOND(h) - 1) {
#ifdef NO_REASK
			question[t] = NO;
#else
			if :: call[t] == ASKS -> question[t] = SENT :: else -> question[t] = NO fi;
#endif
			old[t] = 0;
			old_kept[t] = false;
			seen[t] = 0;
#ifdef NOT_TAKEN_UP
			entry[t] = 0;
#endif
		};
		t = 0 }
	od
}

#define EACH(act) \
	do \
	:: atomic { t < BEYOND(h) - 1 -> act; t++ } \
	:: atomic { t == BEYOND(h) - 1 -> act; t = FIRST(h); break } \
	od
#ifdef PROCESS
#define SET(what, v)    what[0] = v; what[THREADS - 1] = v
#else
#define SET(what, v)    what[t] = v
#endif
#define STOP(if_so)     if :: if_so -> SET(stopped, true) :: else fi

#define HAS_LOCK        (kernel[h] == t + 1)
#ifdef LOCK_FIRST
#define SEEN_LOCK       has_lock
#else
#define SEEN_LOCK       HAS_LOCK
#endif
#if defined PROCESS && !defined EACH_THREAD
#define REALLY_STOPPED  (IN_PROGRAM(0) && IN_PROGRAM(THREADS - 1))
#undef SEEN_LOCK
#define SEEN_LOCK       (kernel[h] != 0)
#else
#define REALLY_STOPPED  IN_PROGRAM(t)
#endif
/* The lease is lost. A thread that has really stopped (it is not in the kernel) stays as it is while the parent looks at it. */
inline end_or_let_go() {
	if
	:: stopped[t] ->
#ifdef LOCK_FIRST
		has_lock = HAS_LOCK;
#endif
		if
		:: atomic { REALLY_STOPPED && !SEEN_LOCK && ENDS(t) ->
#ifdef THAW_FIRST
			SET(stopped, false) };
			atomic { SET(entry, 0) }
#else
			END_ALL(t) };
			atomic { SET(stopped, false) }
#endif
#ifdef HELD_GOES
		:: atomic { !REALLY_STOPPED -> SET(entry, 0); SET(stopped, false) }
#endif
		:: atomic { (!REALLY_STOPPED || SEEN_LOCK) && ENDS(t) -> SET(killed, true); END_ALL(t) }
		fi
	:: else
	fi
}

/* Stops what relies on a lease that cannot be renewed, before its time is over; ends or lets go what it has stopped. */
proctype parent(byte h)
{
	byte t = FIRST(h);
	bool has_lock;
end:	do
	:: atomic { outages > 0 && lease == MINE(h) && !expired[h] ->
		SPEND(outages);
		expired[h] = true;
		for (t : FIRST(h) .. BEYOND(h) - 1) { fresh[t] = false };
		t = FIRST(h) };
		/* The table before the locks: a thread that leaves its call meanwhile is found in one of them. */
#ifdef HOLDERS_FIRST
		EACH(STOP(HAS_LOCK));
		EACH(STOP(entry[t]));
#else
#ifndef HOLDERS_ONLY
		EACH(STOP(entry[t]));
#endif
		EACH(STOP(HAS_LOCK));
#endif
		if
		:: expired[h] = false;
			EACH(SET(stopped, false))
		:: atomic { lease = 0; expired[h] = false;
			if :: kernel[h] == PROBE -> kernel[h] = 0 :: else fi;
			closing[h] = OPEN };
			do
			:: t < BEYOND(h) - 1 -> end_or_let_go(); t++
			:: t == BEYOND(h) - 1 -> end_or_let_go(); t = FIRST(h); break
			od
		fi;
		has_lock = false
	od
}

#if HOSTS == 1
/* It wants the lock, gets it, or changes its mind. */
proctype other_host()
{
#ifdef LIVE
	wants[1] = true;
end:	do
#else
end:	do
	:: atomic { !wants[1] && lease != 2 -> wants[1] = true }
	:: wants[1] = false
#endif
	:: atomic { wants[1] && lease == 0 -> lease = 2; wants[1] = false }
	:: lease == 2 -> lease = 0
	od
}
#endif

#ifdef REPLAY
/* Other threads of this host, of whose calls nothing is said. */
proctype local_holder()
{
end:	do
	:: atomic { kernel[0] == 0 -> kernel[0] = THREADS + 1 }
	:: atomic { kernel[0] == THREADS + 1 -> kernel[0] = 0 }
	od
}
#endif

#define BAD(t)          (BELIEVES(t) && lease != MINE(HOST(t)))
#define WAITING(t)      (state[t] != OUT && state[t] != DEAD)

init {
	byte t;
	atomic {
		for (t : 0 .. THREADS - 1) {
			state[t] = OUT; call[t] = NEW; question[t] = NO;
			run thread(t); run supervisor(t); run calls_under_way(t)
		};
		for (t : 0 .. HOSTS - 1) {
			closing[t] = OPEN;
			run keeper(t); run parent(t); run deaths_of_supervisors(t)
		};
#if HOSTS == 1
		run other_host();
#endif
#ifdef REPLAY
		run local_holder();
		c_code { now.next = lives_letter(0); };
#endif
		t = 0
	};
end:	do
	:: atomic { BAD(0) || BAD(THREADS - 1) -> assert(false) }
#ifdef LIVE
	:: atomic { timeout -> assert(!WAITING(0) && !WAITING(THREADS - 1) && !wants[0] && !wants[1]); break }
#endif
	od
}
