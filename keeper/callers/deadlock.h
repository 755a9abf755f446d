/*
 * Finds cycles of F_SETLKW waits that go over several hosts, by chasing edges: a call that waits sends a chase to the
 * hosts that hold what it waits for; such a host finds out from its kernel which processes hold it, and for each of
 * them that waits itself sends the chase on: to other hosts, or, where the kernel's list of locks says that it waits in this kernel,
 * to the processes here for which it waits. If it comes back to the process that sent it, that process waits for
 * itself, and its call fails with EDEADLK, as fcntl(2) says.
 *
 * Which call gets EDEADLK: the one that closed the cycle, that is, the one that began to wait last. The store numbers
 * waiting calls by its time, so that those of several shards can be compared; a chase collects the largest number on its way, and counts
 * only for the call with that number. Where the clocks of the shards' servers differ, that may be another member of the cycle. A call
 * sends its chase again when the store was asked again for its lease, though not more often than a chase is followed (below): messages may
 * be lost, but many calls may wait for one lease, and each of them has the store asked when it comes. Of very many calls only some send
 * theirs each time.
 *
 * What it sees: waits for other hosts, and waits in the local kernel, of programs with the preload and of those under the net. A cycle
 * that was closed by a wait in a local kernel is found by the next repeated chase of another of its members, which then
 * fails instead. So is one with a call that waits in the kernel since before its keeper was replaced (preload), when it asks again. OFD locks and
 * flock have no EDEADLK, in the kernel as here. At most DEADLOCK_HOPS edges are followed, and each host follows a chase once in half the
 * time after which it is repeated (chases.h), with one search at a time (deadlock.c). It goes on once for all processes here that wait for
 * one lease.
 *
 * Loop only.
 */
#ifndef DFLOCK_KEEPER_DEADLOCK_H
#define DFLOCK_KEEPER_DEADLOCK_H

#include <stdbool.h>

struct keeper;
struct lease;
struct session;
struct store_message;

#define DEADLOCK_HOPS 64

/* Sets k->deadlock. 0 or -ENOMEM. */
int deadlock_init(struct keeper *k);
void deadlock_free(struct keeper *k);

/* Is this a call that waits and that may fail with EDEADLK? */
bool deadlock_possible(const struct session *s);

/* The store has queued (again) the asking lease that the session waits for, and named its blockers: sends a chase, if
 * the session could be in a cycle. */
void deadlock_chase(struct session *s);

/* Takes a chase (store message). */
void deadlock_message(struct keeper *k, const struct store_message *message);

#endif
