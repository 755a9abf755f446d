/*
 * Two hosts, one exclusive lock, one store, and what may go wrong between them: answers that are late or lost, requests
 * that are executed long after they were given up, hosts that are silent, keepers that die, a store that loses its
 * memory. Time is discrete and moves only in Clock. Testing a lease free is one step here; page.pml models that.
 *
 * What is shown: two programs never run at once (promises 3 and 4). A frozen program goes on only if no other ran in
 * between. No lease that was given back counts as lost: otherwise the holders of its new owner would be killed.
 *
 * LOSSES=n    so many answers are lost; the request is executed before, much later, or never
 * FLUSHES=n   so often the store loses its memory: it is empty
 * ROLLS=n     ... it is as it was at some time before
 * CRASHES=n   so many keepers die, and are followed by others
 *
 * Mutants: SERVER_CLOCK with STEPS, SEARCH_FIRST TOKEN_ONLY BEAT_UNNAMED DEADLINE_OF_ANSWER RENEW_FIRST STALE_GRANT
 * (LOSSES=1), NO_GRACE FENCE_RESUMES FORGOTTEN_RENEWED RECLAIM_LATE OPEN_EARLY (FLUSHES=1), OLDER_WINS CONFIRM_ANY
 * (ROLLS=1), TABLE_LATE TAKEN_UP_OPEN (CRASHES=1).
 */
#ifndef LOSSES
#define LOSSES 0
#endif
#ifndef FLUSHES
#define FLUSHES 0
#endif
#ifndef ROLLS
#define ROLLS 0
#endif
#ifndef CRASHES
#define CRASHES 0
#endif
#define TTL 2           /* what a waiter watches, and a keeper in grace */
#define SURE 2          /* the deadline: so long after the beat was sent. One tick before it holders must be stopped */
#define NOBODY 2

mtype:lease = { NONE, ASKING, HELD, RELEASING, UNSURE };
mtype:op = { NOTHING, ACQUIRE, BEAT, CONFIRM, RECLAIM, RELEASE, OPEN_STORE, RESUME };
mtype:status = { PENDING, OK, WAIT, GRACE, GONE, OTHER_INC };

/* a host: kernel, page, programs */
bool runs[2];           /* the program has the kernel lock, and its lock call has succeeded */
bool frozen[2];
bool page[2];           /* open */
byte left[2];           /* ticks to the host's deadline */
bool between[2];        /* the other host's program ran while this one's was frozen */
#ifdef SEARCH_FIRST
bool searched[2];
#endif

/* its keeper */
bool alive[2] = true;
mtype:lease state[2];
bool forgotten[2], lapsed[2];
byte inc[2];            /* the incarnation it knows */
bool grace[2];
byte grace_left[2];
bool seen[2];           /* it has seen the beat that the other host's still is ... */
byte watching[2];       /* ... and must still watch it for so long */
byte table[2];          /* the table of leases: 0 no entry, 1 asked for, 2 held */
bool gave_back[2];      /* a release of its token was sent */

/* the request under way */
mtype:op op[2];
mtype:status answer[2];
byte until[2];          /* ticks to the deadline that its answer will give */
bool names[2];          /* it names the other host's beat, which still is that one */
byte answer_inc[2];
bool shows[2];          /* the answer shows the other host's beat, ditto */
bool answer_knows[2];   /* the answer's fence still is the lease's */
/* a request that was given up and has not been executed so far */
mtype:op late[2];
byte late_inc[2];
bool late_names[2], late_old[2];
/* messages */
bool granted[2], recalled[2];

/* the store */
byte owner = NOBODY, store_inc;
bool owner_old;         /* ... with a token that its host has given up */
bool waits[2], waits_old[2];
bool store_open = true;
bool knows[2];          /* the host knows the fence of the lease */
byte losses = LOSSES, flushes = FLUSHES, crashes = CRASHES;
#if ROLLS > 0
byte rolls = ROLLS;
byte then_owner = NOBODY;
bool then_owner_old, then_waits[2], then_waits_old[2], then_knows[2], then_taken;
bool ghost;             /* the snapshot brought this owner back */
#endif
#ifdef SERVER_CLOCK
byte expires;
bool stepped;
#define RENEWS          expires = TTL
#else
#define RENEWS          skip
#endif

#define OTHER(h)        (1 - h)
#define ACTS(h)         (runs[h] && !frozen[h])
#define EXCLUSIVE       (!(ACTS(0) && ACTS(1)))
#define IS_LEASE(h)     (state[h] == HELD || state[h] == UNSURE)
#ifdef SEARCH_FIRST
#define PAGE_SURE(h)    (page[h] && left[h] > 0)
#else
#define PAGE_SURE(h)    (page[h] && left[h] > 1)
#endif

/* --- the store's scripts --- */

inline beat_moves(h) {
	seen[OTHER(h)] = false; shows[OTHER(h)] = false; watching[OTHER(h)] = 0;
#ifndef BEAT_UNNAMED
	names[OTHER(h)] = false; late_names[OTHER(h)] = false
#endif
}

inline new_fence() {
	knows[0] = false; knows[1] = false; answer_knows[0] = false; answer_knows[1] = false
}

inline give(h, t) {
	owner = h; owner_old = t; waits[h] = false; waits_old[h] = false;
	new_fence(); RENEWS
}

/* hand_over(): tells the host */
inline hand_over() {
	if
	:: owner == NOBODY && store_open && waits[0] && !waits[1] -> granted[0] = !waits_old[0]; give(0, waits_old[0])
	:: owner == NOBODY && store_open && waits[1] && !waits[0] -> granted[1] = !waits_old[1]; give(1, waits_old[1])
	:: else
	fi
}

inline script_acquire(h, t, naming, now) {
	beat_moves(h);
	if
	:: owner == OTHER(h) && naming -> owner = NOBODY; owner_old = false; waits[OTHER(h)] = false;
		waits_old[OTHER(h)] = false; new_fence()
	:: else
	fi;
	if
	:: owner == h && owner_old == t -> RENEWS; now = OK
	:: owner == h && owner_old != t -> give(h, t); now = OK
	:: owner == NOBODY -> give(h, t); now = OK
	:: owner == OTHER(h) -> waits[h] = true; waits_old[h] = t; recalled[OTHER(h)] = true; now = WAIT
	fi
}

inline script_release(h, t, now) {
	if :: waits[h] && waits_old[h] == t -> waits[h] = false; waits_old[h] = false :: else fi;
	if :: owner == h && owner_old == t -> owner = NOBODY; owner_old = false; new_fence(); hand_over() :: else fi;
	now = OK
}

#ifdef TOKEN_ONLY
#define STANDS(h, t)    (owner == h && owner_old == t)
#else
#define STANDS(h, t)    (owner == h && owner_old == t && knows[h])
#endif
#if ROLLS > 0
#ifdef OLDER_WINS
#define IN_THE_WAY(h)   (owner == OTHER(h))
#else
#define IN_THE_WAY(h)   (owner == OTHER(h) && !ghost)
#endif
#define NO_GHOST        ghost = false
#else
#define IN_THE_WAY(h)   (owner == OTHER(h))
#define NO_GHOST        skip
#endif

inline script_reclaim(h, t, now) {
	if
	:: STANDS(h, t) -> beat_moves(h); now = OK
	:: !STANDS(h, t) && !store_open && !IN_THE_WAY(h) ->
		give(h, t); waits[OTHER(h)] = false; waits_old[OTHER(h)] = false; knows[h] = true; NO_GHOST;
			beat_moves(h); now = OK
	:: else -> assert(store_open); now = GONE
	fi
}

/* executes o of host h with token t; the host knows the incarnation i; leaves the status in `now` */
inline script(h, o, t, i, naming, now) {
	if
#ifdef CONFIRM_ANY
	:: i != store_inc && o != CONFIRM -> now = OTHER_INC
	:: o == CONFIRM ->
#else
	:: i != store_inc -> now = OTHER_INC
	:: i == store_inc && o == CONFIRM ->
#endif
		if :: STANDS(h, t) -> beat_moves(h); RENEWS; now = OK :: else -> beat_moves(h); now = GONE fi
	:: i == store_inc && o == ACQUIRE ->
		if
		:: !store_open -> now = GRACE
		:: else -> script_acquire(h, t, naming, now)
		fi
	:: i == store_inc && o == BEAT -> beat_moves(h); RENEWS; now = OK
	:: i == store_inc && o == RECLAIM -> script_reclaim(h, t, now)
	:: i == store_inc && o == RELEASE -> script_release(h, t, now)
	:: i == store_inc && o == OPEN_STORE -> store_open = true; now = OK
#ifdef FENCE_RESUMES
	:: i == store_inc && o == RESUME ->
		if
		:: !store_open -> now = GRACE
		:: store_open && owner == NOBODY -> give(h, t); knows[h] = true; beat_moves(h); now = OK
		:: else -> now = GONE
		fi
#endif
	fi
}

mtype:status now = OK;

#define EXECUTE(h) \
	:: d_step { op[h] != NOTHING && answer[h] == PENDING -> \
		script(h, op[h], false, inc[h], names[h], now); \
		answer[h] = now; names[h] = false; \
		if :: now == OTHER_INC -> answer_inc[h] = store_inc :: else fi; \
		if :: now == WAIT -> shows[h] = true :: else fi; \
		if :: now == OK && op[h] == ACQUIRE -> answer_knows[h] = true :: else fi; \
		if :: now == GONE || now == GRACE || now == OTHER_INC -> until[h] = 0 :: else fi; \
		now = OK } \
	:: d_step { late[h] != NOTHING -> \
		script(h, late[h], late_old[h], late_inc[h], late_names[h], now); \
		late[h] = NOTHING; late_old[h] = false; late_inc[h] = 0; late_names[h] = false; now = OK }

#define FORGETS \
	seen[0] = false; seen[1] = false; shows[0] = false; shows[1] = false; watching[0] = 0; watching[1] = 0; \
	names[0] = false; names[1] = false; late_names[0] = false; late_names[1] = false; new_fence()

proctype Store() {
end:	do
	EXECUTE(0)
	EXECUTE(1)
#if FLUSHES > 0
	:: d_step { flushes > 0 -> flushes--;
		owner = NOBODY; owner_old = false; waits[0] = false; waits[1] = false; waits_old[0] = false;
			waits_old[1] = false;
		FORGETS;
		store_inc++;
#ifdef NO_GRACE
		store_open = true
#else
		store_open = false
#endif
		}
#endif
#if ROLLS > 0
	:: d_step { !then_taken -> then_taken = true;
		then_owner = owner; then_owner_old = owner_old; then_knows[0] = knows[0]; then_knows[1] = knows[1];
		then_waits[0] = waits[0]; then_waits[1] = waits[1]; then_waits_old[0] = waits_old[0];
			then_waits_old[1] = waits_old[1] }
	:: d_step { then_taken && rolls > 0 -> rolls--;
		owner = then_owner; owner_old = then_owner_old;
		waits[0] = then_waits[0]; waits[1] = then_waits[1]; waits_old[0] = then_waits_old[0];
			waits_old[1] = then_waits_old[1];
		FORGETS;
		knows[0] = then_knows[0] && then_owner == 0; knows[1] = then_knows[1] && then_owner == 1;
		ghost = true; store_inc++; store_open = false;
		then_owner = NOBODY; then_owner_old = false; then_knows[0] = false; then_knows[1] = false;
		then_waits[0] = false; then_waits[1] = false; then_waits_old[0] = false; then_waits_old[1] = false }
#endif
#ifdef SERVER_CLOCK
	:: d_step { expires == 0 && owner != NOBODY -> owner = NOBODY; owner_old = false; new_fence(); hand_over() }
#ifdef STEPS
	:: d_step { !stepped && expires > 0 -> stepped = true; expires = 0 }
#endif
#endif
	od
}

/* --- the keeper --- */

/* The only place where a lease is lost: the parent kills the program that has the kernel lock. */
inline lose(h) {
	assert(!gave_back[h]);
	runs[h] = false; frozen[h] = false; between[h] = false; page[h] = false;
	state[h] = NONE; forgotten[h] = false; lapsed[h] = false; table[h] = 0; left[h] = 0
}

/* check_deadline() */
inline check_deadline(h) {
	if
	:: left[h] == 0 && IS_LEASE(h) ->
		if :: state[h] == HELD -> state[h] = UNSURE; page[h] = false :: else fi;
		lapsed[h] = true;
		if :: forgotten[h] -> lose(h) :: else fi
#ifndef STALE_GRANT
	:: left[h] == 0 && state[h] == ASKING -> lapsed[h] = true
#endif
	:: else
	fi
}

/* host_renewed() */
inline renewed(h) {
#ifdef DEADLINE_OF_ANSWER
	until[h] = SURE;
#endif
#ifndef RENEW_FIRST
	check_deadline(h);
#endif
#ifdef FORGOTTEN_RENEWED
	if :: until[h] > left[h] -> left[h] = until[h] :: else fi
#else
	/* A lease that the store has forgotten is safe until the old deadline: beats of the new incarnation do not
	 * count. */
	if :: until[h] > left[h] && !forgotten[h] -> left[h] = until[h] :: else fi
#endif
}

inline hold(h) {
	state[h] = HELD; page[h] = true; forgotten[h] = false; lapsed[h] = false;
#if ROLLS > 0
	if :: !knows[h] -> then_knows[h] = false :: else fi
#endif
}

/* The lease is granted: the table says so first. */
inline is_granted(h) {
	table[h] = 2; gave_back[h] = false;
	hold(h)
}

inline send(h, o) {
	op[h] = o; answer[h] = PENDING; until[h] = (o == ACQUIRE || o == BEAT || o == CONFIRM || o == RECLAIM ||
		o == RESUME -> SURE : 0);
	names[h] = o == ACQUIRE && seen[h] && watching[h] == 0
}

/* on_incarnation(), forget() */
inline forget(h) {
	inc[h] = answer_inc[h]; grace[h] = true; seen[h] = false; watching[h] = 0; granted[h] = false;
#ifdef OPEN_EARLY
	grace_left[h] = 1;
#else
	grace_left[h] = TTL;
#endif
	check_deadline(h);
	if
	:: IS_LEASE(h) && !lapsed[h] -> state[h] = UNSURE; page[h] = false; forgotten[h] = true
#ifdef RECLAIM_LATE
	:: IS_LEASE(h) && lapsed[h] -> state[h] = UNSURE; page[h] = false; forgotten[h] = true
#elif defined(FENCE_RESUMES)
	:: IS_LEASE(h) && lapsed[h] -> send(h, RESUME)
#else
	:: IS_LEASE(h) && lapsed[h] -> lose(h)
#endif
	:: state[h] == RELEASING -> state[h] = NONE; table[h] = 0; left[h] = 0; gave_back[h] = false
	:: else
	fi
}

inline take_answer(h) {
	mtype:op was; mtype:status is;
	was = op[h]; is = answer[h];
	op[h] = NOTHING; answer[h] = PENDING;
	if
	:: is == OTHER_INC -> forget(h)
	:: is == GRACE && was == ACQUIRE -> grace[h] = true
	:: is == GRACE && was == RESUME -> send(h, RESUME)
	:: is == WAIT ->
		renewed(h);
		if :: shows[h] && !seen[h] -> seen[h] = true; watching[h] = TTL :: else fi
	:: is == OK && was == ACQUIRE ->
		renewed(h);
		if :: state[h] == ASKING && left[h] > 0 -> knows[h] = answer_knows[h]; is_granted(h) :: else fi
	:: is == OK && was == BEAT -> renewed(h)
	:: is == OK && (was == CONFIRM || was == RECLAIM || was == RESUME) ->
		forgotten[h] = forgotten[h] && was != RECLAIM;
		renewed(h);
		if :: state[h] == UNSURE && left[h] > 0 -> hold(h) :: else fi
	:: is == OK && was == RELEASE ->
		if :: state[h] == RELEASING -> state[h] = NONE; table[h] = 0; left[h] = 0;
			gave_back[h] = false :: else fi
	:: is == OK && was == OPEN_STORE -> grace[h] = false
	:: is == GONE -> if :: IS_LEASE(h) -> lose(h) :: else fi
	fi;
	shows[h] = false; answer_knows[h] = false; answer_inc[h] = 0;
	if :: op[h] == NOTHING -> until[h] = 0 :: else fi;
	was = NOTHING; is = OK
}

/* The lease was tested free and is closed to newcomers: the table says "returned" before the release is sent. */
inline give_back(h) {
	page[h] = false; recalled[h] = false; state[h] = RELEASING; gave_back[h] = true;
#ifndef TABLE_LATE
	table[h] = 0;
#endif
	send(h, RELEASE)
}

/* False if asking again would say nothing new. */
#define IDLE_QUESTION(h) (waits[h] && !waits_old[h] && inc[h] == store_inc && \
			  !(owner == OTHER(h) && (!recalled[OTHER(h)] || !seen[h] || watching[h] == 0)))

inline keeper_dies(h) {
	if
	:: op[h] != NOTHING && answer[h] == PENDING && late[h] == NOTHING ->
		late[h] = op[h]; late_old[h] = false; late_inc[h] = inc[h]; late_names[h] = names[h]
	:: true
	fi;
	op[h] = NOTHING; answer[h] = PENDING; until[h] = 0; names[h] = false; shows[h] = false;
		answer_knows[h] = false; answer_inc[h] = 0;
	seen[h] = false; watching[h] = 0; granted[h] = false; forgotten[h] = false; lapsed[h] = false;
	/* As the parent sees the table of a dead keeper */
	state[h] = (state[h] == HELD -> UNSURE : state[h]); alive[h] = false
}

inline take_up(h) {
	if
	:: table[h] == 2 -> state[h] = UNSURE; lapsed[h] = left[h] == 0
	:: table[h] == 1 -> state[h] = RELEASING; table[h] = 0; gave_back[h] = true
	:: table[h] == 0 -> state[h] = NONE; gave_back[h] = false
	fi;
#ifndef TAKEN_UP_OPEN
	page[h] = false;
#endif
	alive[h] = true
}

proctype Keeper(byte h) {
end:	do
	:: d_step { alive[h] && state[h] == NONE && op[h] == NOTHING ->
		/* A new token: everything that names the earlier one is of an old token now. */
		owner_old = owner_old || owner == h; waits_old[h] = waits[h]; late_old[h] = late[h] != NOTHING;
			granted[h] = false;
#if ROLLS > 0
		then_owner_old = then_owner_old || then_owner == h; then_waits_old[h] = then_waits[h];
#endif
		table[h] = 1; state[h] = ASKING; gave_back[h] = false; lapsed[h] = false;
		send(h, ACQUIRE) }
	:: d_step { alive[h] && state[h] == ASKING && op[h] == NOTHING && !IDLE_QUESTION(h) &&
		!(inc[h] == store_inc && !store_open) ->
		send(h, ACQUIRE) }
	:: d_step { alive[h] && state[h] == ASKING && op[h] == NOTHING && grace[h] && grace_left[h] == 0 &&
		inc[h] == store_inc && !store_open ->
		send(h, OPEN_STORE) }
	:: d_step { alive[h] && granted[h] -> granted[h] = false;
		check_deadline(h);
		if
		:: state[h] == ASKING && left[h] > 0 && !lapsed[h] ->
			knows[h] = owner == h && !owner_old; is_granted(h)
		:: else
		fi }
	:: d_step { alive[h] && op[h] != NOTHING && answer[h] != PENDING -> take_answer(h) }
	:: d_step { alive[h] && state[h] == HELD && left[h] == 0 -> check_deadline(h) }
	:: d_step { alive[h] && state[h] == HELD && recalled[h] && !runs[h] && op[h] == NOTHING -> give_back(h) }
	:: d_step { alive[h] && state[h] == RELEASING && op[h] == NOTHING -> send(h, RELEASE) }
	:: d_step { alive[h] && IS_LEASE(h) && op[h] == NOTHING && left[h] < SURE -> send(h, BEAT) }
	:: d_step { alive[h] && state[h] == UNSURE && op[h] == NOTHING && !forgotten[h] -> send(h, CONFIRM) }
	:: d_step { alive[h] && state[h] == UNSURE && op[h] == NOTHING && forgotten[h] -> send(h, RECLAIM) }
#if LOSSES > 0
	:: atomic { alive[h] && losses > 0 && op[h] != NOTHING && op[h] != RESUME -> losses--;
		if
		:: answer[h] == PENDING && late[h] == NOTHING ->
			late[h] = op[h]; late_old[h] = false; late_inc[h] = inc[h]; late_names[h] = names[h]
		:: true
		fi;
		op[h] = NOTHING; answer[h] = PENDING; until[h] = 0; names[h] = false; shows[h] = false;
			answer_knows[h] = false;
		answer_inc[h] = 0; granted[h] = false }
#endif
#if CRASHES > 0
	:: atomic { alive[h] && crashes > 0 -> crashes--; keeper_dies(h) }
	:: d_step { !alive[h] -> take_up(h) }
#endif
	od
}

/* --- the keeper's parent: freeze.c --- */

#define MUST_FREEZE(h)  (IS_LEASE(h) && left[h] <= 1 && runs[h] && !frozen[h])

proctype Parent(byte h) {
#ifdef SEARCH_FIRST
	/* One search, at the margin; the page stays open until the deadline. */
end:	do
	:: d_step { IS_LEASE(h) && left[h] == 1 && !searched[h] -> searched[h] = true;
		if :: runs[h] -> frozen[h] = true; between[h] = false :: else fi }
	:: d_step { searched[h] && left[h] > 1 -> searched[h] = false }
#else
end:	do
	:: d_step { MUST_FREEZE(h) -> frozen[h] = true; between[h] = false }
#endif
	:: d_step { frozen[h] && state[h] == HELD && left[h] > 1 -> frozen[h] = false;
		assert(!(runs[h] && between[h])); between[h] = false;
		assert(EXCLUSIVE) }
	od
}

/* --- a program: takes the kernel lock, looks at the page, and if that says so, runs --- */

proctype Program(byte h) {
end:	do
	:: d_step { !runs[h] && PAGE_SURE(h) -> runs[h] = true;
		between[OTHER(h)] = between[OTHER(h)] || (frozen[OTHER(h)] && runs[OTHER(h)]);
		assert(EXCLUSIVE) }
	:: d_step { runs[h] && !frozen[h] -> runs[h] = false }
	od
}

#define COUNT(x)        if :: x > 0 -> x-- :: else fi
#ifdef SEARCH_FIRST
#define LATE_PARENT(h)  (IS_LEASE(h) && left[h] == 1 && !searched[h])
#else
#define LATE_PARENT(h)  MUST_FREEZE(h)
#endif
#ifdef SERVER_CLOCK
#define COUNT_SERVER    COUNT(expires)
#define SERVER_LEFT     expires
#else
#define COUNT_SERVER    skip
#define SERVER_LEFT     0
#endif

proctype Clock() {
end:	do
	:: d_step { !LATE_PARENT(0) && !LATE_PARENT(1) &&
		left[0] + left[1] + until[0] + until[1] + watching[0] + watching[1] +
		grace_left[0] + grace_left[1] + SERVER_LEFT > 0 ->
		COUNT(left[0]); COUNT(left[1]); COUNT(until[0]); COUNT(until[1]); COUNT(watching[0]);
		COUNT(watching[1]); COUNT(grace_left[0]); COUNT(grace_left[1]); COUNT_SERVER }
	od
}

init {
	atomic {
		state[0] = NONE; state[1] = NONE; op[0] = NOTHING; op[1] = NOTHING; answer[0] = PENDING;
			answer[1] = PENDING;
		late[0] = NOTHING; late[1] = NOTHING;
		run Store(); run Clock(); run Keeper(0); run Keeper(1); run Parent(0); run Parent(1);
			run Program(0); run Program(1)
	}
}
