/* cost FILE [COUNT]: what calls cost, in nanoseconds. Run plain and preloaded, and compare. */
#include <sys/syscall.h>
#include <time.h>

#include "tests/interpose/calls.h"

static double now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

/* The best of several rounds: the machine may be doing other things. */
#define COST(what, call)                                                                                               \
	do {                                                                                                           \
		double best_ = 1e18;                                                                                   \
		for (int round_ = 0; round_ < 7; round_++) {                                                           \
			double from_ = now_ns();                                                                       \
			for (int i_ = 0; i_ < count; i_++) {                                                           \
				call;                                                                                  \
			}                                                                                              \
			double took_ = (now_ns() - from_) / count;                                                     \
			best_ = took_ < best_ ? took_ : best_;                                                         \
		}                                                                                                      \
		printf("%s %.1f\n", what, best_);                                                                      \
	} while (0)

int main(int argc, char **argv)
{
	int fd, count;

	if (argc < 2)
		return 99;
	count = argc > 2 ? atoi(argv[2]) : 100000;
	fd = must_open(argv[1], O_RDWR | O_CREAT);
	COST("fcntl(F_GETFL)", fcntl(fd, F_GETFL));
	COST("syscall(-1)", syscall(-1));
	COST("lockf pair", (void)!lockf(fd, F_LOCK, 0); (void)!lockf(fd, F_ULOCK, 0));
	COST("flock pair", flock(fd, LOCK_EX); flock(fd, LOCK_UN));
	return 0;
}
