/*
 * Takes locks past dflock: by system calls of its own, so that no preload sees them.
 *
 *   past KIND FILE          flock, shared, posix, ofd: one lock on FILE
 *   past KIND PREFIX COUNT  the same on PREFIX0, PREFIX1, ...
 *   past ranges FILE COUNT  POSIX locks on COUNT single bytes
 *   past byte FILE N        a POSIX lock on byte N
 *   past after-flock FILE, after-fcntl FILE   a lock through libc, and then the same past it, which it may have, with all registers as the
 *                           first call left them: says "first" and "second" when the calls have returned 0, and ends
 *
 * Says "held" and keeps the locks until its standard input ends. For each line of its input it drops all locks, takes
 * them again, and says "held" again.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
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

static int after_libc(const char *path, bool is_flock)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	long ret;

	setvbuf(stdout, NULL, _IONBF, 0);
	if (fd < 0 || (is_flock ? flock(fd, LOCK_EX | LOCK_NB) : fcntl(fd, F_SETLK, &lock)) != 0)
		return 3;
	ret = is_flock ? past(SYS_flock, fd, LOCK_EX | LOCK_NB, 0) : past(SYS_fcntl, fd, F_SETLK, (long)&lock);
	puts("first");
	if (ret != 0)
		return 4;
	puts("second");
	return 0;
}

/* On one byte, or on all (first < 0). */
static long set(const char *kind, int fd, long first, int type)
{
	struct flock lock = {.l_type = (short)type, .l_start = first < 0 ? 0 : first, .l_len = first >= 0};

	if (!strcmp(kind, "flock"))
		return past(SYS_flock, fd, type == F_UNLCK ? LOCK_UN : LOCK_EX | LOCK_NB, 0);
	if (!strcmp(kind, "shared"))
		return past(SYS_flock, fd, type == F_UNLCK ? LOCK_UN : LOCK_SH | LOCK_NB, 0);
	return past(SYS_fcntl, fd, !strcmp(kind, "ofd") ? F_OFD_SETLK : F_SETLK, (long)&lock);
}

struct files {
	const char *kind;
	int *fds;
	long count, byte;
	bool ranges; /* of one file */
};

static void set_all(const struct files *files, int type)
{
	for (long i = 0; i < files->count; i++) {
		/* Every second byte: the kernel would make one lock of neighbours. */
		long byte = files->ranges ? 2 * i : files->byte;
		long ret = set(files->kind, files->fds[files->ranges ? 0 : i], byte, type);

		if (ret == 0)
			continue;
		fprintf(stderr, "past: %ld: %s\n", i, strerror((int)-ret));
		exit(3);
	}
}

static void open_all(const struct files *files, const char *prefix, bool numbered)
{
	for (long i = 0; i < (files->ranges ? 1 : files->count); i++) {
		char path[4096], number[24] = "";

		if (numbered)
			snprintf(number, sizeof(number), "%ld", i);
		snprintf(path, sizeof(path), "%s%s", prefix, number);
		files->fds[i] = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
		if (files->fds[i] < 0) {
			fprintf(stderr, "past: %s: %s\n", path, strerror(errno));
			exit(3);
		}
	}
}

int main(int argc, char **argv)
{
	struct files files = {.count = 1, .byte = -1};
	long number = argc > 3 ? strtol(argv[3], NULL, 10) : 0;
	struct rlimit limit;
	char line[16];

	if (argc < 3)
		return 2;
	if (!strncmp(argv[1], "after-", 6))
		return after_libc(argv[2], !strcmp(argv[1], "after-flock"));
	files.kind = argv[1];
	files.ranges = !strcmp(argv[1], "ranges");
	if (!strcmp(argv[1], "byte"))
		files.byte = number;
	else if (argc > 3)
		files.count = number;
	files.fds = calloc((size_t)files.count + 1, sizeof(*files.fds));
	if (!files.fds)
		return 3;
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	open_all(&files, argv[2], argc > 3 && !files.ranges && files.byte < 0);
	do {
		set_all(&files, F_UNLCK);
		set_all(&files, F_WRLCK);
		puts("held");
		fflush(stdout);
	} while (fgets(line, sizeof(line), stdin));
	return 0;
}
