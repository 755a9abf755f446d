/*
 * Locks many files and holds them: holding FOLDER COUNT. Says "ok COUNT" when it has all of them, or "ERRNO-NAME N" for
 * the first lock that it does not get. Then each line "un" on standard input makes it give all back, and say "ok". The
 * end of standard input ends it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int count = argc == 3 ? atoi(argv[2]) : 0, *fds = calloc((size_t)count + 1, sizeof(*fds));
	char path[4096], line[16];

	if (!count || !fds)
		return 2;
	for (int i = 0; i < count; i++) {
		snprintf(path, sizeof(path), "%s/many-%d", argv[1], i);
		fds[i] = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
		if (fds[i] < 0 || flock(fds[i], LOCK_EX | LOCK_NB) != 0) {
			printf("%s %d\n", strerrorname_np(errno), i);
			return 1;
		}
	}
	printf("ok %d\n", count);
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		for (int i = 0; i < count; i++)
			flock(fds[i], LOCK_UN);
		printf("ok\n");
		fflush(stdout);
	}
	return 0;
}
