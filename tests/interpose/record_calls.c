/* record_calls FILE: record locks with arguments that the kernel turns down, or that are easily got wrong. */
#include <sys/mman.h>

#include "tests/interpose/calls.h"

static void print_lock(const struct flock *lock)
{
	printf("  type %d whence %d start %lld len %lld pid %d\n", lock->l_type, lock->l_whence,
	       (long long)lock->l_start, (long long)lock->l_len, lock->l_pid == getpid() ? 1 : lock->l_pid);
}

/* Two pages, of which the second may not be touched; the struct ends `inside` bytes into it. */
static struct flock *at_border(char *pages, long inside)
{
	struct flock *lock = (struct flock *)(pages + 4096 + inside - (long)sizeof(*lock));

	if (inside <= 0)
		*lock = (struct flock){.l_type = F_WRLCK, .l_start = 10, .l_len = 5};
	return lock;
}

static void pointers(int fd)
{
	static const int commands[] = {F_SETLK, F_SETLKW, F_GETLK, F_OFD_SETLK, F_OFD_SETLKW, F_OFD_GETLK};
	static const struct flock constant = {.l_type = F_WRLCK, .l_start = 10, .l_len = 5};
	char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct flock unlock = {.l_type = F_UNLCK};

	mprotect(pages + 4096, 4096, PROT_NONE);
	for (int i = 0; i < 6; i++) {
		printf("command %d\n", commands[i]);
		CALL("NULL", fcntl(fd, commands[i], NULL));
		CALL("-1", fcntl(fd, commands[i], (void *)-1));
		CALL("no address at all", fcntl(fd, commands[i], (void *)0x1234567812345678));
		CALL("forbidden", fcntl(fd, commands[i], pages + 4096));
		CALL("half of it", fcntl(fd, commands[i], at_border(pages, 16)));
		CALL("a byte of it", fcntl(fd, commands[i], at_border(pages, 1)));
		CALL("up to the border", fcntl(fd, commands[i], at_border(pages, 0)));
		CALL("not aligned", fcntl(fd, commands[i], at_border(pages, -3)));
		CALL("in constant memory", fcntl(fd, commands[i], &constant));
		CALL("bad pointer, bad descriptor", fcntl(77, commands[i], NULL));
		fcntl(fd, i < 3 ? F_SETLK : F_OFD_SETLK, &unlock);
	}
	munmap(pages, 8192);
}

static void modes(const char *path)
{
	static const int commands[] = {F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW, F_GETLK, F_OFD_GETLK};
	struct flock unlock = {.l_type = F_UNLCK};
	static const int flags[] = {O_RDONLY, O_WRONLY, O_RDWR, O_PATH, O_RDONLY | O_DIRECTORY};

	for (int i = 0; i < 5; i++) {
		int fd = must_open(i == 4 ? "/dev/shm" : path, flags[i]);

		for (int j = 0; j < 6; j++) {
			struct flock sh = {.l_type = F_RDLCK, .l_len = 3}, ex = {.l_type = F_WRLCK, .l_len = 3};
			struct flock bad = {.l_type = F_WRLCK, .l_whence = 9},
				     range = {.l_type = F_WRLCK, .l_start = -1};
			struct flock pid = {.l_type = F_RDLCK, .l_pid = 5};

			printf("flags %d command %d\n", i, commands[j]);
			CALL("shared", fcntl(fd, commands[j], &sh));
			CALL("exclusive", fcntl(fd, commands[j], &ex));
			CALL("bad whence", fcntl(fd, commands[j], &bad));
			CALL("bad range", fcntl(fd, commands[j], &range));
			CALL("l_pid", fcntl(fd, commands[j], &pid));
			fcntl(fd, F_SETLK, &unlock);
			fcntl(fd, F_OFD_SETLK, &unlock);
		}
		close(fd);
	}
}

static void tests(int fd, int other)
{
	struct flock ex = {.l_type = F_WRLCK, .l_start = 10, .l_len = 5}, lock = ex;
	struct flock own = {.l_type = F_UNLCK};

	lseek(fd, 10, SEEK_SET);
	CALL("OFD lock", fcntl(other, F_OFD_SETLK, &ex));
	CALL("F_GETLK in the way", fcntl(fd, F_GETLK, &lock));
	print_lock(&lock);
	lock = (struct flock){.l_type = F_RDLCK, .l_whence = SEEK_CUR, .l_start = 5, .l_len = 4, .l_pid = 9};
	CALL("F_GETLK beside it", fcntl(fd, F_GETLK, &lock));
	print_lock(&lock);
	CALL("F_GETLK for nothing", fcntl(fd, F_GETLK, &own));
	CALL("F_OFD_GETLK for its own", fcntl(other, F_OFD_GETLK, &own));
	print_lock(&own);
	CALL("F_TEST in the way", lockf(fd, F_TEST, 0));
	CALL("F_TLOCK in the way", lockf(fd, F_TLOCK, 1));
	CALL("F_TEST beside it", lockf(fd, F_TEST, -2));
	ex.l_type = F_RDLCK;
	CALL("OFD lock, shared", fcntl(other, F_OFD_SETLK, &ex));
	CALL("F_TEST sees no shared lock", lockf(fd, F_TEST, 0));
	CALL("F_TLOCK does", lockf(fd, F_TLOCK, 0));
	CALL("F_LOCK beside it", lockf(fd, F_LOCK, -2));
	CALL("F_TEST, own lock", lockf(fd, F_TEST, -2));
	CALL("F_ULOCK", lockf(fd, F_ULOCK, -2));
	CALL("F_LOCK before the start", lockf(fd, F_LOCK, -13));
	CALL("F_TEST before the start", lockf(fd, F_TEST, -13));
	CALL("F_LOCK, too long", lockf(fd, F_LOCK, 0x7fffffffffffffff));
	CALL("unknown", lockf(fd, 9, 0));
}

int main(int argc, char **argv)
{
	int fd, other;

	if (argc != 2)
		return 99;
	fd = must_open(argv[1], O_RDWR | O_CREAT);
	other = must_open(argv[1], O_RDWR);
	pointers(fd);
	modes(argv[1]);
	tests(fd, other);
	print_descriptors();
	return 0;
}
