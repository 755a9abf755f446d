/* What a caller that waits for a lease is told while it does, or instead of a grant. Loop only. */
#ifndef DFLOCK_KEEPER_CALLERS_H
#define DFLOCK_KEEPER_CALLERS_H

#include "keeper/keeper.h"

/* Does it want an answer now (LOCK_NB, a test), or to wait? */
bool caller_is_nonblocking(const struct session *s);
/* It waits for another host: then it lets go of the kernel lock that it converts. Once is enough. */
void caller_tell_waiting(struct session *s);
/* EWOULDBLOCK; with what is in the way, if that is known. */
void caller_would_block(struct session *s);
/* ENOLCK, in one line, which begins with the file. */
void caller_refuse(struct session *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
