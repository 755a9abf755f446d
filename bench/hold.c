/* hold PREFIX COUNT: locks PREFIX0, PREFIX1, ..., says "held", and keeps them until its standard input ends. */
#include <limits.h>
#include <sys/file.h>

#include "bench/bench.h"

int main(int argc, char **argv)
{
	char path[PATH_MAX], byte;
	long count;

	struct flock record = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
	int fd;

	if (argc != 4)
		bench_die("hold PREFIX COUNT flock|record");
	count = bench_number(argv[2]);
	for (long i = 0; i < count; i++) {
		snprintf(path, sizeof(path), "%s%ld", argv[1], i);
		fd = bench_open(path, O_RDWR | O_CREAT);
		if (strcmp(argv[3], "record") == 0 ? fcntl(fd, F_SETLKW, &record) != 0 : flock(fd, LOCK_EX) != 0)
			bench_die("the lock");
	}
	puts("held");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	return EXIT_SUCCESS;
}
