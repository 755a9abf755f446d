/*
 * One host and one exclusive lock: programs, the kernel lock, the lease page, pins, the keeper, its probe, and a
 * keeper that dies and is followed by another. The rest of the cluster is one other host, which wants the lock again
 * and again.
 *
 * What is shown: a program that runs after its lock call succeeded has the kernel lock, and its host has the lease, at
 * that moment and until the program unlocks (promises 1 and 2); within a pin the keeper's own probe is in no caller's
 * way; the other host gets the lease in the end.
 *
 * RECORD        the probe looks and takes nothing, and may miss what a processor has not written so far (F_OFD_GETLK)
 * EARLY         the probe's thread gives the lease back itself, as soon as it finds the lock free (keeper/leases/early.c);
 *               not with RECORD. It may be armed in any moment of the probe, whoever wants the lease
 * CRASHES=n     so many keepers die; their table of leases and their words in the page stay
 * BAD_TABLE     ... or the table is damaged
 * LIVE          one program that locks for ever; progress of the other host
 * REPLAY        what a run of the simulator did (replay.py): each step of the keeper and of the first program that a letter of
 *               tests/sim/lives.c stands for happens when that letter is next; of the second program nothing is said
 *
 * Mutants, each of which must be caught: PROBE_FIRST NO_KEEPER_FENCE NO_SHIM_FENCE PAGE_FIRST NO_PINS PIN_PROBED
 * OLD_PINS OLD_WORDS LATE_COUNTS LOCK_FIRST (the last with LIVE); with EARLY: NO_DISARM, the
 * keeper takes another way without disarming the probe.
 */
#ifdef REPLAY
c_decl {
\#include "lives.h"
}
#define EARLY
#define CRASHES         255
short at;                       /* the next letter of the life: */
byte next;
bool other;                     /* another letter than the next one would have been said: no way on from here */
#define SAY(letter)             if :: next == letter -> c_code { now.at = lives_step(now.at); now.next = lives_letter(now.at); } \
				:: else -> other = true fi
#define TOLD                    provided (!other)
#define SPEND(what)             skip
#else
#define SAY(letter)             skip
#define TOLD
#define SPEND(what)             what--
#endif
#ifndef PROGRAMS
#define PROGRAMS 2
#endif
#ifndef CRASHES
#define CRASHES 0
#endif
#define LEASES 2 /* of this host at once: one that is being given back, one that newcomers wait for */
#define KEEPER 9 /* the keeper's probe has the kernel lock */

mtype:lease = { NONE, ASKING, HELD, DRAINING, PROBING, STOPPING, RELEASING, UNSURE };   /* keeper/rules/lease.h */
mtype:store = { ABSENT, QUEUED, LEASE };
mtype:op = { NOTHING, ACQUIRE, RELEASE, CONFIRM, ANSWERED, GONE };
mtype:answer = { SILENT, FREE, STOPPED };
mtype:session = { CLOSED, QUESTION, WAITS, GRANTED, RESET };

byte kernel;                    /* which process has the kernel lock: 0 none, program + 1, KEEPER */
bool written = true;            /* ... and a probe that takes no lock of its own can see it */
bool word[LEASES];              /* the page: open */
bool closing[LEASES];           /* the word's closing is still in the keeper's store buffer */

bool alive = true;              /* the keeper */
mtype:lease state[LEASES];
bool recalled[LEASES];
byte table[LEASES];             /* the table of leases: 0 no entry, 1 asked for, 2 held */
bool probing[LEASES], stopping[LEASES];
bool took[LEASES];              /* the probe has just taken the kernel lock, and lets go of it next */
bool freed[LEASES];             /* it has let go of it, and has said nothing so far */
bool armed[LEASES];             /* the probe's thread gives the lease back ... */
bool fired[LEASES];             /* ... and has done so; the keeper does not know it */
mtype:answer answer[LEASES];
mtype:session session[PROGRAMS];
bool have[PROGRAMS];            /* the question was sent with the kernel lock held */
bool sure[PROGRAMS];            /* the time is before the end of the grant that the program was told */
bool pinned[PROGRAMS];          /* the keeper knows of the pin */
bool needs[PROGRAMS];           /* gets a pin as soon as the probes have stopped; no other probe begins */
bool killed[PROGRAMS];
bool runs[PROGRAMS];            /* the call succeeded, and the program has not unlocked */

mtype:store mine[LEASES];       /* the store's record of this host's leases */
mtype:op op[LEASES];            /* the request under way, and its answer */
bool message[LEASES];           /* a recall is on its way */
mtype:store theirs;             /* the other host */
bool first;                     /* it waits, and came before our waiters */
byte crashes = CRASHES;

#define OTHER(l)        (1 - l)
#define IS_HELD         (state[0] == HELD || state[1] == HELD)
#define IS_OURS(l)      (state[l] == HELD || state[l] == DRAINING || state[l] == PROBING || state[l] == STOPPING || \
			state[l] == UNSURE)
#ifdef REPLAY   /* the page may have no room, or the program no page, and its time may be over */
#define OPEN(l)         if :: !word[l] && next == 'O' -> SAY('O'); word[l] = true :: else fi; closing[l] = false
#define SEES_NO_WORD    true
#define SAYS(i, letter) if :: i == 0 -> SAY(letter) :: else fi
#else
#define OPEN(l)         word[l] = true; closing[l] = false
#define SEES_NO_WORD    !WORD
#define SAYS(i, letter) skip
#endif
#ifdef PROBE_FIRST
#define CLOSE(l)        skip
#define CLOSE_LATE(l)   word[l] = false
#else
#define CLOSE(l)        if :: word[l] -> closing[l] = true :: else fi
#define CLOSE_LATE(l)   skip
#endif
#ifdef NO_KEEPER_FENCE
#define FENCED(l)       true
#else
#define FENCED(l)       (!closing[0] && !closing[1])
#endif
#ifdef NO_PINS
#define IS_PINNED       false
#elif PROGRAMS == 1
#define IS_PINNED       (pinned[0] || needs[0])
#else
#define IS_PINNED       (pinned[0] || pinned[1] || needs[0] || needs[1])
#endif
#ifdef RECORD
#define LOOKS_FREE      (kernel == 0 || !written)
#else
#define LOOKS_FREE      (kernel == 0 || kernel == KEEPER)       /* both probes have the same description */
#endif

inline may_give() {     /* the other host has it from now on */
	assert(!runs[0]);
#if PROGRAMS > 1
	assert(!runs[1]);
#endif
}

/* --- the store: acquire.lua, release.lua, hand_over() --- */

inline hand_over() {
	if
	:: theirs == QUEUED && mine[0] != LEASE && mine[1] != LEASE && (first || (mine[0] != QUEUED &&
		mine[1] != QUEUED)) ->
		theirs = LEASE; first = false; may_give()
	:: else
	fi;
	if
	:: theirs != LEASE && !(theirs == QUEUED && first) ->
		if :: mine[0] == QUEUED -> mine[0] = LEASE :: else fi;
		if :: mine[1] == QUEUED -> mine[1] = LEASE :: else fi
	:: else
	fi;
	if :: theirs == QUEUED -> message[0] = mine[0] == LEASE; message[1] = mine[1] == LEASE :: else fi
}

inline execute(l) {
	if
	:: op[l] == ACQUIRE ->
		if :: mine[l] == ABSENT -> mine[l] = QUEUED; first = first || theirs == QUEUED :: else fi;
		hand_over()
	:: op[l] == RELEASE -> mine[l] = ABSENT; hand_over()
	:: op[l] == CONFIRM
	fi;
	if
	:: op[l] == CONFIRM && mine[l] != LEASE -> op[l] = GONE
	:: op[l] == ACQUIRE && mine[l] != LEASE -> op[l] = NOTHING      /* "granted" comes as a message */
	:: else -> op[l] = ANSWERED
	fi
}

proctype Store() TOLD {
end:	do
	:: d_step { op[0] == ACQUIRE || op[0] == RELEASE || op[0] == CONFIRM -> execute(0) }
	:: d_step { op[1] == ACQUIRE || op[1] == RELEASE || op[1] == CONFIRM -> execute(1) }
	od
}

proctype OtherHost() TOLD {
end:	do
	:: d_step { theirs == ABSENT -> theirs = QUEUED; first = mine[0] != QUEUED && mine[1] != QUEUED; hand_over() }
	:: d_step { theirs == LEASE -> theirs = ABSENT; hand_over() };
#ifdef LIVE
progress:	skip
#else
	:: d_step { theirs == QUEUED -> theirs = ABSENT; first = false; hand_over() }   /* gives up */
	:: d_step { theirs == QUEUED && mine[0] == LEASE -> message[0] = true }         /* asks again */
	:: d_step { theirs == QUEUED && mine[1] == LEASE -> message[1] = true }
#endif
	od
}

/* --- the keeper: lease.c's table, act.c, serve.c --- */

inline learn(l) {        /* early_disarm() */
	armed[l] = false;
	if :: fired[l] -> fired[l] = false; state[l] = RELEASING :: else fi
}

#ifdef NO_DISARM
#define DISARM(l)       skip
#define LEARN(l)        if :: state[l] == PROBING -> learn(l) :: else fi
#elif defined(EARLY)
#define DISARM(l)       learn(l)
#define LEARN(l)        learn(l)
#else
#define DISARM(l)       skip
#define LEARN(l)        skip
#endif

inline supersede(l) {   /* l is open: this host's other lease is of no use any more */
	if
	:: state[OTHER(l)] == HELD || state[OTHER(l)] == DRAINING -> CLOSE(OTHER(l)); to_release(OTHER(l))
	:: state[OTHER(l)] == PROBING -> DISARM(OTHER(l));
		if :: state[OTHER(l)] == PROBING -> state[OTHER(l)] = STOPPING; stopping[OTHER(l)] = true :: else fi
	:: else
	fi
}

inline to_release(l) {  /* the table says so first */
	CLOSE_LATE(l);
	SAY('R');
	state[l] = RELEASING; table[l] = 0; op[l] = RELEASE
}

inline ended(l) {
	state[l] = NONE; recalled[l] = false
}

inline drain(l) {       /* obey(), or no program used it for linger_ms */
	state[l] = DRAINING; CLOSE(l);
	if :: state[OTHER(l)] == HELD -> to_release(l) :: else fi
}

inline granted(l) {
	SAY('H');
	table[l] = 2; state[l] = HELD;
	supersede(l)
}

inline stop_probe(l) {  /* LEASE_EV_NEEDED */
	DISARM(l);
	if :: state[l] == PROBING -> state[l] = STOPPING :: else fi;
	stopping[l] = probing[l]
}

/* lock_stop_probes(): a caller within a pin must not meet the probe of another lease. */
inline pin(i) {
#ifndef PIN_PROBED
	if
	:: probing[0] || probing[1] -> stop_probe(0); stop_probe(1); needs[i] = true
	:: else -> give_pin(i)
	fi
#else
	give_pin(i)
#endif
}

inline give_pin(i) {
	session[i] = GRANTED; needs[i] = false;
	sure[i] = true; pinned[i] = true;
	if :: state[0] == HELD -> OPEN(0) :: else fi;
	if :: state[1] == HELD -> OPEN(1) :: else fi;
	if :: have[i] -> runs[i] = true; assert(mine[0] == LEASE || mine[1] == LEASE) :: else fi
}

inline begin(l) {
	SAY('A');
	state[l] = ASKING; recalled[l] = false; table[l] = 1; op[l] = ACQUIRE
}

inline ask_for_lease(i) {
	if
	:: state[0] == ASKING || state[1] == ASKING
	:: else ->
		if
		:: state[0] == NONE && op[0] == NOTHING && !probing[0] -> begin(0)
		:: else -> if :: state[1] == NONE && op[1] == NOTHING && !probing[1] -> begin(1) :: else fi
		fi
	fi;
	session[i] = WAITS; needs[i] = false
}

/* A caller that has the kernel lock, though only for this call, is no newcomer, nor is one whose pin was due before the
 * recall came. A call that does not wait is none either, but that does not help a caller that waits elsewhere. */
#define NEWCOMER(i, l)  (recalled[l] && !have[i] && !needs[i])
#ifdef LIVE
#define PASSES(i, l)    !NEWCOMER(i, l)
#else
#define PASSES(i, l)    true
#endif

inline serve_closed(i, l) {
	if
	:: state[l] == UNSURE -> needs[i] = false
	:: state[l] != UNSURE && NEWCOMER(i, l) -> ask_for_lease(i)
	:: PASSES(i, l) && state[l] == DRAINING -> pin(i)
	:: PASSES(i, l) && state[l] == PROBING -> needs[i] = true; stop_probe(l)
	:: else -> needs[i] = false
	fi
}

inline serve(i) {
	if
	:: IS_HELD -> pin(i)
	:: else ->
		if
		:: IS_OURS(0) -> serve_closed(i, 0)
		:: else -> if :: IS_OURS(1) -> serve_closed(i, 1) :: else -> ask_for_lease(i) fi
		fi
	fi
}

/* True if serving the caller would change something. */
#define CAN_BEGIN       (state[0] != ASKING && state[1] != ASKING && ((state[0] == NONE && op[0] == NOTHING && \
			!probing[0]) || (state[1] == NONE && op[1] == NOTHING && !probing[1])))
#define CLOSED_SERVES(i, l) ((NEWCOMER(i, l) && (session[i] == QUESTION || CAN_BEGIN)) || (PASSES(i, l) && CAN_PIN(i) && \
			(state[l] == DRAINING || state[l] == PROBING)))
#define CAN_PIN(i)      (!needs[i] || (!probing[0] && !probing[1]))
#define CAN_SERVE(i)    (alive && (session[i] == QUESTION || session[i] == WAITS) && \
			 (IS_HELD -> CAN_PIN(i) : (IS_OURS(0) -> state[0] != UNSURE && CLOSED_SERVES(i, 0) : \
			  (IS_OURS(1) -> state[1] != UNSURE && CLOSED_SERVES(i, 1) : \
			   session[i] == QUESTION || CAN_BEGIN))))

inline take_answer(l) {
	LEARN(l);
	if
	:: op[l] == GONE -> state[l] = NONE; table[l] = 0
	:: op[l] == ANSWERED && state[l] == RELEASING -> ended(l)
	:: op[l] == ANSWERED && state[l] == UNSURE -> SAY('H'); state[l] = HELD; supersede(l)
	:: op[l] == ANSWERED && state[l] == ASKING -> granted(l)
	:: else
	fi;
	op[l] = NOTHING
}

inline take_message(l) {
	message[l] = false;
	if
	:: state[l] == NONE && op[l] == NOTHING -> op[l] = RELEASE     /* lost_give_back() */
	:: state[l] == NONE && op[l] != NOTHING
	:: else -> recalled[l] = true
	fi
}

inline take_probe(l) {
	LEARN(l);
	if
	:: answer[l] == FREE && (state[l] == PROBING || (state[l] == STOPPING && recalled[l])) -> to_release(l)
	:: answer[l] == FREE && !(state[l] == PROBING || (state[l] == STOPPING && recalled[l])) ->
		if :: state[l] == STOPPING -> state[l] = DRAINING :: else fi
	:: answer[l] == STOPPED && state[l] == STOPPING -> state[l] = DRAINING
	:: answer[l] == STOPPED && state[l] == PROBING && !recalled[l] -> state[l] = HELD; supersede(l) /* kept */
	:: else -> if :: state[l] == PROBING -> state[l] = DRAINING :: else fi
	fi;
	if :: state[l] == DRAINING && state[OTHER(l)] == HELD -> to_release(l) :: else fi;
	probing[l] = false; stopping[l] = false; answer[l] = SILENT
}

#define KEEPER_STEPS(l) \
	:: d_step { alive && (op[l] == ANSWERED || op[l] == GONE) -> take_answer(l) } \
	:: d_step { alive && state[l] == ASKING && op[l] == NOTHING && mine[l] == LEASE -> granted(l) } \
	:: d_step { alive && message[l] -> take_message(l) } \
	:: d_step { alive && state[l] == HELD && recalled[l] -> drain(l) } \
	:: d_step { alive && state[l] == DRAINING && !probing[l] && !IS_PINNED && FENCED(l) -> SAY('P'); \
		state[l] = PROBING; probing[l] = true } \
	:: d_step { alive && answer[l] != SILENT -> take_probe(l) } \
	:: d_step { closing[l] -> SAY('C'); closing[l] = false; word[l] = false }

proctype Keeper() TOLD {
end:	do
	KEEPER_STEPS(0)
#ifdef LIVE
	od
}
proctype Keeper1() TOLD {
end:	do
#endif
	KEEPER_STEPS(1)
#ifdef LIVE
	od
}
proctype Serve() TOLD {
end:	do
#else
	:: d_step { alive && state[0] == HELD && !recalled[0] && !IS_PINNED -> drain(0) }       /* lingered */
	:: d_step { alive && state[1] == HELD && !recalled[1] && !IS_PINNED -> drain(1) }
#endif
	:: d_step { CAN_SERVE(0) -> serve(0) }
#if PROGRAMS > 1
	:: d_step { CAN_SERVE(1) -> serve(1) }
#endif
	/* No program waits for it any more. */
	:: d_step { alive && state[0] == ASKING && op[0] == NOTHING && session[0] != WAITS &&
		session[PROGRAMS - 1] != WAITS -> to_release(0) }
	:: d_step { alive && state[1] == ASKING && op[1] == NOTHING && session[0] != WAITS &&
		session[PROGRAMS - 1] != WAITS -> to_release(1) }
	od
}

/* --- the probe's threads: probe.c --- */

proctype Probe(byte l) TOLD {
end:	do
#ifdef RECORD
	:: d_step { probing[l] && answer[l] == SILENT && LOOKS_FREE -> answer[l] = FREE }
#else
	:: d_step { probing[l] && answer[l] == SILENT && !took[l] && !freed[l] && LOOKS_FREE -> SAY('F');
		kernel = KEEPER; took[l] = true }
#ifdef EARLY
	:: d_step { alive && state[l] == PROBING && probing[l] && answer[l] == SILENT && !armed[l] -> armed[l] = true }
	:: d_step { took[l] -> took[l] = false; kernel = (kernel == KEEPER -> 0 : kernel); freed[l] = true }
	/* post(): under the mutex. The table first: if the keeper dies, the request has arrived or not. */
	:: d_step { freed[l] -> freed[l] = false; answer[l] = FREE;
		if :: armed[l] -> SAY('R'); armed[l] = false; fired[l] = true; table[l] = 0; op[l] = RELEASE :: else fi }
#else
	:: d_step { took[l] -> took[l] = false; kernel = (kernel == KEEPER -> 0 : kernel); answer[l] = FREE }
#endif
#endif
	:: d_step { probing[l] && answer[l] == SILENT && !took[l] && !freed[l] && (stopping[l] || (!LOOKS_FREE && !recalled[l])) ->
		answer[l] = STOPPED }
	od
}

/* --- a keeper that dies, and the next one: supervise.c, takeup.c --- */

#if CRASHES > 0
inline request_ends(l) {        /* it arrived, or it did not */
	if
	:: op[l] == ACQUIRE || op[l] == RELEASE || op[l] == CONFIRM -> if :: execute(l) :: skip fi
	:: else
	fi;
	op[l] = NOTHING; message[l] = false
}

inline dies(l) {
	request_ends(l);
	if :: closing[l] -> SAY('C'); word[l] = false; closing[l] = false :: else fi;     /* the processor does write it */
	probing[l] = false; stopping[l] = false; answer[l] = SILENT; recalled[l] = false; state[l] = NONE;
	took[l] = false; freed[l] = false; armed[l] = false; fired[l] = false
}

inline take_up(l) {
	if
	:: table[l] == 2 -> state[l] = UNSURE; op[l] = CONFIRM
	:: table[l] == 1 -> SAY('R'); table[l] = 0; state[l] = RELEASING; op[l] = RELEASE
	:: else
	fi
}

inline close_old(l) {
	if :: word[l] -> SAY('C'); word[l] = false :: else fi
}

inline reset(i) {
	session[i] = (session[i] == CLOSED || session[i] == GRANTED -> session[i] : RESET); needs[i] = false;
#ifdef OLD_PINS
	pinned[i] = false
#else
	pinned[i] = sure[i]
#endif
}

inline end_holder(i) {
	if :: kernel == i + 1 -> kernel = 0; killed[i] = true; runs[i] = false; session[i] = CLOSED;
		needs[i] = false; have[i] = false :: else fi
}

proctype Crash() TOLD {
	do
	:: atomic { crashes > 0 -> SAY('X'); SPEND(crashes); alive = false;
		if :: kernel == KEEPER -> kernel = 0 :: else fi;
		dies(0); dies(1);
#ifdef BAD_TABLE
		table[0] = 0; table[1] = 0;
#endif
		reset(0);
#if PROGRAMS > 1
		reset(1)
#endif
	   }
	   d_step { SAY('K') };
#ifndef OLD_WORDS
	   d_step { close_old(0); close_old(1) }
#endif
#ifdef BAD_TABLE
	   /* What the predecessor granted is not known: once its grants are over, every program that has the kernel
	    * lock is ended. */
	   d_step { !pinned[0] && !pinned[PROGRAMS - 1] -> end_holder(0);
#if PROGRAMS > 1
		end_holder(1);
#endif
		written = true }
#endif
	   d_step { take_up(0); take_up(1); alive = true }
	:: crashes == 0 -> break
	od
}
#endif

/* --- the programs: shim/acquire.c --- */

#define WORD            (word[0] || word[1])
#ifdef LIVE
#define LETS_GO(i)      (session[i] == WAITS)
#else   /* ... or the keeper waits for the store, and says so */
#define LETS_GO(i)      (session[i] == WAITS || session[i] == QUESTION)
#endif

inline hang_up(i) {
	d_step { session[i] = CLOSED; sure[i] = false; pinned[i] = false; needs[i] = false; have[i] = false }
}

proctype Program(byte i) TOLD {
	byte held;      /* by this call */
again:	{
	held = 0;
	if
	:: WORD ->      /* use_page(): if the page says open, the lock, then a fence, then another look */
#ifdef PAGE_FIRST
		if :: d_step { kernel == 0 -> kernel = i + 1; written = true } :: kernel != 0 -> goto ask fi;
		d_step { runs[i] = true; assert(mine[0] == LEASE || mine[1] == LEASE) };
		goto runs_on;
#else
		if :: d_step { kernel == 0 -> SAYS(i, 't'); kernel = i + 1; written = false } :: kernel != 0 -> goto ask fi;
#ifndef NO_SHIM_FENCE
		written = true;
#endif
		if
		:: d_step { WORD -> runs[i] = true; assert(mine[0] == LEASE || mine[1] == LEASE) };
			goto runs_on
		:: d_step { SEES_NO_WORD -> written = true }
		fi;
#endif
		held = 1
#ifdef LOCK_FIRST
	:: d_step { !WORD && kernel == 0 -> kernel = i + 1; held = 1 }
#else
	:: SEES_NO_WORD
#endif
	fi;
ask:
	atomic { have[i] = held;
		if :: held -> SAYS(i, 'Q') :: else -> SAYS(i, 'q') fi;
		session[i] = QUESTION };
wait:
	do
	:: d_step { LETS_GO(i) && held -> SAYS(i, 'd'); held = 0; have[i] = false; kernel = 0 }
	:: d_step { session[i] == GRANTED -> SAYS(i, 'g') }; break
	:: session[i] == RESET -> goto ask
#ifndef LIVE
	:: d_step { session[i] == WAITS && !held -> session[i] = CLOSED; needs[i] = false }; goto again   /* a signal */
#endif
	od;
	if :: held -> goto runs_on :: else fi;
	if
	:: d_step { kernel == 0 -> SAYS(i, 't'); kernel = i + 1; written = true }
	:: d_step { kernel == KEEPER && sure[i] -> assert(false) }      /* a call that does not wait would fail */
#ifndef LIVE
	:: kernel != 0 -> hang_up(i); goto again                        /* ... as it does here; or a signal */
#endif
	fi;
	held = 1;
	if
	:: d_step { sure[i] -> runs[i] = true; assert(mine[0] == LEASE || mine[1] == LEASE) }
	:: d_step { !sure[i] };
#ifdef LATE_COUNTS
		d_step { runs[i] = true; assert(mine[0] == LEASE || mine[1] == LEASE) }
#else
		goto ask
#endif
	fi;
runs_on:
	written = true;
	hang_up(i);
	d_step { SAYS(i, 's') };
	d_step { SAYS(i, 'u'); runs[i] = false; kernel = 0 };
	goto again
	} unless { d_step { killed[i] -> killed[i] = false; sure[i] = false; pinned[i] = false }; goto again }
}

/* Grants run out. */
proctype Time() TOLD {
end:	do
	:: d_step { sure[0] -> sure[0] = false; pinned[0] = false }
#if PROGRAMS > 1
	:: d_step { sure[1] -> sure[1] = false; pinned[1] = false }
#endif
	od
}

init {
	atomic {
		state[0] = NONE; state[1] = NONE; answer[0] = SILENT; answer[1] = SILENT;
		mine[0] = ABSENT; mine[1] = ABSENT; theirs = ABSENT; op[0] = NOTHING; op[1] = NOTHING;
		session[0] = CLOSED; session[PROGRAMS - 1] = CLOSED;
		run Store(); run OtherHost(); run Keeper(); run Probe(0); run Probe(1); run Time();
#ifdef LIVE
		run Keeper1(); run Serve();
#endif
#if CRASHES > 0
		run Crash();
#endif
		run Program(0);
#if PROGRAMS > 1
		run Program(1)
#endif
#ifdef REPLAY
		c_code { now.next = lives_letter(0); }
#endif
	}
}
