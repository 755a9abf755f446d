/*
 * record_left CALL FILE: a shared lock on [5, 8), then an exclusive one on [0, 10) by CALL (setlk, setlkw, ofd, lockf),
 * and which locks there are in the end.
 */
#include "tests/interpose/calls.h"

static void print_left(int fd)
{
	char path[64], line[256], type[16], last[32];
	long long first;
	FILE *info;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	info = fopen(path, "r");
	printf("left:");
	while (info && fgets(line, sizeof(line), info))
		if (sscanf(line, "lock: %*s %*s %*s %15s %*s %*s %lld %31s", type, &first, last) == 3)
			printf(" %s %lld %s", type, first, last);
	printf("\n");
	if (info)
		fclose(info);
}

int main(int argc, char **argv)
{
	struct flock lock = {.l_type = F_RDLCK, .l_start = 5, .l_len = 3};
	const char *name;
	int fd;

	if (argc != 3)
		return 99;
	name = argv[1];
	fd = must_open(argv[2], O_RDWR | O_CREAT);
	CALL("first", fcntl(fd, strcmp(name, "ofd") == 0 ? F_OFD_SETLK : F_SETLK, &lock));
	lock = (struct flock){.l_type = F_WRLCK, .l_len = 10};
	if (strcmp(name, "setlk") == 0)
		CALL("second", fcntl(fd, F_SETLK, &lock));
	if (strcmp(name, "setlkw") == 0)
		CALL("second", fcntl(fd, F_SETLKW, &lock));
	if (strcmp(name, "ofd") == 0)
		CALL("second", fcntl(fd, F_OFD_SETLKW, &lock));
	if (strcmp(name, "lockf") == 0)
		CALL("second", lockf(fd, F_LOCK, 10));
	print_left(fd);
	print_descriptors();
	return 0;
}
