/*
 * nameless KIND FOLDER: takes locks on a file that has no name, or none that this process could know, and says what
 * came of it. KIND:
 *
 * - deep: below FOLDER, under a path longer than PATH_MAX
 * - tmpfile: made in FOLDER without a name (O_TMPFILE); reopened: the same, through /proc; linked: the same, after it
 *   got the name FOLDER/named
 * - deleted: FOLDER/doomed, which was unlinked
 * - chroot: FOLDER/file, opened after chroot(FOLDER); before: opened before it; late: its first lock was taken before
 * it; outside: opened before chroot(FOLDER/../jail)
 */
#include <limits.h>
#include <sys/stat.h>

#include "tests/interpose/calls.h"

static int open_deep(const char *folder)
{
	static char name[256];
	int fd = must_open(folder, O_RDONLY | O_DIRECTORY), up;

	memset(name, 'n', 255);
	for (int depth = 0; depth < 17; depth++) {
		mkdirat(fd, name, 0700);
		up = fd;
		fd = openat(up, name, O_RDONLY | O_DIRECTORY);
		close(up);
	}
	up = openat(fd, "file", O_RDWR | O_CREAT, 0600);
	close(fd);
	return up;
}

static int must(int rc, const char *what)
{
	if (rc < 0) {
		perror(what);
		exit(2);
	}
	return rc;
}

static int open_kind(const char *kind, const char *folder)
{
	char path[PATH_MAX], link[64];
	int fd;

	snprintf(path, sizeof(path), "%s/file", folder);
	if (strcmp(kind, "deep") == 0)
		return open_deep(folder);
	if (strcmp(kind, "deleted") == 0) {
		snprintf(path, sizeof(path), "%s/doomed", folder);
		fd = must_open(path, O_RDWR | O_CREAT);
		unlink(path);
		return fd;
	}
	if (strcmp(kind, "chroot") == 0) {
		must(chroot(folder), "chroot");
		return must_open("/file", O_RDWR | O_CREAT);
	}
	if (strcmp(kind, "outside") == 0) {
		fd = must_open(path, O_RDWR | O_CREAT);
		snprintf(path, sizeof(path), "%s/../jail", folder);
		must(chroot(path), "chroot");
		return fd;
	}
	if (strcmp(kind, "before") == 0 || strcmp(kind, "late") == 0) {
		fd = must_open(path, O_RDWR | O_CREAT);
		if (strcmp(kind, "late") == 0) {
			CALL("first", flock(fd, LOCK_EX | LOCK_NB));
			CALL("unlock", flock(fd, LOCK_UN));
		}
		must(chroot(folder), "chroot");
		return fd;
	}
	fd = must(open(folder, O_TMPFILE | O_RDWR, 0600), "O_TMPFILE");
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	if (strcmp(kind, "reopened") == 0)
		return must(open(link, O_RDWR), link);
	if (strcmp(kind, "linked") == 0) {
		snprintf(path, sizeof(path), "%s/named", folder);
		must(linkat(AT_FDCWD, link, AT_FDCWD, path, AT_SYMLINK_FOLLOW), path);
	}
	return fd;
}

int main(int argc, char **argv)
{
	struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10};
	int fd;

	if (argc != 3)
		return 2;
	fd = must(open_kind(argv[1], argv[2]), "open");
	CALL("flock", flock(fd, LOCK_EX | LOCK_NB));
	CALL("waiting", flock(fd, LOCK_EX));
	CALL("unlock", flock(fd, LOCK_UN));
	CALL("record", fcntl(fd, F_SETLK, &range));
	CALL("getlk", fcntl(fd, F_GETLK, &range));
	return 0;
}
