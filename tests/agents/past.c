/*
 * Takes locks past dflock: by system calls of its own, so that no preload sees them.
 *
 *   past KIND FILE          flock, shared, posix, ofd: one lock on FILE
 *   past KIND PREFIX COUNT  the same on PREFIX0, PREFIX1, ...; ranges: COUNT POSIX locks on one byte each of PREFIX
 *
 * Says "held" and keeps the locks until its standard input ends. For each line of its input it drops all locks, takes
 * them again, and says "held" again.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static long past(long number, long a, long b, long c)
{
#if defined(__x86_64__)
	long ret;

	__asm__ volatile("syscall" : "=a"(ret) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
	return ret;
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;

	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
	return x0;
#else
#error "no system call written for this processor"
#endif
}

static long set(const char *kind, int fd, long first, int type)
{
	struct flock lock = {.l_type = (short)type, .l_start = first, .l_len = !strcmp(kind, "ranges")};

	if (!strcmp(kind, "flock"))
		return past(SYS_flock, fd, type == F_UNLCK ? LOCK_UN : LOCK_EX | LOCK_NB, 0);
	if (!strcmp(kind, "shared"))
		return past(SYS_flock, fd, type == F_UNLCK ? LOCK_UN : LOCK_SH | LOCK_NB, 0);
	return past(SYS_fcntl, fd, !strcmp(kind, "ofd") ? F_OFD_SETLK : F_SETLK, (long)&lock);
}

static void set_all(const char *kind, const int *fds, long count, int type)
{
	for (long i = 0; i < count; i++) {
		/* Every second byte: the kernel would make one lock of neighbours. */
		long ret = set(kind, fds[i], !strcmp(kind, "ranges") ? 2 * i : 0, type);

		if (ret == 0)
			continue;
		fprintf(stderr, "past: %ld: %s\n", i, strerror((int)-ret));
		exit(3);
	}
}

int main(int argc, char **argv)
{
	long count = argc > 3 ? strtol(argv[3], NULL, 10) : 1;
	int *fds = calloc((size_t)count + 1, sizeof(*fds));
	struct rlimit limit;
	char path[4096], line[16];

	if (argc < 3 || !fds)
		return 2;
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	for (long i = 0; i < count; i++) {
		if (!strcmp(argv[1], "ranges") && i) {
			fds[i] = fds[0];
			continue;
		}
		snprintf(path, sizeof(path), argc > 3 && strcmp(argv[1], "ranges") ? "%s%ld" : "%s", argv[2], i);
		fds[i] = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
		if (fds[i] < 0) {
			fprintf(stderr, "past: %s: %s\n", path, strerror(errno));
			return 3;
		}
	}
	do {
		set_all(argv[1], fds, count, F_UNLCK);
		set_all(argv[1], fds, count, F_WRLCK);
		puts("held");
		fflush(stdout);
	} while (fgets(line, sizeof(line), stdin));
	return 0;
}
