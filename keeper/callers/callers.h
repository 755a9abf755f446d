/* What the keeper tells a caller that waits for a lease: while it waits, or instead of a grant. Loop only. */
#ifndef DFLOCK_KEEPER_CALLERS_H
#define DFLOCK_KEEPER_CALLERS_H

#include <stdbool.h>

#include "keeper/leases/waiters.h"

struct session;

/* Does it want an answer now (LOCK_NB, a test), or to wait? */
bool caller_is_nonblocking(const struct session *s);
/* Tells the caller that it waits for another host: it then lets go of the kernel lock that it converts. Sent once. */
void caller_tell_waiting(struct session *s);
/* EWOULDBLOCK, with the lock in the way if that is known. */
void caller_would_block(struct session *s);
/* ENOLCK, with one line that begins with the file. */
void caller_refuse(struct session *s, enum refusal refusal, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* The same for a reason that may be gone later. */
void caller_refuse_for_now(struct session *s, enum refusal refusal, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Does it wait for as long as store, keeper or lease are not there (on_refused = "wait")? */
bool caller_is_patient(const struct session *s);

#endif
