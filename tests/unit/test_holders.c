/* keeper/kernel/holders.c: children take locks, and the search has to find exactly those. */
#include "keeper/kernel/holders.h"

#include <grp.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "tests/unit/own_mounts.h"
#include "tests/unit/suite.h"

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

/* What a search tells; it ends when `stop_after` locks were told. */
static struct seen find_until(pid_t ignore, size_t stop_after)
{
	struct seen seen = {.stop_after = stop_after};
	struct holders_search ask = {.files = files,
				     .count = 2,
				     .ignore_pid = ignore,
				     .how = HOLDERS_COMMANDS,
				     .cb = see,
				     .arg = &seen,
				     .unseen = 99999};

	ck_assert_int_eq(holders_search(&ask), stop_after ? 7 : 0);
	ck_assert_uint_ne(ask.unseen, 99999);
	return seen;
}

static struct seen find(pid_t ignore) { return find_until(ignore, 0); }

static const struct holder *of(const struct seen *seen, pid_t pid, size_t nth)
{
	for (size_t i = 0; i < seen->count; i++)
		if (seen->all[i].pid == pid && nth-- == 0)
			return &seen->all[i];
	return NULL;
}

/* A process takes its locks, and keeps them until it is killed. */
static pid_t start(void (*body)(void))
{
	pid_t pid = suite_fork();

	if (pid)
		return pid;
	body();
	suite_rest();
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
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
	pid_t a = start(flock_exclusive_with_copy), b = start(flock_shared), c = start(open_only);
	struct seen seen = find(0);
	const struct holder *ha = of(&seen, a, 0), *hb = of(&seen, b, 0);

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
	ck_assert_ptr_nonnull(strstr(seen.command[0], "test_holders")); /* test_command.c has hostile ones */
	end(a);
	end(b);
	end(c);
	ck_assert_uint_eq(find(0).count, 0);
}

/* Another search wants every file with that number, beside those that stat tells apart. */
TEST(finds_a_lock_by_number_too)
{
	pid_t a = start(flock_shared);
	struct seen seen = {.count = 0};
	struct holders_file both[] = {files[1], files[1], files[1]};
	struct holders_search ask = {.files = both, .count = 3, .cb = see, .arg = &seen};

	both[0].by_number = true;
	both[1].kernel_dev = both[0].dev, both[1].kernel_ino = both[0].ino;
	both[1].ino++; /* as a twin in another subvolume */
	both[2].kernel_dev = both[0].dev, both[2].kernel_ino = both[0].ino;
	ck_assert_int_eq(holders_search(&ask), 0);
	ck_assert_uint_eq(seen.count, 2);
	ck_assert_uint_eq(of(&seen, a, 0)->file, 0);
	ck_assert_uint_eq(of(&seen, a, 1)->file, 2);
	end(a);
}

TEST(finds_record_locks_with_their_ranges)
{
	pid_t a = start(ranges);
	struct seen seen = find(0);
	const struct holder *h;
	bool posix = false, ofd = false;

	ck_assert_uint_eq(seen.count, 2);
	for (size_t i = 0; (h = of(&seen, a, i)); i++) {
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
	pid_t a = start(flock_shared), b = start(flock_shared);
	struct seen seen = find(a);

	ck_assert_uint_eq(seen.count, 1);
	ck_assert_ptr_nonnull(of(&seen, b, 0));
	ck_assert_uint_eq(find_until(0, 1).count, 1);
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
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		suite_rest();
	}
	close(fd);
	waitpid(pid, NULL, 0);
}

/* Copies in processes that a test before has killed may still have some. */
static void take_many_ranges(int fd, int count)
{
	for (int i = 0; i < count; i++) {
		struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 2 * i, .l_len = 1};

		must(!fcntl(fd, F_OFD_SETLKW, &l));
	}
}

/* 2000 descriptors, each of which shows 200 locks. */
static void many_copies(void)
{
	struct rlimit most;
	int fd = open_file(0);

	must(!getrlimit(RLIMIT_NOFILE, &most));
	must(!setrlimit(RLIMIT_NOFILE, &(struct rlimit){most.rlim_max, most.rlim_max}));
	take_many_ranges(fd, 200);
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
	pid_t a = start(many_copies);
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
	pid_t a = start(inherited_by_grandchild);
	struct seen seen = find(0);
	struct procfs_stat stat;
	char name[64];

	/* The child may not have closed its own copy yet: until it has, both hold the lock. */
	while (of(&seen, a, 0)) {
		sched_yield();
		seen = find(0);
	}
	ck_assert_uint_eq(seen.count, 1);
	snprintf(name, sizeof(name), "/proc/%d/stat", (int)seen.all[0].pid);
	ck_assert(procfs_stat_read(AT_FDCWD, name, &stat));
	ck_assert_int_eq(stat.parent, a);
	end(a);
	kill(seen.all[0].pid, SIGKILL);
}

static void *lock_in_own_table(void *arg)
{
	must(!unshare(CLONE_FILES));
	must(!flock(open_file(0), LOCK_EX));
	suite_rest();
}

/* The kernel sets it to 0 and wakes when the first thread is gone; a sanitizer does not allow a join of that thread. */
static int first_thread = 1;

static void *lock_and_stay(void *arg)
{
	while (__atomic_load_n(&first_thread, __ATOMIC_ACQUIRE))
		syscall(SYS_futex, &first_thread, FUTEX_WAIT, 1, NULL, NULL, 0);
	must(!flock(open_file(1), LOCK_EX));
	suite_rest();
}

static void thread_with_own_table(void)
{
	pthread_t t;

	must(!pthread_create(&t, NULL, lock_in_own_table, NULL));
	pause();
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
	pid_t a = start(thread_with_own_table), b = start(first_thread_gone);
	struct seen seen = find(0);

	ck_assert_uint_eq(seen.count, 2);
	ck_assert_ptr_nonnull(of(&seen, a, 0));
	ck_assert_ptr_nonnull(of(&seen, b, 0));
	end(a);
	end(b);
}

/* --- one description with very many locks, which many processes have --- */

#define SLOW_LOCKS  6000
#define SLOW_COPIES 20

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
	take_many_ranges(fd, SLOW_LOCKS);
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
		take_many_ranges(fd, SLOW_LOCKS);
		start_copies(1, true);
		say(from[1]);
		pause();
	}
	close(from[1]); /* so that its end is heard, too */
	hear(from[0]);
	snprintf(name, sizeof(name), "/proc/%d/uid_map", (int)pid);
	map = open(name, O_WRONLY);
	must(dprintf(map, "0 12345 1\n1 200000 100\n") > 0);
	close(map);
	close(fd);
	say(to[1]);
	hear(from[0]);
}

struct order {
	pid_t wanted;
	unsigned before, after; /* so many locks of others were seen before that process, and afterwards */
	bool found;
};

static int see_order(void *arg, const struct holder *h)
{
	struct order *order = arg;

	if (h->pid == order->wanted)
		order->found = true;
	else if (order->found)
		order->after++;
	else
		order->before++;
	return 0;
}

static void exclusive(void) { must(!flock(open_file(0), LOCK_EX)); }

TEST_EACH(others_do_not_wait_for_a_user_whose_locks_take_long, 2)
{
	if (geteuid() != 0)
		return;
	pid_t crowd = start(_i ? slow_namespace : slow_crowd), holder = start(exclusive);
	struct order order = {.wanted = holder};
	struct holders_search ask = {
		.files = files, .count = 2, .how = HOLDERS_AT_ONCE, .cb = see_order, .arg = &order};

	ck_assert_int_eq(holders_search(&ask), 0);
	ck_assert(order.found);
	ck_assert(order.before < order.after || holder < crowd); /* the numbers have begun anew */
	end(holder);
	end(crowd);
}

/* --- sight --- */

static void not_dumpable(void)
{
	must(!setgid(12345) && !setuid(12345) && !prctl(PR_SET_DUMPABLE, 0));
	prctl(PR_SET_PDEATHSIG, SIGKILL);
}

static void ordinary_first_thread_gone(void)
{
	must(!setgid(12345) && !setuid(12345) && !prctl(PR_SET_DUMPABLE, 1));
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	first_thread_gone();
}

static const struct {
	const char *hidepid;
	void (*body)(void);
	enum sight sight;
} sights[] = {{"hidepid=0", not_dumpable, SIGHT_SIGNAL},
	      {"hidepid=1", not_dumpable, SIGHT_SIGNAL},
	      {"hidepid=2", not_dumpable, SIGHT_BEYOND}, /* /proc does not have it */
	      {"hidepid=0", ordinary_first_thread_gone, SIGHT_OPEN}};

/* Of a process of the same user. */
TEST_EACH(sight_of_an_own_process, ROWS(sights))
{
	if (geteuid() != 0)
		return;
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(chmod(path[i], 0666), 0);
	pid_t pid = start(sights[_i].body);

	own_mounts();
	ck_assert_int_eq(mount("proc", "/proc", "proc", 0, sights[_i].hidepid), 0);
	ck_assert_int_eq(setgroups(0, NULL), 0); /* hidepid hides nothing from group 0 */
	ck_assert_int_eq(setgid(12345), 0);
	ck_assert_int_eq(setuid(12345), 0);
	ck_assert_int_eq(sight_of(pid), sights[_i].sight);
	end(pid);
	ck_assert_int_eq(sight_of(pid), SIGHT_GONE);
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
