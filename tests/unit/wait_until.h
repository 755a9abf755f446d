/* Waiting for a condition that other processes or threads bring about: 20 s without it are a failure. */
#ifndef DFLOCK_TESTS_UNIT_WAIT_UNTIL_H
#define DFLOCK_TESTS_UNIT_WAIT_UNTIL_H

#include <check.h>
#include <time.h>

#define wait_until(condition)                                                                                          \
	do {                                                                                                           \
		const time_t until_ = time(NULL) + 21; /* whole seconds */                                             \
		while (!(condition)) {                                                                                 \
			ck_assert_msg(time(NULL) < until_, "not within 20 s: %s", #condition);                         \
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);                                       \
		}                                                                                                      \
	} while (0)

#endif
