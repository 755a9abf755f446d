/*
 * Two hosts, one exclusive lock, and the store's queue: recall, hand-over, lost messages and answers, a host that
 * dies. There is no time: a slow step is one before which the others make any number of steps.
 *
 * What is shown, under weak fairness of every process below: the caller of host 0 gets the lock in the end, again and
 * again; so no lease is lost for good. And two callers never have it at once.
 *
 * LOSSES=n    so many messages or answers are lost; the request is executed, executed late, or never arrives
 * DIES        host 1 dies at some time and does not come back
 *
 * Mutants: NO_TURN, a recall closes a lease before the caller for which it was fetched had its turn; NO_UNKNOWN, the
 * recall of a token that the host does not know is not answered; NO_REASK, a host that waits does not ask again;
 * NO_RECALL, a host that waits recalls a lease only when it begins to wait; STAYS, what a dead host has is not dropped
 * (with DIES).
 */
#ifndef LOSSES
#define LOSSES 1
#endif
#define NOBODY 2

mtype:caller = { IDLE, WAITS, PINNED, RUNS };
mtype:lease = { NONE, ASKING, HELD, DRAINING, RELEASING };
mtype:op = { NOTHING, ACQUIRE, RELEASE };
mtype:answer = { PENDING, OK, WAIT };

mtype:caller caller[2];
mtype:lease state[2];
bool recalled[2];               /* the lease's */
mtype:op op[2];
mtype:answer answer[2];
bool recall[2], recall_old[2], grant[2];        /* messages; recall_old: of a token that the host has given up */
bool late[2];                   /* an acquire that was given up is on its way, with the old token or the one in use */
bool late_old[2];
bool dead[2];

byte owner = NOBODY;             /* the host that has ... */
bool has, has_old;              /* ... a lease with the token in use, with one that was given up */
bool queued[2], queued_old[2];  /* ditto */
byte losses = LOSSES;

#define OTHER(h)        (1 - h)
#define IS_LEASE(h)     (state[h] == HELD || state[h] == DRAINING)

#define IN_QUEUE(h)     (queued[h] || queued_old[h])

inline tell() {         /* recall(), recall_new() */
	if
	:: owner != NOBODY && IN_QUEUE(1 - owner) -> recall[owner] = recall[owner] || has;
		recall_old[owner] = recall_old[owner] || has_old
	:: else
	fi
}

inline take_over(h) {
	owner = h; has = queued[h]; has_old = queued_old[h]; grant[h] = queued[h]; queued[h] = false;
		queued_old[h] = false;
	tell()
}

/* Of two in the queue, the host that has a lease already came later. */
inline hand_over() {
	if
	:: owner == 0 && !has && !has_old && IN_QUEUE(1) -> take_over(1)
	:: owner == 1 && !has && !has_old && IN_QUEUE(0) -> take_over(0)
	:: else -> owner = (has || has_old -> owner : NOBODY)
	fi
}

inline acquire(h, old, now) {
	bool fresh;
	fresh = !IN_QUEUE(h);
#ifndef STAYS
	if
	:: dead[OTHER(h)] && !dead[h] ->
		queued[OTHER(h)] = false; queued_old[OTHER(h)] = false;
		if :: owner == OTHER(h) -> has = false; has_old = false; hand_over() :: else fi
	:: else
	fi;
#endif
	if
	:: owner == NOBODY || (owner == h && (!IN_QUEUE(OTHER(h)) || (old -> has_old : has))) ->
		owner = h; has = has || !old; has_old = has_old || old;
		if :: old -> queued_old[h] = false :: else -> queued[h] = false fi;
		now = OK; tell()
	:: else ->
		if :: old -> queued_old[h] = true :: else -> queued[h] = true fi;
		now = WAIT;
#ifdef NO_RECALL
		if :: fresh -> tell() :: else fi
#else
		tell()
#endif
	fi;
	fresh = false
}

inline release(h, old) {
	if :: old -> queued_old[h] = false; has_old = has_old && owner != h
	   :: else -> queued[h] = false; has = has && owner != h
	fi;
	hand_over()
}

proctype Store(byte h) {
end:	do
	:: d_step { op[h] == ACQUIRE && answer[h] == PENDING -> acquire(h, false, answer[h]) }
	:: d_step { op[h] == RELEASE && answer[h] == PENDING -> release(h, false); answer[h] = OK }
	od
}

proctype Late(byte h) {
	mtype:answer nobody_hears;
end:	do
	:: d_step { late[h] -> acquire(h, late_old[h], nobody_hears); late[h] = false; late_old[h] = false;
		nobody_hears = PENDING }
	od
}

/* --- the keeper --- */

inline serve(h) {
	if :: caller[h] == WAITS -> caller[h] = PINNED :: else fi
}

inline granted(h) {
	state[h] = HELD;
#ifdef NO_TURN
	if :: recalled[h] -> state[h] = DRAINING :: else -> serve(h) fi
#else
	serve(h)
#endif
}

proctype Answer(byte h) {
end:	do
	:: d_step { !dead[h] && answer[h] != PENDING ->
		if
		:: op[h] == ACQUIRE && answer[h] == OK && state[h] == ASKING -> granted(h)
		:: op[h] == RELEASE -> state[h] = NONE
		:: else
		fi;
		op[h] = NOTHING; answer[h] = PENDING }
	od
}

proctype Message(byte h) {
end:	do
	:: d_step { !dead[h] && grant[h] -> grant[h] = false;
		if :: state[h] == ASKING -> granted(h) :: else fi }
	:: d_step { !dead[h] && recall[h] -> recall[h] = false; recalled[h] = IS_LEASE(h) || state[h] == ASKING }
	/* lost_give_back(); a request that is lost is a message that is lost. */
	:: d_step { !dead[h] && recall_old[h] -> recall_old[h] = false;
#ifndef NO_UNKNOWN
		release(h, true)
#endif
		}
	od
}

/* The lease is closed, its pins are over, and it was tested free. */
proctype GiveBack(byte h) {
end:	do
	:: d_step { !dead[h] && state[h] == HELD && recalled[h] -> state[h] = DRAINING }
	:: d_step { !dead[h] && state[h] == DRAINING && caller[h] != PINNED && caller[h] != RUNS && op[h] == NOTHING ->
		recalled[h] = false; state[h] = RELEASING; op[h] = RELEASE }
	od
}

proctype Ask(byte h) {
end:	do
	:: d_step { !dead[h] && state[h] == HELD && !recalled[h] && caller[h] == WAITS -> serve(h) }
	:: d_step { !dead[h] && state[h] == NONE && caller[h] == WAITS && op[h] == NOTHING ->
		/* A new token: what the store has of this host is of an old token now. */
		if :: owner == h -> has_old = has_old || has; has = false :: else fi;
		queued_old[h] = queued_old[h] || queued[h]; queued[h] = false; late_old[h] = late[h]; grant[h] = false;
		recall_old[h] = recall_old[h] || recall[h]; recall[h] = false; recalled[h] = false;
		state[h] = ASKING; op[h] = ACQUIRE }
#ifndef NO_REASK
	:: d_step { !dead[h] && state[h] == ASKING && op[h] == NOTHING -> op[h] = ACQUIRE }
#endif
	:: d_step { !dead[h] && state[h] == RELEASING && op[h] == NOTHING -> op[h] = RELEASE }
	od
}

/* --- what goes wrong --- */

proctype Losses() {
	byte h;
	do
	:: losses > 0 ->
		atomic {
			if :: h = 0 :: h = 1 fi;
			if
			:: recall[h] -> recall[h] = false
			:: recall_old[h] -> recall_old[h] = false
			:: grant[h] -> grant[h] = false
			:: op[h] != NOTHING -> op[h] = NOTHING; answer[h] = PENDING
			:: op[h] == ACQUIRE && answer[h] == PENDING && !late[h] -> late[h] = true;
				late_old[h] = false; op[h] = NOTHING
			:: true
			fi;
			losses--
		}
	:: losses == 0 -> break
	od
}

#ifdef DIES
proctype Death() {
	d_step { dead[1] = true; caller[1] = IDLE }
}
#endif

/* --- programs: lock, run, unlock, again --- */

proctype Program(byte h) {
end:	do
	:: d_step { !dead[h] && caller[h] == IDLE -> caller[h] = WAITS }
	:: d_step { !dead[h] && caller[h] == PINNED -> caller[h] = RUNS; assert(owner == h && has) };
progress:	skip;
		d_step { caller[h] = IDLE }
	od
}

/* The same, but it does not matter how often this program gets the lock. */
proctype OtherProgram(byte h) {
end:	do
	:: d_step { !dead[h] && caller[h] == IDLE -> caller[h] = WAITS }
	:: d_step { !dead[h] && caller[h] == PINNED -> caller[h] = RUNS; assert(owner == h && has) }
	:: d_step { !dead[h] && caller[h] == RUNS -> caller[h] = IDLE }
	od
}

init {
	atomic {
		caller[0] = IDLE; caller[1] = IDLE; state[0] = NONE; state[1] = NONE; op[0] = NOTHING; op[1] = NOTHING;
		answer[0] = PENDING; answer[1] = PENDING;
		run Store(0); run Store(1); run Answer(0); run Answer(1); run Message(0); run Message(1);
		run GiveBack(0); run GiveBack(1); run Ask(0); run Ask(1); run Program(0); run OtherProgram(1);
#if LOSSES > 0
		run Late(0); run Late(1); run Losses();
#endif
#ifdef DIES
		run Death();
#endif
	}
}
