/*
 * The seccomp filter that hands lock calls over to the supervisors: flock() except LOCK_UN, and the commands of fcntl() that
 * take or test a record lock. All calls of x32 programs fail with ENOSYS. All other calls pass. F_UNLCK is handed over, too, since a filter cannot read struct flock.
 * Calls with the key in their sixth argument pass: the preload's own (shim/netted.c says how it is bound to the call).
 */
#ifndef DFLOCK_NET_FILTER_H
#define DFLOCK_NET_FILTER_H

#include <linux/filter.h>
#include <stdint.h>

#define FILTER_MAX 96

struct filter {
	struct sock_filter code[FILTER_MAX];
	unsigned short length;
};

/* The program of the filter. key: 0: there is none. Pure. */
void filter_build(struct filter *filter, uint64_t key);

/*
 * key: as above. Puts this process, and all that it starts or becomes, under the filter. The listener, which is closed by exec; or -errno:
 * -EBUSY   it is under a filter with a listener already
 * -EINVAL  the kernel is older than 5.19
 * A process without CAP_SYS_ADMIN first gives up what setuid programs would bring (no_new_privs). System calls only.
 */
int filter_install(uint64_t key);

#endif
