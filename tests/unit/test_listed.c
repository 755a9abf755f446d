/* What /proc/locks says of a file, and where it says nothing. */
#include "keeper/kernel/refind.h"

#include <sched.h>
#include <sys/file.h>
#include <sys/mman.h>

#include "tests/unit/suite.h"

static struct stat st;
static int fd;

static void setup(void)
{
	fd = suite_nameless_file();
	ck_assert_int_eq(ftruncate(fd, 4096), 0);
	ck_assert_int_eq(fstat(fd, &st), 0);
}

static void teardown(void) { close(fd); }
FIXTURE(setup, teardown)

static enum listed_answer ask(enum wire_space space)
{
	struct listed *listed = listed_read();
	enum listed_answer answer = listed_ask(listed, st.st_dev, st.st_ino, space);
	listed_free(listed);
	return answer;
}

/* In any pid namespace but the first one, whose number is the same on every machine, nothing is known: so it is for all of a container's
 * locks. */
static void check(enum wire_space space, enum listed_answer in_first)
{
	struct stat ns;
	bool first = stat("/proc/self/ns/pid", &ns) == 0 && ns.st_ino == 0xeffffffcu;
	ck_assert_int_eq(ask(space), first ? in_first : LISTED_UNKNOWN);
}

TEST(spaces)
{
	struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 5};

	check(WIRE_FLOCK, LISTED_NONE);
	ck_assert_int_eq(flock(fd, LOCK_SH), 0);
	check(WIRE_FLOCK, LISTED_SOME);
	check(WIRE_RECORD, LISTED_NONE);
	ck_assert_int_eq(flock(fd, LOCK_UN), 0);
	ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &lock), 0);
	check(WIRE_FLOCK, LISTED_NONE);
	check(WIRE_RECORD, LISTED_SOME);
	lock.l_type = F_UNLCK;
	ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &lock), 0);
	lock.l_type = F_WRLCK;
	ck_assert_int_eq(fcntl(fd, F_SETLK, &lock), 0);
	check(WIRE_RECORD, LISTED_SOME);
}

TEST(no_descriptor)
{
	void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(memory, MAP_FAILED);
	ck_assert_int_eq(flock(fd, LOCK_EX), 0);
	close(fd);
	check(WIRE_FLOCK, LISTED_SOME);
	munmap(memory, 4096);
	check(WIRE_FLOCK, LISTED_NONE);
	fd = -1;
}

TEST(other_file_systems)
{
	int proc = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
	ck_assert_int_eq(fstat(proc, &st), 0);
	ck_assert_int_eq(ask(WIRE_FLOCK), LISTED_UNKNOWN);
	close(proc);
	st.st_dev = 0x7777;
	ck_assert_int_eq(ask(WIRE_FLOCK), LISTED_UNKNOWN);
	ck_assert_int_eq(listed_ask(NULL, st.st_dev, st.st_ino, WIRE_FLOCK), LISTED_UNKNOWN);
}

/* A child in a pid namespace of its own sees a lock neither of its parent nor of one that has ended: it must not conclude anything. */
TEST(other_namespace)
{
	int status, pid;

	ck_assert_int_eq(flock(fd, LOCK_EX), 0);
	pid = fork();
	if (pid == 0) {
		pid_t inside;

		if (unshare(CLONE_NEWPID | (geteuid() ? CLONE_NEWUSER : 0)) != 0)
			_exit(9);
		inside = fork();
		if (inside == 0)
			_exit(ask(WIRE_FLOCK)); /* with the outer /proc */
		waitpid(inside, &status, 0);
		_exit(WEXITSTATUS(status));
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(WEXITSTATUS(status), LISTED_UNKNOWN);
}
