/*
 * Counts caught calls on protected files in the job's tally (wire/tally.h), for `dflock run --report` and `--require=taken`. Without one,
 * nothing. What the kernel then says to a call that was let go on, no supervisor knows. Any thread.
 */
#ifndef DFLOCK_NET_COUNT_H
#define DFLOCK_NET_COUNT_H

#include "net/thread.h"
#include "net/want.h"

/* This call was decided: 0, it goes on with a grant; or it fails with -errno. */
void count_decided(const struct thread *t, const struct want *want, int ret);

#endif
