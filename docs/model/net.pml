/*
 * The net (docs/net.md): threads whose lock calls a supervisor continues, the kernel lock, the gate (the same kernel lock, taken by
 * keeper and supervisors), one exclusive lease, an outage, a keeper that dies. The rest of the cluster is one other host.
 *
 * What is shown: a thread whose call succeeded executes no instruction of its program while another host has the lease. A
 * continued call may be delayed for any time, before the kernel lock and after it, also when its thread is to stop: then it goes on
 * in the kernel, and stops before it returns to the program.
 *
 * CRASHES=n   so many keepers die; the gate stays, because supervisors have a copy of its descriptor
 *
 * Mutants, each of which must be caught: OPEN_GATE GATE_LATE CONTINUE_FIRST DROP_FIRST DROP_LOOK_FIRST SETTLE_LATE HOLDERS_ONLY
 * THAW_FIRST KILL_ONCE ONE_COPY (the last with CRASHES=1).
 */
#define THREADS 2
#ifndef CRASHES
#define CRASHES 0
#endif
#define GATE 9

mtype:thread = { OUT, ASKED, CALLED, LOCKED, RUNS, DEAD };

mtype:thread state[THREADS];    /* CALLED: continued, has no lock so far; LOCKED: has it, and is still in the kernel */
byte kernel;                    /* who has the kernel lock: 0 nobody, thread + 1, GATE */
bool lease, other;              /* the store: this host, the other one */

bool started[THREADS];          /* in shared memory: continued, and not seen to have left the call */
bool open, gate;                /* in shared memory: calls are continued under the lease; ... to the gate */
bool stopped[THREADS];          /* is to execute no instruction of its program */
bool killed[THREADS];
byte crashes = CRASHES;

#define DIES    crashes > 0 -> crashes--; goto died
#define BAD(t)  (other && state[t] == RUNS && !stopped[t] && !killed[t])

proctype thread(byte t)
{
	do
	:: atomic { state[t] == OUT && !stopped[t] && !killed[t] -> state[t] = ASKED }
	:: atomic { state[t] == CALLED && kernel == 0 -> kernel = t + 1; state[t] = LOCKED }
	/* EWOULDBLOCK, EINTR, or it is to stop: it comes out, and a restart asks anew. */
	:: atomic { state[t] == CALLED -> state[t] = OUT }
	:: atomic { state[t] == LOCKED && !stopped[t] && !killed[t] -> state[t] = RUNS; assert(!BAD(t)) }
	:: atomic { state[t] == RUNS && !stopped[t] && !killed[t] -> kernel = 0; state[t] = OUT }
	:: atomic { killed[t] && state[t] != DEAD ->
		if :: kernel == t + 1 -> kernel = 0 :: else fi;
		state[t] = DEAD }
	:: state[t] == DEAD -> break
	od
}

/* One call after the other of this thread: notes it, looks whether it may be continued, continues it. */
proctype supervisor(byte t)
{
	do
	:: state[t] == ASKED ->
#ifdef CONTINUE_FIRST
		open || gate || killed[t];
		atomic { if :: state[t] == ASKED -> state[t] = CALLED :: else fi }
		started[t] = true
#else
		started[t] = true;
		if
		:: open || gate -> atomic { if :: state[t] == ASKED -> state[t] = CALLED :: else fi }
		:: killed[t] -> skip
		fi
#endif
	:: state[t] == DEAD -> break
	od
}

/* Sees that a thread has left the call: it sleeps in another one, stopped for ptrace, or ended. */
proctype settler(byte t)
{
	do
#ifdef SETTLE_LATE
	:: started[t] && (state[t] == OUT || state[t] == RUNS) -> started[t] = false
#else
	:: atomic { started[t] && (state[t] == OUT || state[t] == RUNS || state[t] == DEAD) -> started[t] = false }
#endif
	:: state[t] == DEAD && !started[t] -> break
	od
}

proctype host_b()
{
	do
	:: atomic { !lease && !other -> other = true; assert(!BAD(0) && !BAD(1)) }
	:: other = false
	od
}

#ifdef HOLDERS_ONLY
#define RELIES(t) (kernel == t + 1)
#else
#define RELIES(t) (started[t] || kernel == t + 1)
#endif
#define STOP(t)   if :: RELIES(t) -> stopped[t] = true :: else fi
#define THAW(t)   atomic { stopped[t] = false; assert(!BAD(t)) }

/* Keeper, and its parent in an outage. */
active proctype keeper()
{
	atomic {
		state[0] = OUT; state[1] = OUT;
		run thread(0); run supervisor(0); run settler(0);
		run thread(1); run supervisor(1); run settler(1);
		run host_b()
	}
again:
	do
	:: DIES
	/* A call wants the lock, and there is neither lease nor gate. */
	:: !lease && !gate && (state[0] == ASKED || state[1] == ASKED) ->
		atomic { kernel == 0 || kernel == GATE -> kernel = GATE };
		gate = true
	/* The lease is asked for and granted. */
	:: !lease && gate ->
		atomic { !other -> lease = true };
		if :: DIES :: open = true fi;
		gate = false;
		atomic { if :: kernel == GATE -> kernel = 0 :: else fi }
	/* Recalled: the gate, then the lease. */
	:: lease ->
#ifdef GATE_LATE
		open = false;
		lease = false;
		atomic { kernel == 0 || kernel == GATE -> kernel = GATE };
		gate = true
#else
		atomic { kernel == 0 || kernel == GATE -> kernel = GATE };
		if :: DIES :: gate = true fi;
		open = false;
		if :: DIES :: lease = false fi;
#ifdef OPEN_GATE
		kernel = 0
#endif
#endif
	/* No call is under way: the gate is let go without a lease. */
	:: !lease && gate ->
#ifdef DROP_FIRST
		gate = false;
		kernel = 0
#else
#ifdef DROP_LOOK_FIRST
		if
		:: !started[0] && !started[1] -> gate = false; kernel = 0
		:: else
		fi
#else
		gate = false;
		if
		:: !started[0] && !started[1] -> kernel = 0
		:: else -> gate = true
		fi
#endif
#endif
	/* The lease cannot be renewed. */
	:: lease && !gate ->
		open = false;
		STOP(0); STOP(1);
		if
		:: skip /* it stands */
		:: lease = false;
#ifdef THAW_FIRST
			THAW(0); THAW(1);
#endif
#ifdef KILL_ONCE
			if :: kernel != 0 && kernel != GATE -> killed[kernel - 1] = true :: else fi;
			gate = true;
			THAW(0); THAW(1);
			atomic { kernel == 0 -> kernel = GATE };
#else
			/* Kills whoever has the kernel lock, until it has the lock itself. */
			do
			:: atomic { kernel != 0 && kernel != GATE -> killed[kernel - 1] = true }
			:: atomic { kernel == 0 -> kernel = GATE; break }
			od;
#endif
			gate = true
		fi;
		THAW(0); THAW(1);
		if
		:: lease -> open = true
		:: else
		fi
	od;
died:	/* The next one goes by the store and by shared memory. */
#ifdef ONE_COPY
	atomic { if :: kernel == GATE -> kernel = 0 :: else fi };
#endif
	if
	:: lease ->
		open = true;
		gate = false;
		atomic { if :: kernel == GATE -> kernel = 0 :: else fi }
	:: else
	fi;
	goto again
}
