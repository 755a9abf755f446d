/*
 * N servers, master included. Node 0 is the master that the host A writes to; node 1 is promoted while A is cut off
 * with node 0, which neither it nor A knows. The other replicas come over to node 1 one by one, whenever they like. B
 * is at node 1.
 *
 * What is shown: when B is granted the lease, A's deadline has passed, and A does not renew it any more. An answer
 * counts once W replicas have acknowledged what it says (WAIT, store/redis/acks.c); W must be half of N, rounded down. The
 * default is that.
 *
 * N=n         2 to 5
 * W=n         acknowledgements that an answer needs
 *
 * Mutants: W below half of N; EARLY_GRACE, which counts grace from when the record of the new incarnation was written;
 * BACK, in which an operator points a replica back to the old master: nothing covers that, and the manual says so.
 */
#ifndef N
#define N 3
#endif
#ifndef W
#define W (N / 2)
#endif
#define TTL 3

bool promoted;
bool came_over[N];              /* it follows node 1: and node 0, when it has been told that it is no master */
byte sure;                      /* ticks until A's deadline */
bool granted;                   /* B */

bool beats;                     /* a beat of A is under way ... */
byte until;                     /* ... and gives this deadline ... */
bool has_beat[N];               /* ... when enough of these have it */
bool records, grants;           /* the new incarnation's record, then B's grant, were written ... */
bool has_record[N], has_grant[N];
byte grace;                     /* ticks until B may open the store */

#if N == 2
#define COUNT(has)      (has[0] + has[1])
#elif N == 3
#define COUNT(has)      (has[0] + has[1] + has[2])
#elif N == 4
#define COUNT(has)      (has[0] + has[1] + has[2] + has[3])
#else
#define COUNT(has)      (has[0] + has[1] + has[2] + has[3] + has[4])
#endif

inline clear_beat() {
	has_beat[0] = false; has_beat[1] = false;
#if N > 2
	has_beat[2] = false;
#endif
#if N > 3
	has_beat[3] = false;
#endif
#if N > 4
	has_beat[4] = false;
#endif
	until = 0
}

/* A, and its connection to node 0. A new beat is sent when the last one was answered or given up. */
active proctype A() {
end:	do
	:: d_step { !came_over[0] -> clear_beat(); beats = true; until = TTL }
	:: d_step { beats && until > 0 && COUNT(has_beat) >= W ->
		beats = false; sure = (until > sure -> until : sure); clear_beat();
		assert(!granted) }
	od
}

/* A replica has what its master wrote; its acknowledgement may arrive any time later. */
proctype Replica(byte n) {
end:	do
	:: d_step { beats && n != 0 && !(n == 1 && promoted) && !came_over[n] && !has_beat[n] -> has_beat[n] = true }
	:: d_step { records && n != 1 && came_over[n] && !has_record[n] -> has_record[n] = true }
	:: d_step { grants && n != 1 && came_over[n] && !has_grant[n] -> has_grant[n] = true }
	:: d_step { promoted && n != 1 && !came_over[n] -> came_over[n] = true }
#ifdef BACK
	:: d_step { promoted && n > 1 && came_over[n] -> came_over[n] = false }
#endif
	od
}

active proctype B() {
	promoted = true;
	records = true;
#ifdef EARLY_GRACE
	grace = TTL;
#else
	d_step { COUNT(has_record) >= W -> grace = TTL };
#endif
	grace == 0;
	grants = true;
	d_step { COUNT(has_grant) >= W -> granted = true; assert(sure == 0) }
}

active proctype Clock() {
end:	do
	:: d_step { sure + until + grace > 0 ->
		if :: sure > 0 -> sure-- :: else fi;
		if :: until > 0 -> until-- :: else fi;
		if :: grace > 0 -> grace-- :: else fi }
	od
}

init {
	atomic {
		run Replica(0); run Replica(1);
#if N > 2
		run Replica(2);
#endif
#if N > 3
		run Replica(3);
#endif
#if N > 4
		run Replica(4);
#endif
		sure = TTL
	}
}
