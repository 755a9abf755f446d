/*
 * warn_after_ms and kill_after_ms: locks that are held too long are reported (log, status), and their holders are ended.
 *
 *   ages.h           how old a lock is at least, by what callers were granted
 *   toolong.c          when to look, what a look found, warnings, orders
 *   guard/orders.c     the parent ends the holders, and what they started, by an order
 *
 * When a grant is old enough, a worker searches /proc for the processes that have locks on its file (holders.h), and the
 * loop compares what it found with the grants as they are then.
 *
 * Why no process is ended that holds a lock briefly, however often. The last pin of process P for this file and space ended
 * kill_after_ms ago or earlier when the order is given, and the order is taken back before P gets another pin. guard/orders.c
 * says why the parent then ends no younger lock. What comes in between:
 *   - Lock, unlock, lock: each lock is a grant, and makes the grant young. So it is for processes that take turns: each has
 *     a grant of its own, and where the kernel does not say which process took a lock, the youngest of all counts.
 *   - A lock that was there before the rule had a limit, or that was taken past dflock: P has no
 *     grant, and nothing is done (NULL from ages_find()). Such a lock is reported only after P was granted another one.
 *   - P has ended, and its number is another process's, which has locks that were taken past dflock: that process was started
 *     after the grant, so the grant is dropped. And looks that do not find P's lock drop its grant.
 *   - A process inherits a lock, or gets it by a message: the lock line says P all the same. A process is ended only if P's
 *     user might signal it, or that user is root: else any user could send a lock to another user's process. Process 1 is
 *     never ended.
 *   - While holders are frozen, leases are not sure, or the machine sleeps, the running clock stands, and nobody is ended.
 * The assumption: a process that is granted a lock of a file takes none of that file past dflock as well (by a system call of
 * its own, or after execve() into a static program). If it does, it is taken for the granted one if looks find it.
 *
 * What it misses: holders that the keeper may not look into, or does not find (holders.h); a process that locks again now and
 * then, in another thread for example, is not taken for one that hangs.
 *
 * Loop only.
 */
#ifndef DFLOCK_KEEPER_TOOLONG_H
#define DFLOCK_KEEPER_TOOLONG_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct keeper;

/* Part of struct keeper. */
struct toolong {
	uv_timer_t timer;
	bool on, looking;
	bool crowded; /* the last look found more locks than there is room for: the next one is for one file and space */
	uint64_t warned, numbered; /* locks that were reported; orders: never go back */
	int64_t rest_until_ns;
};

void toolong_start(struct keeper *k);
/* Nothing begins any more. */
void toolong_stop(struct keeper *k);

#endif
