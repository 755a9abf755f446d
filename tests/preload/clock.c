/*
 * A preload that makes a program's clocks wrong: the file that DFLOCK_TEST_CLOCK names has two numbers (int64_t), which
 * may change at any time: by how many ns the wall clock is wrong, and by how many parts per million the others run fast
 * (slow, if negative). A third one counts the calls, so that a test sees that the program's calls come here, and do not
 * bypass the preload.
 *
 * Calls that wait (poll, nanosleep) wait in true time.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct clocks {
	int64_t wall_ns, fast_ppm, asked;
};

static struct clocks *clocks;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void start(void)
{
	const char *path = getenv("DFLOCK_TEST_CLOCK");
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;

	*(void **)&real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
	clocks = mmap(NULL, sizeof(*clocks), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (clocks == MAP_FAILED || !real_clock_gettime)
		abort(); /* a test must not run with right clocks by mistake */
	close(fd);
}

int clock_gettime(clockid_t which, struct timespec *out)
{
	int64_t ns;

	if (!real_clock_gettime) /* another library's constructor */
		start();
	int ret = real_clock_gettime(which, out);

	if (ret != 0)
		return ret;
	ns = out->tv_sec * 1000000000ll + out->tv_nsec;
	switch (which) {
	case CLOCK_REALTIME:
	case CLOCK_REALTIME_COARSE:
		ns += clocks->wall_ns;
		break;
	case CLOCK_MONOTONIC:
	case CLOCK_MONOTONIC_COARSE:
	case CLOCK_MONOTONIC_RAW:
	case CLOCK_BOOTTIME:
		ns += (int64_t)((__int128)ns * clocks->fast_ppm / 1000000);
		break;
	default:
		return ret;
	}
	__atomic_add_fetch(&clocks->asked, 1, __ATOMIC_RELAXED);
	out->tv_sec = ns / 1000000000;
	out->tv_nsec = ns % 1000000000;
	return 0;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	*out = (struct timeval){.tv_sec = t.tv_sec, .tv_usec = t.tv_nsec / 1000};
	return 0;
}

time_t time(time_t *out)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	if (out)
		*out = t.tv_sec;
	return t.tv_sec;
}
