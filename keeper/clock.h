/* The keeper's clock: CLOCK_BOOTTIME, which goes on while the machine sleeps, as leases do. Any thread. */
#ifndef DFLOCK_KEEPER_CLOCK_H
#define DFLOCK_KEEPER_CLOCK_H

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_MS 1000000ll

static inline int64_t clock_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

/* For how long this thread has run on a processor. Waiting for one does not count: on a busy machine, pauses that follow from
 * it would grow with that. */
static inline int64_t clock_thread_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

/* The boot that the clock counts from: its times mean nothing in another boot. 0 or -errno. */
#define CLOCK_BOOT_BYTES 40
static inline int clock_boot(char boot[CLOCK_BOOT_BYTES])
{
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, boot, 36);
	close(fd);
	boot[n == 36 ? 36 : 0] = '\0';
	return n == 36 ? 0 : -EIO;
}

#endif
