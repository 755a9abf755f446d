/* flock_calls FILE DIRECTORY: every operation of flock() on every kind of descriptor. */
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "tests/interpose/calls.h"

static void operations(const char *path)
{
	static const int ops[] = {
		LOCK_SH,           LOCK_EX,
		LOCK_UN,           LOCK_SH | LOCK_NB,
		LOCK_EX | LOCK_NB, LOCK_UN | LOCK_NB,
		LOCK_UN,           0,
		LOCK_NB,           LOCK_SH | LOCK_EX,
		LOCK_EX | LOCK_UN, 16,
		LOCK_MAND,         LOCK_MAND | LOCK_READ,
		1 << 20,           -1,
	};
	char what[32];
	int fd = must_open(path, O_RDWR | O_CREAT);

	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		snprintf(what, sizeof(what), "op %#x", (unsigned)ops[i]);
		CALL(what, flock(fd, ops[i]));
	}
	close(fd);
}

static void conflicts(const char *path)
{
	int a = must_open(path, O_RDWR), b = must_open(path, O_RDWR), c = dup(a);

	CALL("a shared", flock(a, LOCK_SH));
	CALL("b shared", flock(b, LOCK_SH | LOCK_NB));
	CALL("b upgrade fails", flock(b, LOCK_EX | LOCK_NB));
	CALL("and lost what it had: a upgrade", flock(a, LOCK_EX | LOCK_NB));
	CALL("the same description", flock(c, LOCK_EX | LOCK_NB));
	CALL("b exclusive", flock(b, LOCK_EX | LOCK_NB));
	CALL("b shared", flock(b, LOCK_SH | LOCK_NB));
	CALL("unlock through the copy", flock(c, LOCK_UN));
	CALL("b exclusive", flock(b, LOCK_EX | LOCK_NB));
	close(b);
	CALL("after close", flock(a, LOCK_EX | LOCK_NB));
	close(a);
	close(c);
}

static void kinds(const char *path, const char *dir)
{
	int pair[2];

	CALL("read-only, exclusive", flock(must_open(path, O_RDONLY), LOCK_EX | LOCK_NB));
	close(3);
	CALL("write-only, shared", flock(must_open(path, O_WRONLY), LOCK_SH | LOCK_NB));
	close(3);
	CALL("neither", flock(must_open(path, O_ACCMODE), LOCK_SH));
	close(3);
	CALL("O_PATH", flock(must_open(path, O_PATH), LOCK_EX));
	close(3);
	CALL("directory", flock(must_open(dir, O_RDONLY | O_DIRECTORY), LOCK_EX));
	close(3);
	CALL("/dev/null", flock(must_open("/dev/null", O_RDWR), LOCK_EX));
	close(3);
	CALL("memfd", flock(memfd_create("x", 0), LOCK_EX));
	close(3);
	CALL("eventfd", flock(eventfd(0, 0), LOCK_EX));
	close(3);
	if (pipe(pair) == 0)
		CALL("pipe", flock(pair[0], LOCK_EX));
	close(pair[0]);
	close(pair[1]);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0)
		CALL("socket", flock(pair[0], LOCK_EX));
	close(pair[0]);
	close(pair[1]);
	CALL("never open", flock(200, LOCK_EX));
	CALL("closed", flock(3, LOCK_SH | LOCK_NB));
	CALL("-1", flock(-1, LOCK_EX));
	CALL("INT_MAX", flock(0x7fffffff, LOCK_EX));
	CALL("bad descriptor and operation", flock(-1, 0));
}

static void deleted(const char *path)
{
	int fd = must_open(path, O_RDWR);

	unlink(path);
	CALL("deleted", flock(fd, LOCK_EX));
	CALL("deleted, again", flock(fd, LOCK_SH | LOCK_NB));
	close(fd);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 99;
	operations(argv[1]);
	conflicts(argv[1]);
	kinds(argv[1], argv[2]);
	deleted(argv[1]);
	print_descriptors();
	return 0;
}
