/*
 * A front that keeps descriptions and asks the kernel about locks on them: the process's own code. away.h is the
 * keeper's side of it.
 */
#ifndef DFLOCK_KEEPER_KEEPING_H
#define DFLOCK_KEEPER_KEEPING_H

#include "keeper/fronts/frontmsg.h"

/* Until the keeper has ended, or does not need the front any more. */
__attribute__((noreturn)) void keeping_main(void);

/* Any front. Waits until the keeper has read it; if the keeper has ended, so does the front. before: answer->before_count of them;
 * fd: -1 for none. */
void keeping_say(const struct front_answer *answer, const struct held *before, int fd);

#endif
