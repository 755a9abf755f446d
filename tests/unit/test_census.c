/* keeper/kernel/census.h: locks that no descriptor shows, and the processes that have a file mapped. */
#include "keeper/kernel/census.h"

#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "tests/unit/pass_fd.h"
#include "tests/unit/suite.h"

#define ROOM 16

static int fd;
static struct holders_file file;
static struct claims claims;
static struct holder rows[ROOM];
static size_t count;

static void setup(void)
{
	struct stat st;

	fd = suite_nameless_file();
	ck_assert_int_eq(ftruncate(fd, 8192), 0);
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
	child = suite_fork();
	if (!child)
		suite_rest();
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
	const struct holder *lock;
	int pair[2];

	ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &range), 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	ck_assert(pass_fd(pair[0], fd));
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

/* --- keeper/kernel/mappers.c --- */

static unsigned seen[2]; /* how often for `file`, and for another one */
static pid_t mapper;     /* one of those that were seen */

static int on_mapper(void *arg, size_t which, pid_t pid)
{
	ck_assert_uint_lt(which, 2);
	seen[which]++;
	mapper = pid;
	return *(int *)arg;
}

static size_t passed_over;

static int find_mappers_once(uint64_t other_ino, int cb_returns)
{
	const struct holders_file both[] = {file, {.dev = file.dev, .ino = other_ino}};

	memset(seen, 0, sizeof(seen));
	return mappers_find(both, 2, on_mapper, &cb_returns, &passed_over);
}

static int find_mappers(uint64_t other_ino, int cb_returns)
{
	int ret;

	do /* as above */
		ret = find_mappers_once(other_ino, cb_returns);
	while (passed_over);
	return ret;
}

/* A process with so many mappings that the kernel takes longer to show them than a hanging thread is waited for. */
TEST(a_mapper_with_many_mappings)
{
	const size_t pages = 60000; /* vm.max_map_count is 65,530 */
	pid_t child = suite_fork();

	if (child == 0) {
		char *at = mmap(NULL, pages * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		for (size_t i = 0; i < pages; i += 2)
			if (mprotect(at + i * 4096, 4096, PROT_READ) != 0)
				_exit(1);
		/* the last one, wherever mmap() puts others */
		if (mmap(at + (pages - 1) * 4096, 4096, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
			_exit(1);
		suite_rest();
	}
	seen[0] = 0;
	for (int i = 0; i < 100 && !seen[0]; i++) /* as above */
		ck_assert_int_eq(find_mappers_once(0, 0), 0);
	ck_assert_int_eq(mapper, child);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

TEST(mappers_of_a_file)
{
	int other = suite_nameless_file(), fds[] = {fd, other};
	void *at[2];
	struct stat st;
	pid_t child;

	ck_assert_int_eq(ftruncate(other, 4096), 0);
	ck_assert_int_eq(fstat(other, &st), 0);
	child = suite_fork();
	if (child == 0) {
		for (int i = 0; i < 2; i++) /* two pieces with different rights: two lines */
			if (mmap(NULL, 4096, i ? PROT_READ : PROT_NONE, MAP_SHARED, fd, i * 4096) == MAP_FAILED)
				_exit(1);
		suite_rest();
	}
	ck_assert_int_eq(find_mappers(st.st_ino, 0), 0);
	ck_assert(seen[0] >= 1 && seen[1] == 0);
	ck_assert_int_eq(mapper, child);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	ck_assert_int_eq(find_mappers(st.st_ino, 0), 0);
	ck_assert_uint_eq(seen[0], 0);
	for (int i = 0; i < 2; i++)
		at[i] = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fds[i], 0);
	ck_assert_int_eq(find_mappers(st.st_ino, 7), 7); /* the callback ends it */
	ck_assert_uint_eq(seen[0] + seen[1], 1);
	ck_assert_int_eq(find_mappers(st.st_ino, 0), 0);
	ck_assert(seen[0] >= 1 && seen[1] >= 1);
	for (int i = 0; i < 2; i++)
		munmap(at[i], 4096);
}
