/* The keeper's clock: CLOCK_BOOTTIME, which goes on while the machine sleeps, as leases do. Any thread. */
#ifndef DFLOCK_KEEPER_CLOCK_H
#define DFLOCK_KEEPER_CLOCK_H

#include <stdint.h>
#include <time.h>

#define NS_PER_MS 1000000ll

static inline int64_t clock_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

#endif
