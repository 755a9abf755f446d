/* Those who wait for an asking lease, and what they are told while they do, or instead of a grant. Loop only. */
#ifndef DFLOCK_KEEPER_CALLERS_H
#define DFLOCK_KEEPER_CALLERS_H

#include "keeper/keeper.h"

/* --- one --- */

/* Does it want an answer now (LOCK_NB, a test), or to wait? */
bool caller_is_nonblocking(const struct session *s);
/* It waits for another host: then it lets go of the kernel lock that it converts. Once is enough. */
void caller_tell_waiting(struct session *s);
/* EWOULDBLOCK; with what is in the way, if that is known. */
void caller_would_block(struct session *s);
/* ENOLCK, in one line, which begins with the file. */
void caller_refuse(struct session *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* --- all that wait for a lease --- */

bool callers_exist(const struct lease *lease);
bool callers_wait(const struct lease *lease); /* blocking ones */
bool callers_ask(const struct lease *lease);  /* non-blocking ones */
/* Has one record locks of the file already? The kernel would grant it more past whoever waits. */
bool callers_may_pass(const struct lease *lease);

/* The store has it in its queue: tells the blocking ones, and numbers those who waited for it already when it was
 * asked. */
void callers_queued(struct lease *lease, int64_t asked_ns, uint64_t arrival);
/* A holder uses it: those who want the lock and do not wait fail; those who only test do when all holders have said
 * what is in the way. */
void callers_in_use(struct lease *lease);
void callers_refuse(struct lease *lease, const char *why); /* all fail with ENOLCK */
void callers_refuse_nonblocking(struct lease *lease, const char *why);

#endif
