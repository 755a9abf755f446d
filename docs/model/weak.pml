/*
 * The order of single loads and stores around the page (wire/leases.h, wire/seqcopy.h) on processors that reorder them (ARMv8, RISC-V): one
 * program, one keeper, one slot. page.pml has the rest of the keeper, and store buffers only.
 *
 * A thread is a set of operations. Each happens once, in any order, but after those that must come before it: because of a fence, an acquire or
 * a release, because it needs their results, or because both are of one place. A branch delays no load. Memory is one, since both
 * architectures are multi-copy atomic.
 *
 * GIVE          the keeper closes the slot, asks the kernel, and gives the lease back if the lock is free
 * OUTAGE        the lease is unsure: the keeper closes the slot and raises sure_until for other leases; the parent looks for holders when
 *               sure_until is over; later another host gets the lease
 * TEAR          the slot gets another entry, of other bytes in another mode: nobody may see the mode of one and the bytes of the other
 *
 * Mutants, each of which must be caught: NO_SHIM_FENCE (GIVE, OUTAGE), NO_LAST_FENCE (GIVE), SLOT_FIRST RAISED_FIRST NO_READ_FENCE (OUTAGE),
 * NO_BEGIN NO_READ_FENCE NO_ODD_FENCE NO_RELEASE (TEAR).
 */
byte kernel;                    /* 1: the program has the kernel lock */
byte sure = 1;                  /* sure_until */
byte clock_seq, slot_seq;
byte left = 1;                  /* two words of the slot; both 1: open, and what the program looks for */
#ifdef TEAR
byte right = 0;
#define NEW_LEFT        0
#define NEW_RIGHT       1
#else
byte right = 1;
#define NEW_LEFT        0
#define NEW_RIGHT       0
#endif
byte now;
bool given;                     /* another host may have the lease */
bool seen;                      /* the parent found the program, and freezes it */
bool runs;                      /* the lock call succeeded */

#define OP(n, before, what)     :: d_step { !(done & (1 << n)) && (done & (before)) == (before) -> what; done = done | (1 << n) }

#ifdef NO_SHIM_FENCE
#define LOCKED          0
#else
#define LOCKED          (1 << 0)
#endif
#ifdef NO_BEGIN                 /* seqcopy_begin() with a load that is no acquire */
#define BEGUN(n)        0
#else
#define BEGUN(n)        (1 << n)
#endif
#ifdef NO_READ_FENCE            /* seqcopy_end() without its fence */
#define READ(bits)      0
#else
#define READ(bits)      (bits)
#endif
#ifdef SLOT_FIRST               /* leases_stand() with the slot before sure_until */
#define CLOCK_READ      0
#define SLOT_READ       (BEGUN(4) | READ(1 << 5 | 1 << 6))
#else
#define CLOCK_READ      (BEGUN(1) | READ(1 << 2))
#define SLOT_READ       0
#endif

proctype Program() {            /* use_page(), leases_stand() */
	byte a1, a2, b1, b2, until, l, r, t;
	short done;
	do
	OP(0, 0, kernel = 1)
	OP(1, LOCKED | SLOT_READ, a1 = clock_seq)
	OP(2, LOCKED | SLOT_READ | BEGUN(1), until = sure)
	OP(3, LOCKED | SLOT_READ | 1 << 1 | READ(1 << 2), a2 = clock_seq)
	OP(4, LOCKED | CLOCK_READ, b1 = slot_seq)
	OP(5, LOCKED | CLOCK_READ | BEGUN(4), l = left)
	OP(6, LOCKED | CLOCK_READ | BEGUN(4), r = right)
	OP(7, LOCKED | CLOCK_READ | 1 << 4 | READ(1 << 5 | 1 << 6), b2 = slot_seq)
	OP(8, LOCKED, t = now)  /* clock_gettime() waits for no other load */
	:: d_step { done == 511 ->
		runs = a1 == a2 && !(a1 & 1) && b1 == b2 && !(b1 & 1) && l && r && t < until;
		assert(!(runs && given && !seen));
#ifdef TEAR
		assert(!runs);
#endif
	   }
	   break
	od
}

#ifdef NO_ODD_FENCE             /* seqcopy_publish() without its first fence */
#define ODD(n)          0
#else
#define ODD(n)          (1 << n)
#endif
#ifdef NO_RELEASE               /* ... with a last store that is no release */
#define WRITTEN(bits)   0
#else
#define WRITTEN(bits)   (bits)
#endif
#ifdef NO_LAST_FENCE            /* ... without its last fence */
#define PUBLISHED       0
#else
#define PUBLISHED       (1 << 0 | 1 << 1 | 1 << 2 | 1 << 3)
#endif
#ifdef RAISED_FIRST             /* the keeper raises sure_until, then closes the slot */
#define CLOSED          0
#define RAISED          (1 << 4 | 1 << 5 | 1 << 6)
#else
#define CLOSED          PUBLISHED
#define RAISED          0
#endif

proctype Keeper() {             /* leasepage_close(), leasepage_refresh() */
	short done;
	bool free;
	do
	OP(0, RAISED, slot_seq = 1)
	OP(1, RAISED | ODD(0), left = NEW_LEFT)
	OP(2, RAISED | ODD(0), right = NEW_RIGHT)
	OP(3, RAISED | 1 << 0 | WRITTEN(1 << 1 | 1 << 2), slot_seq = 2)
#ifdef GIVE
	OP(4, PUBLISHED, free = !kernel)
	:: d_step { done & (1 << 4) && free -> given = true; assert(!runs) }
	   break
#endif
#ifdef OUTAGE
	OP(4, CLOSED, clock_seq = 1)
	OP(5, CLOSED | ODD(4), sure = 5)
	OP(6, CLOSED | 1 << 4 | WRITTEN(1 << 5), clock_seq = 2)
#endif
	:: done == 127 || (done == 31 && !free) || done == 15 -> break
	od
}

#ifdef OUTAGE
proctype Parent() {             /* freezer.c: it was told sure_until before the page was */
	now >= 1;
	seen = kernel;
	now >= 2;
	d_step { given = true; assert(!(runs && !seen)) }
}

proctype Time() {
	now = 1;
	now = 2;
	now = 3
}
#endif

init {
	atomic {
		run Program();
		run Keeper();
#ifdef OUTAGE
		run Parent();
		run Time()
#endif
	}
}
