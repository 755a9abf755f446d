/*
 * A store of two shards, and two hosts that are configured with different numbers of them: each looks for a name in another shard. Shards
 * lose their memory; connections break, each for itself; what the first shard says may come late; and an operator has A's keeper change the
 * number (`dflock init --force`). Host B has the number that the store begins with.
 *
 * What is shown: never has one host a lease in one shard while the other host has one in the other shard, since that may be for the same
 * name. One thing is taken for granted: the operator begins while no host has a lease, and no shard forgets a lease until the end. All else
 * may go wrong meanwhile.
 *
 * FORGETS=n   so many losses of memory
 * TRIES=n     so often the operator tries
 * CALM        connections do not break, and leases do not end: less to search for a mutant
 *
 * Time: a lease runs out at any moment at which its host does not renew it. A host has watched an incarnation for a ttl when each lease of the
 * other host that stands was renewed since it began to watch. Mutants: NO_READ, OTHERS_ANY, NO_ASK, and of the change OTHER_FIRST,
 * OPENS_AT_ONCE, ANY_MEMORY.
 */
#ifndef FORGETS
#define FORGETS 1
#endif
#ifndef TRIES
#define TRIES 1
#endif

#define A 0
#define B 1
#define NONE 0
#define NUMBER(h)       (2 - (h))       /* what host h is configured with */
#define AT(h, s)        (2 * (h) + (s))
#define OTHER(x)        (1 - (x))

/* The shards. */
byte number[2] = 1;             /* in the record; NONE: there is none */
bool open[2] = true;
bool beats[2];                  /* of B: less than a ttl ago */
bool taken[2];                  /* by the operator, and not forgotten since */
byte forgets;

/* The hosts. */
bool has[4];                    /* a lease that is sure, and a program that relies on it */
bool up[4], agreed[4];
bool current[4];                /* the incarnation that it knows is the shard's */
bool seen_open[4];
bool once[2];                   /* the first shard has agreed */
bool shut[2];                   /* shard 1 is not used before the first one was read again */
bool fresh[2];                  /* shard 1 was read since the grace of the first one began */
bool watched[4];                /* for a ttl */
bool renewed[4];                /* the lease of the other host, since then */
bool comes[2], says_no[2], says_open[2], says_current[2]; /* an answer of the first shard, on its way */

bool changes;                   /* init --force is under way */

#define USES(h, s)      (up[AT(h, s)] && current[AT(h, s)])
#define TOGETHER        ((has[AT(A, 0)] && has[AT(B, 1)]) || (has[AT(A, 1)] && has[AT(B, 0)]))

inline new_memory(s, n) {
	number[s] = n; open[s] = false; beats[s] = false; taken[s] = false;
	current[AT(A, s)] = false; current[AT(B, s)] = false;
	if :: s == 0 -> says_current[A] = false; says_current[B] = false :: else fi
}

inline renew(h, s) {
	renewed[AT(OTHER(h), s)] = true;
	if :: h == B -> beats[s] = true :: else fi
}

/* store.lua, begin */
inline read(h, s) {
	if :: number[s] == NONE -> new_memory(s, NUMBER(h)) :: else fi
}

/* on_incarnation() */
inline is_new(h, s) {
	current[AT(h, s)] = true; watched[AT(h, s)] = false; renewed[AT(h, s)] = false
}

/* An answer of the first shard: on_record() */
inline hear(h) {
	comes[h] = false;
	agreed[AT(h, 0)] = !says_no[h];
	if
	:: says_no[h] ->
		up[AT(h, 0)] = false
	:: else ->
		if
		:: !current[AT(h, 0)] || !says_current[h] ->
			is_new(h, 0); current[AT(h, 0)] = says_current[h]; fresh[h] = false
		:: else
		fi;
		seen_open[AT(h, 0)] = says_open[h];
		up[AT(h, 0)] = true; shut[h] = false; once[h] = true
	fi
}

/* Asks shard 1, and is answered. */
inline look(h) {
	read(h, 1);
	agreed[AT(h, 1)] = (number[1] == NUMBER(h));
	if
	:: !agreed[AT(h, 1)] -> up[AT(h, 1)] = false
	:: else ->
#ifndef NO_ASK
		if
		:: !current[AT(h, 1)] && !open[1] -> shut[h] = true; comes[h] = false /* one that was asked before does not count */
		:: else
		fi;
#endif
		if :: !current[AT(h, 1)] -> is_new(h, 1) :: else fi;
		seen_open[AT(h, 1)] = open[1]; fresh[h] = true; up[AT(h, 1)] = !shut[h]
	fi
}

/* grace_may_end() */
#ifdef NO_READ
#define OTHERS(h)       true
#elif defined(OTHERS_ANY)
#define OTHERS(h)       (agreed[AT(h, 1)] && fresh[h])
#else
#define OTHERS(h)       (agreed[AT(h, 1)] && fresh[h] && (seen_open[AT(h, 1)] || watched[AT(h, 1)]))
#endif
#define MAY_END(h, s)   ((s == 0 && OTHERS(h)) || (s == 1 && agreed[AT(h, 0)] && up[AT(h, 0)] && seen_open[AT(h, 0)]))

proctype Host(byte h; byte s) {
end:	do
	:: d_step { s == 0 && !comes[h] -> read(h, 0); comes[h] = true; says_no[h] = (number[0] != NUMBER(h));
		says_open[h] = open[0]; says_current[h] = true }
	:: d_step { s == 0 && comes[h] -> hear(h) }
	:: d_step { s == 1 && once[h] -> look(h) }
#ifndef CALM
	:: d_step { up[AT(h, s)] -> up[AT(h, s)] = false }
	:: d_step { has[AT(h, s)] -> has[AT(h, s)] = false } /* given back, or it has run out */
#endif
	:: d_step { USES(h, s) && open[s] && !has[AT(h, s)] ->
		has[AT(h, s)] = true; renew(h, s); assert(!TOGETHER && !has[AT(OTHER(h), s)]) }
	:: d_step { USES(h, s) && has[AT(h, s)] -> renew(h, s) } /* or is put back */
	:: d_step { h == B && !has[AT(h, s)] && beats[s] -> beats[s] = false }
	:: d_step { current[AT(h, s)] && !watched[AT(h, s)] && (!has[AT(OTHER(h), s)] || renewed[AT(h, s)]) ->
		watched[AT(h, s)] = true }
	:: d_step { USES(h, s) && !open[s] && watched[AT(h, s)] && MAY_END(h, s) ->
		open[s] = true; seen_open[AT(h, s)] = true }
	od
}

/* store.lua, take; false: refused, since a host uses the other number */
#define MAY(s)          (number[s] != NUMBER(B) || !beats[s])

inline take(s, opens) {
	if :: number[s] != NUMBER(A) -> new_memory(s, NUMBER(A)) :: else fi;
	taken[s] = true;
	open[s] = open[s] || opens
}

#ifdef ANY_MEMORY
#define IS_TAKEN(s)     MAY(s)
#else
#define IS_TAKEN(s)     (taken[s])
#endif

#ifdef OTHER_FIRST
#define FIRST 1
#else
#define FIRST 0
#endif
#ifdef OPENS_AT_ONCE
#define OPENS true
#else
#define OPENS false
#endif

active proctype Operator() {
	byte tries = 0;

end:	do
	:: d_step { tries < TRIES && !has[0] && !has[1] && !has[2] && !has[3] -> tries++; changes = true; taken[0] = false; taken[1] = false };
		if
		:: d_step { MAY(FIRST) -> take(FIRST, OPENS) };
			if
			:: d_step { MAY(OTHER(FIRST)) -> take(OTHER(FIRST), OPENS) };
				if
				:: d_step { IS_TAKEN(0) -> take(0, true) };
					if
					:: d_step { IS_TAKEN(1) -> take(1, true) }
					:: !IS_TAKEN(1)
					fi
				:: !IS_TAKEN(0)
				fi
			:: !MAY(OTHER(FIRST))
			fi
		:: !MAY(FIRST)
		fi;
		changes = false
	od
}

proctype Forgets(byte s) {
end:	do
	:: d_step { forgets < FORGETS && number[s] != NONE && (!changes || (!has[AT(A, s)] && !has[AT(B, s)])) ->
		forgets++; new_memory(s, NONE) }
	od
}

init {
	atomic {
		run Host(A, 0); run Host(A, 1); run Host(B, 0); run Host(B, 1); run Forgets(0); run Forgets(1)
	}
}
