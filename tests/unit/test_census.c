/* keeper/kernel/census.h: locks that no descriptor shows. */
#include "keeper/kernel/census.h"

#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/prctl.h>

#include "tests/unit/suite.h"

#define ROOM 16

static int fd;
static struct claims claims;
static struct holder rows[ROOM];
static size_t count;

static void setup(void)
{
	struct holders_file file;
	struct stat st;

	fd = suite_nameless_file();
	ck_assert_int_eq(ftruncate(fd, 4096), 0);
	ck_assert_int_eq(fstat(fd, &st), 0);
	file = (struct holders_file){.dev = st.st_dev, .ino = st.st_ino};
	ck_assert_int_eq(claims_add(&claims, &file, WIRE_FLOCK, 0, WIRE_EOF, 0), 0);
	ck_assert_int_eq(claims_add(&claims, &file, WIRE_RECORD, 0, 50, 0), 0);
	ck_assert_int_eq(claims_build(&claims), 0);
}

static void teardown(void) { claims_free(&claims); }
FIXTURE(setup, teardown)

static int on_row(void *arg, const struct holder *holder)
{
	ck_assert_uint_lt(count, ROOM);
	rows[count++] = *holder;
	return 0;
}

static void look(unsigned how)
{
	struct holders_search ask = {.how = how, .cb = on_row};

	count = 0;
	ck_assert_int_eq(census_take(&claims, &ask), 0);
}

/* The row that is known so; NULL: none. */
static const struct holder *row(enum holder_how how)
{
	for (size_t i = 0; i < count; i++)
		if (rows[i].how == how)
			return &rows[i];
	return NULL;
}

static bool any_hidden(void)
{
	look(0);
	return row(HOLDER_TAKER) || row(HOLDER_MAPPER) || row(HOLDER_NOBODY);
}

TEST(what_descriptors_show)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 5, .l_len = 5};

	ck_assert_int_eq(flock(fd, LOCK_SH), 0);
	ck_assert_int_eq(fcntl(fd, F_SETLK, &lock), 0);
	lock.l_start = 100;
	ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &lock), 0);
	ck_assert(!any_hidden());
	ck_assert_uint_eq(count, 3); /* each once */
	for (size_t i = 0; i < count; i++)
		ck_assert_int_eq(rows[i].pid, getpid());
}

/* The taker counts, and so does each process that has the file mapped. */
TEST(a_mapping)
{
	pid_t child;
	void *at;

	ck_assert_int_eq(flock(fd, LOCK_EX), 0);
	at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(at, MAP_FAILED);
	ck_assert(!any_hidden());
	close(fd);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	do { /* on a busy machine a process may be passed over for nothing: Check's own time limit ends this */
		look(HOLDERS_AT_ONCE);
		ck_assert_ptr_nonnull(row(HOLDER_TAKER));
		ck_assert_int_eq(row(HOLDER_TAKER)->pid, getpid());
		ck_assert_int_eq(row(HOLDER_TAKER)->sight, SIGHT_OPEN);
		ck_assert_int_eq(row(HOLDER_TAKER)->space, WIRE_FLOCK);
		ck_assert_int_eq(row(HOLDER_TAKER)->mode, WIRE_EXCLUSIVE);
		ck_assert_ptr_null(row(HOLDER_NOBODY));
	} while (!row(HOLDER_MAPPER));
	ck_assert_int_eq(row(HOLDER_MAPPER)->pid, child);
	munmap(at, 4096);
	kill(child, SIGKILL);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	ck_assert(!any_hidden());
}

TEST(a_message)
{
	struct flock range = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 7, .l_len = 3};
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {.head = {.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))}};
	struct iovec iov = {.iov_base = "x", .iov_len = 1};
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	const struct holder *lock;
	int pair[2];

	ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &range), 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
	ck_assert_int_eq(sendmsg(pair[0], &msg, 0), 1);
	ck_assert(!any_hidden());
	close(fd);
	look(0);
	ck_assert_uint_eq(count, 1);
	lock = row(HOLDER_NOBODY); /* the kernel does not say which process took an OFD lock */
	ck_assert_ptr_nonnull(lock);
	ck_assert_int_eq(lock->pid, 0);
	ck_assert_int_eq(lock->sight, SIGHT_BEYOND);
	ck_assert_int_eq(lock->space, WIRE_RECORD);
	ck_assert_int_eq(lock->owner, WIRE_OWNER_DESCRIPTION);
	ck_assert_int_eq(lock->from, 7);
	ck_assert_int_eq(lock->to, 10);
	close(pair[0]);
	close(pair[1]);
	ck_assert(!any_hidden());
}

/* No process is told of for a hidden lock that is under no claim. */
TEST(beside_the_claims)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 50, .l_len = 5};
	void *at;

	ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &lock), 0);
	at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(at, MAP_FAILED);
	close(fd);
	look(0);
	ck_assert_uint_eq(count, 0);
	munmap(at, 4096);
}
