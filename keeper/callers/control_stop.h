/*
 * `dflock stop`: gives back every lease that no program uses, and ends the keeper when all have gone. Refused when one is
 * in use, may be in use, or cannot be given back in time; then the keeper goes on. Programs that have asked, and for which
 * there is no lease so far, get CONTROL_STOP_RELEASE_MS to have their answer. Loop only.
 */
#ifndef DFLOCK_KEEPER_CONTROL_STOP_H
#define DFLOCK_KEEPER_CONTROL_STOP_H

#include <stdbool.h>
#include <stdint.h>

struct keeper;
struct lease;
struct session;

#define CONTROL_STOP_WAIT_MS    5000 /* less than the command line waits for an answer */
#define CONTROL_STOP_RELEASE_MS 2000 /* for the store's answers, and for programs that have none */

/* A session has asked for it: answers now or later. */
void control_stop(struct session *s);

/* News for sessions that wait for it: a program uses this lease; a lease has ended; the store is not reachable any
 * more. */
void control_stop_in_use(const struct lease *lease);
void control_stop_leases_ended(struct keeper *k);
void control_stop_store_down(struct keeper *k);

/* The decision after waited_ms, while a lease has not gone. in_use: a lease may be in use. Pure. */
enum control_stop_step { CONTROL_STOP_GOES_ON, CONTROL_STOP_REFUSED, CONTROL_STOP_ENDS };
enum control_stop_step control_stop_decide(int64_t waited_ms, bool in_use);

#endif
