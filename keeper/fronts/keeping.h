/*
 * A front that keeps descriptions and asks the kernel about locks on them: the process's own code. away.h is the
 * keeper's side of it.
 */
#ifndef DFLOCK_KEEPER_KEEPING_H
#define DFLOCK_KEEPER_KEEPING_H

/* Until the keeper has ended, or does not need the front any more. */
__attribute__((noreturn)) void keeping_main(void);

#endif
