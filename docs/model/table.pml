/*
 * One slot of the table of leases (keeper/guard/table.c), store by store: the keeper writes it and may die between any two
 * stores, the next keeper takes up what it finds, the parent reads it at the same time, stops and kills by it, and frees it
 * when the lease was lost. LEASES leases have the slot, one after the other; requests are executed by the store when it
 * likes, also after the keeper that sent them has died.
 *
 * What is shown: a process that relies on a lease is stopped before another host may have the lease, and goes on only if
 * the store still has it (promise 3); a lease that was given back or shrunk never opens again, whatever is executed late; the
 * next keeper knows of each lease that the store may have; the parent never sees half a slot; a slot that the parent frees
 * is not taken before it is done with it; and what a crash leaves is never taken for damage.
 *
 * REPLAY        one lease, and only what a run of the simulator did (replay.py): each step that a letter of tests/sim/lives.c stands for
 *               happens when that letter is next
 *
 * Mutants, each of which must be caught: ASK_LATE HELD_FIRST TELL_FIRST SHARE_LATE RETURN_LATE LOSE_BY_RETURN REOPENS
 * READ_ONCE NO_BUSY.
 */
#ifdef REPLAY
c_decl {
\#include "lives.h"
}
#define LEASES  1
#define CRASHES 100
short at;               /* the next letter of the life: */
byte next;
#define STEP(letter, what) atomic { next == letter -> c_code { now.at = lives_step(now.at); now.next = lives_letter(now.at); }; what }
#else
#define STEP(letter, what) what
#endif

#ifndef LEASES
#define LEASES 2
#endif
#ifndef CRASHES
#define CRASHES 1
#endif

mtype:state = { FREE, ASKED, HELD, UNSURE, RETURNED, LOST, ENDING };

/* The slot: word is state, generation and mode at once. What is written of a lease g: 2 * g as asked for, 2 * g + 1 as granted. */
mtype:state state = FREE;
byte generation;
bool shared;
byte from, to, fence, sum, text;
bool busy;

/* The store, by generation. */
bool asked[LEASES + 1], granted[LEASES + 1], shrinks[LEASES + 1], releases[LEASES + 1]; /* requests that were sent */
bool has[LEASES + 1];                                                                  /* the lease */
bool has_shared[LEASES + 1];
bool gone[LEASES + 1];  /* it was released, or another host has it */
bool taken[LEASES + 1]; /* another host has it */

/* Processes of this host. */
bool relies[LEASES + 1], exclusively[LEASES + 1], stopped[LEASES + 1];

bool expired;     /* the host was silent for as long as its leases were sure */
bool looked;      /* ... and the parent has stopped since those that it found */
byte keeper;      /* which process it is; 0: it has died */
byte crashes = CRASHES;
bool starting;    /* the parent has yet to look at what the dead keeper left */

#define IS_LEASE(s) (s == HELD || s == UNSURE)

/* --- the keeper: each line is one store, or what others see of it --- */

inline take_slot() {
	byte g = generation + 1;
#ifndef NO_BUSY
	busy = true;
#endif
	text = g;
	STEP('f', from = 2 * g);
	STEP('t', to = 2 * g);
	STEP('z', fence = 0);
#ifdef ASK_LATE
	asked[g] = true;
#endif
	STEP('A', d_step { state = ASKED; generation = g; shared = false });
	asked[g] = true
}

inline grant() {
#ifdef HELD_FIRST
	state = HELD;
#endif
	STEP('f', from = 2 * generation + 1);
	STEP('t', to = 2 * generation + 1);
	STEP('n', fence = generation);
	STEP('s', sum = generation);
#ifdef TELL_FIRST
	tell();
#endif
	STEP('H', state = HELD);
	tell()
}

/* A caller gets its answer, and relies on it for as long as it likes; never past the deadline. */
inline tell() {
	atomic {
		if
		:: !expired && has[generation] -> relies[generation] = true; exclusively[generation] = !shared
		:: else
		fi
	}
}

inline share() {
#ifdef SHARE_LATE
	shrinks[generation] = true;
#endif
	STEP('M', shared = true);
	shrinks[generation] = true
}

inline give_back() {
#ifdef RETURN_LATE
	releases[generation] = true;
#endif
	if
	:: state == RETURNED
	:: else -> STEP('R', state = RETURNED)
	fi;
	releases[generation] = true
}

inline lose() {
#ifdef LOSE_BY_RETURN
	state = RETURNED;
#endif
	STEP('L', state = LOST)
}

inline free_slot() {
	STEP('O', state = FREE);
	busy = false
}

/* What a dead keeper left. */
inline take_up() {
	if
	:: state == ASKED || state == RETURNED ->
#ifdef REOPENS
		if
		:: state == RETURNED && fence == generation -> state = UNSURE
		:: else -> give_back()
		fi
#else
		assert(text == generation);
		give_back()
#endif
	:: IS_LEASE(state) ->
		assert(text == generation && fence == generation && sum == generation && from == 2 * generation + 1 && to == from);
		assert(state == UNSURE) /* the parent saw to it */
	:: else
	fi
}

proctype Keeper() provided (keeper == _pid)
{
	take_up();
end:	do
#ifdef NO_BUSY
	:: state == FREE && generation < LEASES ->
#else
	:: state == FREE && !busy && generation < LEASES ->
#endif
		take_slot()
	:: state == ASKED && granted[generation] && has[generation] && !expired -> grant()
	:: state == ASKED -> give_back()
	:: state == HELD && expired -> STEP('U', state = UNSURE)
	:: state == HELD && !expired -> tell()
	/* No process has it exclusively, as a probe says; no caller is granted while it is closed. */
	:: state == HELD && !shared && !exclusively[generation] -> share()
	:: state == HELD && !relies[generation] -> give_back()
	/* Asks the store: the answer renews, if it is not late. */
	:: atomic { state == UNSURE && has[generation] && (shared || !has_shared[generation]) -> expired = false; looked = false };
		STEP('H', state = HELD)
	:: state == UNSURE && gone[generation] -> lose()
	/* A request that is not sent again may never arrive; sending it twice does no harm. */
	:: state == RETURNED && (gone[generation] || !has[generation]) && !releases[generation] -> free_slot()
	od
}

/* --- the store: executes what was sent, once, at any time; gives away what a silent host has --- */

active proctype Store()
{
	byte g;
end:	do
	:: atomic { asked[1] -> asked[1] = false; has[1] = !gone[1]; granted[1] = true }
	:: atomic { asked[LEASES] -> asked[LEASES] = false; has[LEASES] = !gone[LEASES]; granted[LEASES] = true }
	:: atomic { shrinks[1] -> shrinks[1] = false; has_shared[1] = true }
	:: atomic { shrinks[LEASES] -> shrinks[LEASES] = false; has_shared[LEASES] = true }
	:: atomic { releases[1] -> releases[1] = false; has[1] = false; gone[1] = true }
	:: atomic { releases[LEASES] -> releases[LEASES] = false; has[LEASES] = false; gone[LEASES] = true }
	:: atomic { expired && looked && has[1] -> has[1] = false; gone[1] = true; taken[1] = true }
	:: atomic { expired && looked && has[LEASES] -> has[LEASES] = false; gone[LEASES] = true; taken[LEASES] = true }
	od
}

/* --- the parent --- */

active proctype Parent()
{
	mtype:state s;
	byte g, f, t;
	bool began; /* the look began after the deadline */

end:	do
	:: atomic { starting -> starting = false;
		if :: state == HELD -> STEP('U', state = UNSURE) :: else fi;
		busy = state != FREE;
		STEP('K', keeper = run Keeper()) }
	/* A look: the word, the rest, and the word again. */
	:: d_step { s = state; g = generation; began = expired };
		f = from;
		t = to;
		if
#ifdef READ_ONCE
		:: true ->
#else
		:: atomic { s == state && g == generation ->
#endif
			if
			:: IS_LEASE(s) && f == 2 * g + 1 && t == f ->
				if :: began && expired -> stopped[g] = true; looked = true :: else fi
			:: IS_LEASE(s) && (f != 2 * g + 1 || t != f) -> assert(false) /* half a slot */
			:: else -> if :: began && expired -> looked = true :: else fi
			fi
#ifndef READ_ONCE
		}
		:: else /* again */
#endif
		fi
	/* The leases are sure again. */
	:: atomic { !expired && (stopped[1] || stopped[LEASES]) && state != UNSURE && state != LOST && state != ENDING ->
		assert(!(relies[1] && stopped[1]) || has[1]);
		assert(!(relies[LEASES] && stopped[LEASES]) || has[LEASES]);
		stopped[1] = false; stopped[LEASES] = false }
	:: atomic { state == LOST -> state = ENDING };
		atomic { relies[generation] = false; exclusively[generation] = false; stopped[generation] = false };
		STEP('O', state = FREE);
		assert(state == FREE);
		busy = false
	od
}

/* --- the world --- */

proctype World()
{
end:	do
	:: atomic { crashes && keeper -> STEP('X', crashes--; keeper = 0; starting = true) }
	:: atomic { !expired -> expired = true; looked = false }
	:: atomic { relies[1] && !stopped[1] -> relies[1] = false; exclusively[1] = false }
	:: atomic { relies[LEASES] && !stopped[LEASES] -> relies[LEASES] = false; exclusively[LEASES] = false }
	:: atomic { exclusively[1] && !stopped[1] -> exclusively[1] = false }
	od
}

/* At every moment: */
#define RIGHT(g)                                                                                                       \
	(!relies[g] || stopped[g] || has[g]) &&                                                                        \
	(!relies[g] || (generation == g && (IS_LEASE(state) || state == LOST || state == ENDING))) &&                   \
	(!exclusively[g] || !shared) &&                                                                                \
	(!(shrinks[g] || has_shared[g]) || generation != g || shared || state == FREE) &&                              \
	(!releases[g] || (generation == g && !IS_LEASE(state)) || generation > g) &&                                   \
	(!(asked[g] || has[g]) || (generation == g && state != FREE) || generation > g || gone[g])

active proctype Monitor()
{
#ifdef REPLAY
	c_code { now.next = lives_letter(0); };
#endif
	run World();
	keeper = run Keeper();
end:	do
	:: atomic { !(RIGHT(1)) -> assert(false) }
	:: atomic { !(RIGHT(LEASES)) -> assert(false) }
	od
}
