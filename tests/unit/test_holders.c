/* keeper/kernel/holders.c: children take locks, and the search has to find exactly those. */
#include "keeper/kernel/holders.h"

#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "keeper/clock.h"
#include "tests/unit/suite.h"

#define DEADLINE_MS 60000

/* A child that took its locks and keeps them until told to end. */
struct child {
	pid_t pid;
	int stop; /* closing it ends the child */
};

struct seen {
	struct holder all[32];
	char command[32][COMMAND_BYTES];
	size_t count, stop_after;
};

static char path[2][SUITE_PATH_BYTES];
static struct holders_file files[2];

static int see(void *arg, const struct holder *h)
{
	struct seen *seen = arg;

	ck_assert_uint_lt(seen->count, 32);
	seen->all[seen->count] = *h;
	snprintf(seen->command[seen->count++], COMMAND_BYTES, "%s", h->command);
	return seen->count == seen->stop_after ? 7 : 0;
}

static int search(pid_t ignore, struct seen *seen, size_t *unseen)
{
	struct holders_search ask = {
		.files = files, .count = 2, .ignore_pid = ignore, .how = HOLDERS_COMMANDS, .cb = see, .arg = seen};
	int ret = holders_search(&ask);

	if (unseen)
		*unseen = ask.unseen;
	return ret;
}

static struct seen find(pid_t ignore)
{
	struct seen seen = {.count = 0};
	size_t unseen = 99999;

	ck_assert_int_eq(search(ignore, &seen, &unseen), 0);
	ck_assert_uint_ne(unseen, 99999);
	return seen;
}

static const struct holder *of(const struct seen *seen, pid_t pid, size_t nth)
{
	for (size_t i = 0; i < seen->count; i++)
		if (seen->all[i].pid == pid && nth-- == 0)
			return &seen->all[i];
	return NULL;
}

/* What a child does: take its locks, then say so through ready(), then wait for the end in wait_for_end(). */
static int ready_fd, end_fd;

/* The `stop` ends of the children that run: a later child must not keep them open. */
static int stops[8];
static size_t stop_count;

static void ready(void)
{
	if (write(ready_fd, "r", 1) != 1)
		_exit(9);
}

static void wait_for_end(void)
{
	char c;

	while (read(end_fd, &c, 1) < 0 && errno == EINTR)
		;
	_exit(0);
}

static struct child start(void (*body)(void))
{
	int to[2], from[2];
	struct pollfd p;
	struct child c;
	char byte;

	ck_assert_int_eq(pipe2(to, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(from, O_CLOEXEC), 0);
	c.pid = fork();
	ck_assert_int_ge(c.pid, 0);
	if (!c.pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (size_t i = 0; i < stop_count; i++)
			close(stops[i]);
		close(to[1]);
		close(from[0]);
		end_fd = to[0];
		ready_fd = from[1];
		body();
		ready();
		wait_for_end();
	}
	close(to[0]);
	close(from[1]);
	p = (struct pollfd){.fd = from[0], .events = POLLIN};
	ck_assert_int_eq(poll(&p, 1, DEADLINE_MS), 1);
	ck_assert_msg(read(from[0], &byte, 1) == 1, "the child could not take its locks");
	close(from[0]);
	c.stop = to[1];
	ck_assert_uint_lt(stop_count, 8);
	stops[stop_count++] = c.stop;
	return c;
}

static void end(struct child c)
{
	int status;

	for (size_t i = 0; i < stop_count; i++)
		if (stops[i] == c.stop)
			stops[i] = stops[--stop_count];
	close(c.stop);
	ck_assert_int_eq(waitpid(c.pid, &status, 0), c.pid);
	ck_assert_int_eq(status, 0);
}

static void must(bool done)
{
	if (!done)
		_exit(8);
}

static int open_file(int which)
{
	int fd = open(path[which], O_RDWR | O_CLOEXEC);

	must(fd >= 0);
	return fd;
}

static void take_range(int which, int command, short type, off_t start, off_t len)
{
	struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len};

	must(!fcntl(open_file(which), command, &l));
}

static void flock_exclusive_with_copy(void)
{
	int fd = open_file(0);

	must(!flock(fd, LOCK_EX));
	must(dup(fd) >= 0);
}

static void flock_shared(void) { must(!flock(open_file(1), LOCK_SH)); }
static void open_only(void) { open_file(0); }

static void ranges(void)
{
	take_range(0, F_SETLK, F_WRLCK, 10, 5);
	take_range(0, F_OFD_SETLK, F_RDLCK, 100, 0);
}

TEST(finds_flock_once_with_mode_and_process)
{
	struct child a = start(flock_exclusive_with_copy), b = start(flock_shared), c = start(open_only);
	struct seen seen = find(0);
	const struct holder *ha = of(&seen, a.pid, 0), *hb = of(&seen, b.pid, 0);

	ck_assert_uint_eq(seen.count, 2);
	ck_assert_ptr_nonnull(ha);
	ck_assert_ptr_nonnull(hb);
	ck_assert_uint_eq(ha->file, 0);
	ck_assert_int_eq(ha->space, WIRE_FLOCK);
	ck_assert_int_eq(ha->mode, WIRE_EXCLUSIVE);
	ck_assert_int_eq(ha->owner, WIRE_OWNER_DESCRIPTION);
	ck_assert_int_eq(ha->from, 0);
	ck_assert_int_eq(ha->to, WIRE_EOF);
	ck_assert_int_le(ha->started, time(NULL) + 1);
	ck_assert_int_ge(ha->started, time(NULL) - 60);
	ck_assert_uint_eq(hb->file, 1);
	ck_assert_int_eq(hb->mode, WIRE_SHARED);
	ck_assert_str_ne(seen.command[0], "");
	end(a);
	end(b);
	end(c);
	ck_assert_uint_eq(find(0).count, 0);
}

/* Another search wants every file with that number, beside those that stat tells apart. */
TEST(finds_a_lock_by_number_too)
{
	struct child a = start(flock_shared);
	struct seen seen = {.count = 0};
	struct holders_file both[] = {files[1], files[1], files[1]};
	struct holders_search ask = {.files = both, .count = 3, .cb = see, .arg = &seen};

	both[0].by_number = true;
	both[1].kernel_dev = both[0].dev, both[1].kernel_ino = both[0].ino;
	both[1].ino++; /* as a twin in another subvolume */
	both[2].kernel_dev = both[0].dev, both[2].kernel_ino = both[0].ino;
	ck_assert_int_eq(holders_search(&ask), 0);
	ck_assert_uint_eq(seen.count, 2);
	ck_assert_uint_eq(of(&seen, a.pid, 0)->file, 0);
	ck_assert_uint_eq(of(&seen, a.pid, 1)->file, 2);
	end(a);
}

TEST(finds_record_locks_with_their_ranges)
{
	struct child a = start(ranges);
	struct seen seen = find(0);
	const struct holder *h;
	bool posix = false, ofd = false;

	ck_assert_uint_eq(seen.count, 2);
	for (size_t i = 0; (h = of(&seen, a.pid, i)); i++) {
		ck_assert_int_eq(h->space, WIRE_RECORD);
		posix |= h->owner == WIRE_OWNER_PROCESS && h->mode == WIRE_EXCLUSIVE && h->from == 10 && h->to == 15;
		ofd |= h->owner == WIRE_OWNER_DESCRIPTION && h->mode == WIRE_SHARED && h->from == 100 &&
		       h->to == WIRE_EOF;
	}
	ck_assert(posix);
	ck_assert(ofd);
	end(a);
}

TEST(leaves_out_one_process_and_stops_when_told)
{
	struct child a = start(flock_shared), b = start(flock_shared);
	struct seen seen = find(a.pid), first = {.stop_after = 1};

	ck_assert_uint_eq(seen.count, 1);
	ck_assert_ptr_nonnull(of(&seen, b.pid, 0));
	ck_assert_int_eq(search(0, &first, NULL), 7);
	ck_assert_uint_eq(first.count, 1);
	end(a);
	end(b);
}

/* The description outlives the process that locked it: the copy that a child inherited has the lock. */
static void inherited_by_grandchild(void)
{
	int fd = open_file(0);
	pid_t pid;

	must(!flock(fd, LOCK_EX));
	pid = fork();
	must(pid >= 0);
	if (!pid) {
		ready();
		wait_for_end();
	}
	close(fd);
	close(ready_fd);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	_exit(0);
}

/* 2000 descriptors, each of which shows 200 locks. */
static void many_copies(void)
{
	int fd = open_file(0);

	for (int i = 0; i < 200; i++) {
		struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 2 * i, .l_len = 1};

		must(!fcntl(fd, F_OFD_SETLK, &l));
	}
	for (int i = 0; i < 2000; i++)
		must(dup(fd) >= 0);
}

static int count_them(void *arg, const struct holder *h)
{
	(void)h;
	++*(size_t *)arg;
	return 0;
}

/* Else a user could have the keeper take all memory of the machine. */
TEST(copies_of_a_descriptor_take_no_memory)
{
	const struct rlimit before = {RLIM_INFINITY, RLIM_INFINITY};
	size_t count = 0, pages = 0;
	struct holders_search ask = {.files = files, .count = 2, .cb = count_them, .arg = &count};
	struct child a = start(many_copies);
	FILE *f = fopen("/proc/self/statm", "re");

	ck_assert_int_eq(fscanf(f, "%zu", &pages), 1);
	fclose(f);
	setrlimit(RLIMIT_AS, &(struct rlimit){(pages << 12) + (16 << 20), before.rlim_max});
	ck_assert_int_eq(holders_search(&ask), 0);
	setrlimit(RLIMIT_AS, &before);
	ck_assert_uint_eq(count, 200);
	end(a);
}

TEST(finds_the_process_that_inherited_the_lock)
{
	struct child a = start(inherited_by_grandchild);
	struct seen seen = find(0);
	char stat[64];
	int parent = 0;
	FILE *f;

	/* The child may not have closed its own copy yet: until it has, both hold the lock. */
	for (int i = 0; i < DEADLINE_MS && of(&seen, a.pid, 0); i++) {
		sched_yield();
		seen = find(0);
	}
	ck_assert_uint_eq(seen.count, 1);
	snprintf(stat, sizeof(stat), "/proc/%d/stat", (int)seen.all[0].pid);
	f = fopen(stat, "r");
	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(fscanf(f, "%*d (%*[^)]) %*c %d", &parent), 1);
	fclose(f);
	ck_assert_int_eq(parent, a.pid);
	end(a);
}

static void *lock_in_own_table(void *arg)
{
	must(!unshare(CLONE_FILES));
	must(!flock(open_file(0), LOCK_EX));
	ready();
	wait_for_end();
	return NULL;
}

/* The kernel sets it to 0 and wakes when the first thread is gone; a sanitizer does not allow a join of that thread. */
static int first_thread = 1;

static void *lock_and_stay(void *arg)
{
	while (__atomic_load_n(&first_thread, __ATOMIC_ACQUIRE))
		syscall(SYS_futex, &first_thread, FUTEX_WAIT, 1, NULL, NULL, 0);
	must(!flock(open_file(1), LOCK_EX));
	ready();
	wait_for_end();
	return NULL;
}

static void thread_with_own_table(void)
{
	pthread_t t;

	must(!pthread_create(&t, NULL, lock_in_own_table, NULL));
	pthread_join(t, NULL);
}

static void first_thread_gone(void)
{
	pthread_t t;

	syscall(SYS_set_tid_address, &first_thread);
	must(!pthread_create(&t, NULL, lock_and_stay, NULL));
	syscall(SYS_exit, 0); /* this thread alone */
}

TEST(finds_locks_that_only_a_thread_has)
{
	struct child a = start(thread_with_own_table), b = start(first_thread_gone);
	struct seen seen = find(0);

	ck_assert_uint_eq(seen.count, 2);
	ck_assert_ptr_nonnull(of(&seen, a.pid, 0));
	ck_assert_ptr_nonnull(of(&seen, b.pid, 0));
	end(a);
	end(b);
}

/* The command line is whatever its process likes. */
static void hostile_name(void)
{
	char script[128];
	char *argv[] = {"sh", "-c", script, "a\033[31m\xc3\xa4\xff\xe2\x80", NULL};

	must(!flock(open_file(0), LOCK_EX));
	/* The lock's descriptor and both pipe ends go with the shell. */
	for (int fd = 3; fd < 32; fd++)
		fcntl(fd, F_SETFD, 0);
	snprintf(script, sizeof(script), "echo >&%d; exec %d>&-; read -r x <&%d; exit 0", ready_fd, ready_fd, end_fd);
	execvp("sh", argv);
	_exit(7);
}

TEST(makes_the_command_harmless)
{
	struct child a = start(hostile_name);
	struct seen seen = find(0);

	ck_assert_uint_eq(seen.count, 1);
	ck_assert_msg(strstr(seen.command[0], "a?[31m\xc3\xa4???"), "%s", seen.command[0]);
	ck_assert(!strncmp(seen.command[0], "sh -c echo", 10));
	end(a);
}

/* --- one description with very many locks, which many processes have --- */

#define SLOW_LOCKS  6000
#define SLOW_COPIES 20

static void take_slow_locks(int fd)
{
	for (int i = 0; i < SLOW_LOCKS; i++) {
		struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 2 * i, .l_len = 1};

		must(!fcntl(fd, F_OFD_SETLK, &l));
	}
}

/* The copies have user `first_user` and, with each_another, the next ones. */
static void start_copies(uid_t first_user, bool each_another)
{
	for (uid_t i = 0; i < SLOW_COPIES; i++)
		if (fork() == 0) {
			must(!setuid(first_user + (each_another ? i : 0)));
			prctl(PR_SET_PDEATHSIG, SIGKILL); /* setuid() takes it away */
			pause();
		}
}

static void slow_crowd(void)
{
	int fd = open_file(1);

	must(!setuid(12345));
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	take_slow_locks(fd);
	start_copies(12345, false);
}

static void say(int fd) { must(write(fd, "s", 1) == 1); }

static void hear(int fd)
{
	char c;

	must(read(fd, &c, 1) == 1);
}

/* The users of a namespace that the user 12345 has made, one for each process. */
static void slow_namespace(void)
{
	int fd = open_file(1), to[2], from[2], map;
	char name[64];
	pid_t pid;

	must(!pipe(to) && !pipe(from));
	pid = fork();
	if (pid == 0) {
		must(!setuid(12345) && !unshare(CLONE_NEWUSER));
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		say(from[1]);
		hear(to[0]);
		take_slow_locks(fd);
		start_copies(1, true);
		say(from[1]);
		pause();
	}
	hear(from[0]);
	snprintf(name, sizeof(name), "/proc/%d/uid_map", (int)pid);
	map = open(name, O_WRONLY);
	must(dprintf(map, "0 12345 1\n1 200000 100\n") > 0);
	close(map);
	close(fd);
	say(to[1]);
	hear(from[0]);
}

struct timed {
	pid_t wanted;
	int64_t found_ns; /* of this thread's time */
};

static int see_when(void *arg, const struct holder *h)
{
	struct timed *timed = arg;

	if (h->pid == timed->wanted && !timed->found_ns)
		timed->found_ns = clock_thread_ns();
	return 0;
}

static void exclusive(void) { must(!flock(open_file(0), LOCK_EX)); }

TEST_EACH(others_do_not_wait_for_a_user_whose_locks_take_long, 2)
{
	if (geteuid() != 0)
		return;
	struct child crowd = start(_i ? slow_namespace : slow_crowd), holder = start(exclusive);
	struct timed timed = {.wanted = holder.pid};
	struct holders_search ask = {.files = files, .count = 1, .how = HOLDERS_AT_ONCE, .cb = see_when, .arg = &timed};
	int64_t begin = clock_thread_ns();

	ck_assert_int_eq(holders_search(&ask), 0);
	ck_assert_int_gt(timed.found_ns, 0);
	ck_assert(timed.found_ns - begin < (clock_thread_ns() - begin) / 2 ||
		  holder.pid < crowd.pid); /* the numbers have begun anew */
	end(holder);
	end(crowd);
}

static void make_files(void)
{
	for (int i = 0; i < 2; i++) {
		struct stat st;
		int fd = suite_make_file(path[i], "/tmp");

		ck_assert_int_eq(fstat(fd, &st), 0);
		files[i] = (struct holders_file){.dev = st.st_dev, .ino = st.st_ino};
		close(fd);
	}
}

static void remove_files(void)
{
	for (int i = 0; i < 2; i++)
		unlink(path[i]);
}
FIXTURE_ONCE(make_files, remove_files)
