/*
 * moves HOW OTHER FILE: locks a file under the name OTHER, gives it the name FILE, and locks it again at once.
 * HOW: rename; link; linked (it had both names before).
 */
#include "tests/interpose/calls.h"

int main(int argc, char **argv)
{
	int fd, rc = -1;

	if (argc != 4)
		return 99;
	fd = must_open(argv[2], O_RDWR | O_CREAT);
	if (strcmp(argv[1], "linked") == 0)
		rc = link(argv[2], argv[3]);
	CALL("as OTHER", flock(fd, LOCK_EX));
	CALL("again", flock(fd, LOCK_EX));
	if (strcmp(argv[1], "rename") == 0)
		rc = rename(argv[2], argv[3]);
	if (strcmp(argv[1], "link") == 0)
		rc = link(argv[2], argv[3]);
	if (strncmp(argv[1], "link", 4) == 0) {
		close(fd);
		fd = must_open(argv[3], O_RDWR);
	}
	if (rc < 0)
		return 99;
	CALL("as FILE", flock(fd, LOCK_EX));
	return 0;
}
