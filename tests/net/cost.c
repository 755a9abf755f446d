/*
 * What the net costs: `cost GATE FOLDER` runs its measurements plain and under GATE in turn, takes the least time of each, and
 * prints what they are and their ratio. `cost --measure FILE`: one of these runs.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 7
#define KINDS  5

static const char *const names[KINDS] = {"getppid", "fcntl(F_GETFL)", "flock pair, FILE", "fcntl pair, FILE",
					 "flock pair, another file"};

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static void once(int kind, int fd, int other)
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

	switch (kind) {
	case 0:
		syscall(SYS_getppid);
		break;
	case 1:
		fcntl(fd, F_GETFL);
		break;
	case 3:
		fcntl(fd, F_SETLK, &l);
		l.l_type = F_UNLCK;
		fcntl(fd, F_SETLK, &l);
		break;
	default:
		fd = kind == 2 ? fd : other;
		flock(fd, LOCK_EX);
		flock(fd, LOCK_UN);
	}
}

static int measure(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT, 0600), other = open("/dev/shm", O_RDONLY), n;
	double from;

	if (fd < 0 || other < 0)
		return 1;
	for (int kind = 0; kind < KINDS; kind++) {
		n = kind < 2 ? 100000 : 5000;
		for (int i = 0; i < n / 10; i++)
			once(kind, fd, other);
		from = now_ns();
		for (int i = 0; i < n; i++)
			once(kind, fd, other);
		printf("%.1f\n", (now_ns() - from) / n);
	}
	return 0;
}

static int run(const char *command, double *least)
{
	FILE *f = popen(command, "r");
	double ns;

	for (int kind = 0; f && kind < KINDS; kind++)
		if (fscanf(f, "%lf", &ns) != 1)
			return -1;
		else
			least[kind] = ns < least[kind] ? ns : least[kind];
	if (!f || pclose(f) != 0)
		return -1;
	return 0;
}

int main(int argc, char **argv)
{
	double plain[KINDS], net[KINDS];
	char without[1024], with[4096];

	if (argc == 3 && strcmp(argv[1], "--measure") == 0)
		return measure(argv[2]);
	if (argc != 3)
		return 2;
	for (int kind = 0; kind < KINDS; kind++)
		plain[kind] = net[kind] = 1e12;
	snprintf(without, sizeof(without), "%s --measure %s/a", argv[0], argv[2]);
	snprintf(with, sizeof(with), "%s %s/store 0 %s/a -- %s", argv[1], argv[2], argv[2], without);
	for (int i = 0; i < ROUNDS; i++)
		if (run(without, plain) < 0 || run(with, net) < 0) {
			fprintf(stderr, "cost: cannot run %s\n", with);
			return 1;
		}
	for (int kind = 0; kind < KINDS; kind++)
		printf("%-26s plain %6.0f ns, under the net %6.0f ns: + %.0f ns, %.1f times\n", names[kind],
		       plain[kind], net[kind], net[kind] - plain[kind], net[kind] / plain[kind]);
	return 0;
}
