/*
 * Ends processes whose lease was lost: nothing protects them any more, so they must not go on.
 *
 * Parent only.
 */
#ifndef DFLOCK_KEEPER_BEREFT_H
#define DFLOCK_KEEPER_BEREFT_H

#include "keeper/guard/freeze.h"

/* Kills the processes that rely on locks under TABLE_LOST slots, and frees the slots. Takes up to 100 ms for the
 * stopping, and LASTWORDS_MS for lines on their standard errors. */
void bereft_kill(struct freeze *freeze);

#endif
