/* keeper/guard/journal.c: what a keeper that died anywhere leaves behind, and what it does with files that are not its own.
 */
#include "keeper/guard/journal.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define HOST      "box-0123456789abcdef"
#define OTHER     "box-fedcba9876543210"
#define MAX_LIVE  64
#define MAX_BYTES (4 << 20)
#define BOOT_AT   16 /* in the head: after the magic and the deadline */

/* What a journal told when it was opened. */
struct told {
	struct journal *journal;
	size_t count;
	struct journal_entry entries[MAX_LIVE];
	char paths[MAX_LIVE][PATH_MAX];
	char host[STORE_HOST_BYTES], why[256];
	int64_t deadline_ns;
	int err;
};

static int dir_fd;
static char bytes[MAX_BYTES]; /* of a journal */

static void clear_folder(void)
{
	static const char *const names[] = {"journal", "journal.new", "journal.bad", "elsewhere"};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (unlinkat(dir_fd, names[i], 0) != 0)
			unlinkat(dir_fd, names[i], AT_REMOVEDIR);
}

static void on_entry(void *arg, const struct journal_entry *entry)
{
	struct told *told = arg;

	ck_assert_uint_lt(told->count, MAX_LIVE);
	told->entries[told->count] = *entry;
	snprintf(told->paths[told->count], PATH_MAX, "%s", entry->path);
	told->entries[told->count].path = told->paths[told->count];
	told->count++;
}

static struct told all, *const told = &all;

/* Opens as the host HOST would that has just chosen its id. No assertion: see limit_files(). */
static struct journal *reopen(void)
{
	memset(told, 0, sizeof(*told));
	strcpy(told->host, HOST);
	strcpy(told->why, "unset");
	told->deadline_ns = -5;
	told->journal =
		journal_open(dir_fd, told->host, &told->deadline_ns, on_entry, told, told->why, sizeof(told->why));
	told->err = told->journal ? 0 : errno;
	return told->journal;
}

static struct journal *must_open(void)
{
	ck_assert_msg(reopen() != NULL, "%s", strerror(told->err));
	return told->journal;
}

static void close_all(void)
{
	journal_close(told->journal);
	told->journal = NULL;
}

static const struct journal_entry *of(const char *token)
{
	for (size_t i = 0; i < told->count; i++)
		if (strcmp(told->entries[i].token, token) == 0)
			return &told->entries[i];
	return NULL;
}

static struct journal_entry entry(unsigned n)
{
	struct journal_entry e = {.range = {WIRE_FLOCK, WIRE_EXCLUSIVE, 0, WIRE_EOF}, .dev = n, .ino = n + 1};

	snprintf(e.token, sizeof(e.token), "%032x", n);
	snprintf(e.name, sizeof(e.name), "jobs/lock-%.*u", (int)(n % 9), n); /* names of several lengths */
	e.path = "/srv/jobs/x.lock";
	return e;
}

static int add(struct journal *j, unsigned n)
{
	struct journal_entry e = entry(n);

	return journal_add(j, &e);
}

static int drop(struct journal *j, unsigned n)
{
	return journal_remove(j, entry(n).token);
}

static int set_fence(struct journal *j, unsigned n, uint64_t fence)
{
	return journal_set_fence(j, entry(n).token, fence, WIRE_EXCLUSIVE);
}

static size_t file_size(const char *name)
{
	struct stat st;

	ck_assert_int_eq(fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW), 0);
	return st.st_size;
}

static bool is_there(const char *name)
{
	struct stat st;

	return fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static size_t load(const char *name)
{
	int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
	ssize_t n = read(fd, bytes, MAX_BYTES);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_ge(n, 0);
	close(fd);
	return n;
}

static void store(const char *data, size_t size, mode_t mode)
{
	int fd;

	unlinkat(dir_fd, "journal", 0);
	unlinkat(dir_fd, "journal.bad", 0);
	fd = openat(dir_fd, "journal", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, data, size), (ssize_t)size);
	ck_assert_int_eq(fchmod(fd, mode), 0);
	close(fd);
}

/* --- what was written comes back --- */

START_TEST(new_one)
{
	struct stat st;

	must_open();
	ck_assert_str_eq(told->why, "");
	ck_assert_str_eq(told->host, HOST);
	ck_assert_int_eq(told->deadline_ns, -5);
	ck_assert_uint_eq(told->count, 0);
	ck_assert_int_eq(fstatat(dir_fd, "journal", &st, 0), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
	ck_assert(!is_there("journal.new"));
	close_all();
}
END_TEST

START_TEST(comes_back)
{
	struct journal *j = must_open();
	const struct journal_entry *e;
	struct journal_entry record = entry(2);

	record.range = (struct store_range){WIRE_RECORD, WIRE_SHARED, 17, WIRE_EOF - 1};
	record.dev = UINT64_MAX;
	ck_assert_int_eq(add(j, 1), 0);
	ck_assert_int_eq(journal_add(j, &record), 0);
	ck_assert_int_eq(add(j, 3), 0);
	ck_assert_int_eq(journal_set_fence(j, entry(1).token, UINT64_MAX, WIRE_EXCLUSIVE), 0);
	ck_assert_int_eq(journal_set_fence(j, entry(1).token, 77, WIRE_SHARED), 0); /* shrunk */
	ck_assert_int_eq(drop(j, 3), 0);
	ck_assert_int_eq(journal_set_deadline(j, 123456789), 0);
	ck_assert_int_eq(journal_set_deadline(j, INT64_MAX), 0);
	close_all();

	must_open();
	ck_assert_str_eq(told->why, "");
	ck_assert_int_eq(told->deadline_ns, INT64_MAX);
	ck_assert_uint_eq(told->count, 2);
	e = of(entry(1).token);
	ck_assert_ptr_nonnull(e);
	ck_assert_uint_eq(e->fence, 77);
	ck_assert_int_eq(e->range.mode, WIRE_SHARED);
	ck_assert_int_eq(e->range.space, WIRE_FLOCK);
	ck_assert_int_eq(e->range.to, WIRE_EOF);
	ck_assert_uint_eq(e->ino, 2);
	ck_assert_str_eq(e->name, entry(1).name);
	ck_assert_str_eq(e->path, "/srv/jobs/x.lock");
	e = of(record.token);
	ck_assert_ptr_nonnull(e);
	ck_assert_uint_eq(e->fence, 0);
	ck_assert_mem_eq(&e->range, &record.range, sizeof(e->range));
	ck_assert_uint_eq(e->dev, UINT64_MAX);
	close_all();
}
END_TEST

/* The host id is that of the keeper that wrote it first, however often it is taken up. */
START_TEST(host_stays)
{
	static struct told other = {.host = OTHER};

	add(must_open(), 1);
	close_all();
	other.journal =
		journal_open(dir_fd, other.host, &other.deadline_ns, on_entry, &other, other.why, sizeof(other.why));
	ck_assert_ptr_nonnull(other.journal);
	ck_assert_str_eq(other.host, HOST);
	ck_assert_uint_eq(other.count, 1);
	journal_close(other.journal);
	other.count = 0;
	strcpy(other.host, OTHER);
	other.journal =
		journal_open(dir_fd, other.host, &other.deadline_ns, on_entry, &other, other.why, sizeof(other.why));
	ck_assert_str_eq(other.host, HOST);
	ck_assert_uint_eq(other.count, 1);
	journal_close(other.journal);
}
END_TEST

START_TEST(incarnation)
{
	char longest[STORE_INC_BYTES];

	memset(longest, 'i', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	ck_assert_str_eq(journal_incarnation(must_open()), "");
	ck_assert_int_eq(journal_set_incarnation(told->journal, longest), 0);
	ck_assert_str_eq(journal_incarnation(told->journal), longest);
	close_all();
	ck_assert_str_eq(journal_incarnation(must_open()), longest);
	ck_assert_int_eq(add(told->journal, 1), 0);
	ck_assert_int_eq(journal_set_incarnation(told->journal, "run-1"), 0); /* shorter: nothing of the other stays */
	ck_assert_int_eq(journal_set_deadline(told->journal, 5), 0);
	close_all();
	ck_assert_str_eq(journal_incarnation(must_open()), "run-1");
	ck_assert_str_eq(told->host, HOST);
	ck_assert_int_eq(told->deadline_ns, 5);
	ck_assert_uint_eq(told->count, 1);
	close_all();
}
END_TEST

START_TEST(longest_strings)
{
	struct journal *j = must_open();
	struct journal_entry e = entry(1);
	char path[PATH_MAX + 2];

	memset(e.name, 'n', sizeof(e.name) - 1);
	memset(path, 'p', sizeof(path));
	path[PATH_MAX - 1] = '\0';
	e.path = path;
	ck_assert_int_eq(journal_add(j, &e), 0);
	close_all();
	must_open();
	ck_assert_str_eq(told->why, "");
	ck_assert_uint_eq(told->count, 1);
	ck_assert_str_eq(told->entries[0].name, e.name);
	ck_assert_str_eq(told->entries[0].path, path);
	close_all();
}
END_TEST

/* What could not be read back is not written either: it would look damaged and take the rest with it. */
START_TEST(unusable_entries)
{
	struct journal *j = must_open();
	static char path[70000];
	struct journal_entry e = entry(2);

	ck_assert_int_eq(add(j, 1), 0);
	memset(path, 'p', sizeof(path) - 1);
	e.path = path;
	ck_assert_int_eq(journal_add(j, &e), -EINVAL);
	e.path = "";
	ck_assert_int_eq(journal_add(j, &e), -EINVAL);
	e = entry(2);
	e.name[0] = '\0';
	ck_assert_int_eq(journal_add(j, &e), -EINVAL);
	ck_assert_int_eq(add(j, 3), 0);
	close_all();
	must_open();
	ck_assert_str_eq(told->why, "");
	ck_assert_uint_eq(told->count, 2);
	close_all();
}
END_TEST

START_TEST(unknown_tokens)
{
	struct journal *j = must_open();

	ck_assert_int_eq(drop(j, 1), 0);
	ck_assert_int_eq(add(j, 2), 0);
	ck_assert_int_eq(drop(j, 1), 0);
	ck_assert_int_eq(set_fence(j, 1, 4), 0);
	close_all();
	must_open();
	ck_assert_uint_eq(told->count, 1);
	ck_assert_uint_eq(of(entry(2).token)->fence, 0);
	close_all();
}
END_TEST

/* --- a keeper that dies --- */

struct after {
	size_t size; /* of the file, after this many steps */
	bool live[8];
	uint64_t fence[8];
};

/* Some history, never empty in between (an empty one is cut short); `after` gets what each step left. Returns the
 * steps. */
static size_t history(struct journal *j, struct after *after)
{
	/* add +n, fence n*10, remove -n */
	static const int steps[] = {1, 2, 10, 3, -1, 4, 20, 30, 5, -3, 6, 7, 60, -4, -5, -7, 50};
	size_t n = 0;

	memset(after, 0, sizeof(*after));
	after->size = file_size("journal");
	for (; n < sizeof(steps) / sizeof(*steps); n++) {
		int s = steps[n];

		after[n + 1] = after[n];
		if (s < 0) {
			ck_assert_int_eq(drop(j, -s), 0);
			after[n + 1].live[-s] = false;
		} else if (s >= 10) {
			ck_assert_int_eq(set_fence(j, s / 10, s), 0);
			after[n + 1].fence[s / 10] = s;
		} else {
			ck_assert_int_eq(add(j, s), 0);
			after[n + 1].live[s] = true;
			after[n + 1].fence[s] = 0;
		}
		after[n + 1].size = file_size("journal");
		ck_assert_uint_gt(after[n + 1].size, after[n].size);
	}
	return n;
}

static void check_is(const struct after *after)
{
	size_t live = 0;

	for (unsigned n = 1; n < 8; n++) {
		const struct journal_entry *e = of(entry(n).token);

		live += after->live[n];
		ck_assert_int_eq(e != NULL, after->live[n]);
		if (!e)
			continue;
		ck_assert_uint_eq(e->fence, after->fence[n]);
		ck_assert_str_eq(e->name, entry(n).name);
		ck_assert_str_eq(e->path, entry(n).path);
	}
	ck_assert_uint_eq(told->count, live);
}

/* The file ends anywhere: exactly what was complete counts, and the next keeper writes on behind it. */
START_TEST(torn_at_every_byte)
{
	struct after after[32];
	struct journal *j = must_open();
	size_t steps = history(j, after), done = 0, size;
	struct after more;

	close_all();
	size = load("journal");
	ck_assert_uint_eq(size, after[steps].size);
	for (size_t len = after[0].size; len <= size; len++) {
		if (done < steps && len == after[done + 1].size)
			done++;
		store(bytes, len, 0600);
		j = must_open();
		ck_assert_str_eq(told->why, "");
		check_is(&after[done]);
		more = after[done];
		more.live[7] = true;
		more.fence[7] = 0;
		if (of(entry(7).token))
			more.fence[7] = after[done].fence[7];
		else
			ck_assert_int_eq(add(j, 7), 0);
		close_all();
		must_open();
		ck_assert_str_eq(told->why, "");
		check_is(&more);
		close_all();
	}
	ck_assert_uint_eq(done, steps);
}
END_TEST

/* No byte of a record may change without being noticed, not even in the middle of the file. */
START_TEST(damaged_at_every_byte)
{
	struct after after[32];
	size_t steps = history(must_open(), after), size;
	static char was[1 << 16];

	close_all();
	size = load("journal");
	ck_assert_uint_le(size, sizeof(was));
	memcpy(was, bytes, size);
	for (size_t at = after[0].size; at < size; at++) {
		was[at] ^= 0x81;
		store(was, size, 0600);
		must_open();
		ck_assert_msg(*told->why, "byte %zu", at);
		ck_assert_uint_eq(told->count, 0);
		ck_assert_str_eq(told->host, HOST);
		close_all();
		ck_assert_uint_eq(load("journal.bad"), size);
		ck_assert_mem_eq(bytes, was, size);
		was[at] ^= 0x81;
	}
	store(was, size, 0600);
	must_open();
	check_is(&after[steps]);
	close_all();
}
END_TEST

/* Killed for real, with rewriting: what was answered is there, and at most one step more. */
START_TEST(killed)
{
	enum { WINDOW = 20 };
	volatile unsigned *steps = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne((void *)steps, MAP_FAILED);
	for (unsigned round = 0; round < 30; round++) {
		unsigned until = 1 + round * round * 37 % 9000, done;
		pid_t pid;

		unlinkat(dir_fd, "journal", 0);
		*steps = 0;
		pid = fork();
		ck_assert_int_ge(pid, 0);
		if (!pid) {
			struct journal *j = reopen();

			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (!j)
				_exit(1);
			for (unsigned n = 0;; n++) { /* step 2n adds n, step 2n+1 removes n - WINDOW */
				if (add(j, n) != 0)
					_exit(1);
				(*steps)++;
				if (n >= WINDOW && drop(j, n - WINDOW) != 0)
					_exit(1);
				(*steps)++;
			}
		}
		while (*steps < until && waitpid(pid, NULL, WNOHANG) == 0)
			sched_yield();
		kill(pid, SIGKILL);
		ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
		done = *steps;
		ck_assert_uint_ge(done, until);
		must_open();
		ck_assert_str_eq(told->why, "");
		for (unsigned n = done / 2 > WINDOW + 2 ? done / 2 - WINDOW - 2 : 0; n < done / 2 + 2; n++) {
			unsigned added = 2 * n + 1, removed = 2 * (n + WINDOW) + 2;
			bool there = of(entry(n).token) != NULL;

			if (done >= added && done + 1 < removed)
				ck_assert_msg(there, "entry %u is missing after %u steps", n, done);
			if (done >= removed || done + 1 < added)
				ck_assert_msg(!there, "entry %u is back after %u steps", n, done);
		}
		ck_assert_uint_le(told->count, WINDOW + 1);
		close_all();
	}
	munmap((void *)steps, 4096);
}
END_TEST

/* A keeper that died while it wrote the file anew left the old one, and half of a new one. */
START_TEST(half_of_a_new_one)
{
	struct journal *j = must_open();
	int fd = openat(dir_fd, "journal.new", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

	ck_assert_int_eq(add(j, 1), 0);
	ck_assert_int_eq(write(fd, "half", 4), 4);
	close(fd);
	close_all();
	j = must_open();
	ck_assert_str_eq(told->why, "");
	ck_assert_uint_eq(told->count, 1);
	for (unsigned n = 2; is_there("journal.new") && n < 20000; n++) {
		ck_assert_int_eq(add(j, n), 0);
		ck_assert_int_eq(drop(j, n), 0);
	}
	ck_assert(!is_there("journal.new"));
	close_all();
	must_open(); /* its mode is ours again */
	ck_assert_str_eq(told->why, "");
	ck_assert_uint_eq(told->count, 1);
	close_all();
}
END_TEST

/* --- long histories --- */

START_TEST(stays_small)
{
	struct journal *j = must_open();
	size_t head = file_size("journal"), largest = 0;

	ck_assert_int_eq(add(j, 0), 0);
	ck_assert_int_eq(set_fence(j, 0, 9), 0);
	ck_assert_int_eq(journal_set_deadline(j, 42), 0);
	for (unsigned n = 1; n < 20000; n++) {
		ck_assert_int_eq(add(j, n), 0);
		ck_assert_int_eq(set_fence(j, n, n), 0);
		ck_assert_int_eq(drop(j, n), 0);
		if (file_size("journal") > largest)
			largest = file_size("journal");
	}
	ck_assert_uint_lt(largest, (1 << 20) + 1024);
	close_all();
	j = must_open();
	ck_assert_str_eq(told->why, "");
	ck_assert_uint_eq(told->count, 1);
	ck_assert_uint_eq(told->entries[0].fence, 9);
	ck_assert_int_eq(told->deadline_ns, 42);
	/* With the last entry goes the history. */
	ck_assert_int_eq(drop(j, 0), 0);
	ck_assert_uint_eq(file_size("journal"), head);
	ck_assert_int_eq(add(j, 5), 0);
	close_all();
	must_open();
	ck_assert_uint_eq(told->count, 1);
	ck_assert_ptr_nonnull(of(entry(5).token));
	close_all();
}
END_TEST

/* --- no room --- */

/* From now on no file may become longer; what crosses the limit is written in part. Until it is lifted (RLIM_INFINITY)
 * there must be no assertion: Check notes each in a file. */
static void limit_files(rlim_t size)
{
	struct rlimit limit;

	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &limit);
	limit.rlim_cur = size == RLIM_INFINITY ? limit.rlim_max : size;
	setrlimit(RLIMIT_FSIZE, &limit);
}

START_TEST(no_room)
{
	struct journal *j = must_open();
	int first, again, deadline;
	size_t size;

	ck_assert_int_eq(add(j, 1), 0);
	ck_assert_int_eq(add(j, 2), 0);
	size = file_size("journal");
	for (size_t room = 0; room < 120; room += 7) {
		limit_files(size + room);
		first = add(j, 3);
		again = add(j, 3);
		deadline = journal_set_deadline(j, 99); /* needs none */
		limit_files(RLIM_INFINITY);
		ck_assert_int_lt(first, 0);
		ck_assert_int_lt(again, 0);
		ck_assert_int_eq(deadline, 0);
		ck_assert_uint_eq(file_size("journal"), size); /* nothing of it stays */
	}
	ck_assert_int_eq(drop(j, 1), 0); /* a shorter record where the longer one failed */
	ck_assert_int_eq(add(j, 4), 0);
	close_all();
	must_open();
	ck_assert_str_eq(told->why, "");
	ck_assert_uint_eq(told->count, 2);
	ck_assert_ptr_nonnull(of(entry(2).token));
	ck_assert_ptr_nonnull(of(entry(4).token));
	ck_assert_int_eq(told->deadline_ns, 99);
	close_all();
}
END_TEST

/* Giving a lease back must not need room: others wait for it. */
START_TEST(no_room_to_remove)
{
	struct journal *j = must_open();
	int first, last;
	size_t size;

	ck_assert_int_eq(add(j, 1), 0);
	ck_assert_int_eq(add(j, 2), 0);
	ck_assert_int_eq(set_fence(j, 1, 10), 0);
	close_all();
	j = must_open(); /* written anew: other places, other sums */
	ck_assert_int_eq(set_fence(j, 1, 11), 0);
	size = file_size("journal");
	limit_files(size);
	first = drop(j, 1);
	limit_files(RLIM_INFINITY);
	ck_assert_int_eq(first, 0);
	ck_assert_uint_eq(file_size("journal"), size);
	close_all();
	j = must_open();
	ck_assert_str_eq(told->why, "");
	ck_assert_uint_eq(told->count, 1);
	ck_assert_ptr_nonnull(of(entry(2).token));
	limit_files(file_size("journal"));
	last = drop(j, 2);
	limit_files(RLIM_INFINITY);
	ck_assert_int_eq(last, 0);
	ck_assert_int_eq(add(j, 3), 0);
	close_all();
	must_open();
	ck_assert_uint_eq(told->count, 1);
	ck_assert_ptr_nonnull(of(entry(3).token));
	close_all();
}
END_TEST

/* A keeper that is started again needs no room to take up what there is. */
START_TEST(no_room_to_take_up)
{
	struct journal *j = must_open();
	int fenced;

	ck_assert_int_eq(add(j, 1), 0);
	close_all();
	limit_files(0);
	j = reopen();
	fenced = j ? set_fence(j, 1, 5) : 0;
	limit_files(RLIM_INFINITY);
	ck_assert_ptr_nonnull(j);
	ck_assert_str_eq(told->why, "");
	ck_assert_uint_eq(told->count, 1);
	ck_assert_int_lt(fenced, 0);
	close_all();
	unlinkat(dir_fd, "journal", 0);
	limit_files(0);
	j = reopen(); /* but a new one does */
	limit_files(RLIM_INFINITY);
	ck_assert_ptr_null(j);
	ck_assert_int_eq(told->err, EFBIG);
	ck_assert(!is_there("journal.new"));
	ck_assert(!is_there("journal"));
}
END_TEST

/* When the new file finds no room, the long one goes on: the records themselves were written. */
START_TEST(no_room_to_write_anew)
{
	struct journal *j = must_open();
	unsigned n;

	ck_assert_int_eq(mkdirat(dir_fd, "journal.new", 0700), 0); /* as good as no room */
	ck_assert_int_eq(add(j, 0), 0);
	for (n = 1; n < 6000; n++) {
		ck_assert_int_eq(add(j, n), 0);
		ck_assert_int_eq(drop(j, n), 0);
	}
	ck_assert_uint_gt(file_size("journal"), 1 << 20);
	ck_assert_int_eq(unlinkat(dir_fd, "journal.new", AT_REMOVEDIR), 0);
	ck_assert_int_eq(add(j, n), 0);
	ck_assert_uint_lt(file_size("journal"), 1024);
	close_all();
	must_open();
	ck_assert_uint_eq(told->count, 2);
	close_all();
}
END_TEST

/* --- not ours --- */

START_TEST(other_boot)
{
	static const char boot[] = "00000000-0000-4000-8000-000000000000";
	struct journal *j = must_open();
	char now[37] = "";
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	size_t size;

	ck_assert_int_eq(read(fd, now, 36), 36);
	close(fd);
	ck_assert_int_eq(add(j, 1), 0);
	ck_assert_int_eq(journal_set_deadline(j, 42), 0);
	close_all();
	size = load("journal");
	ck_assert_str_eq(bytes + BOOT_AT, now);
	memcpy(bytes + BOOT_AT, boot, sizeof(boot));
	memcpy(bytes + BOOT_AT + 40, OTHER, sizeof(OTHER));
	store(bytes, size, 0600);
	must_open();
	ck_assert_str_eq(told->why, ""); /* nothing to worry about */
	ck_assert_uint_eq(told->count, 0);
	ck_assert_str_eq(told->host, HOST);
	ck_assert_int_eq(told->deadline_ns, -5);
	ck_assert(!is_there("journal.bad"));
	close_all();
	must_open();
	ck_assert_uint_eq(told->count, 0);
	close_all();
}
END_TEST

static size_t good_bytes(void)
{
	add(must_open(), 1);
	close_all();
	return load("journal");
}

/* Put aside and said so; a new one takes its place. */
static void check_put_aside(const char *what)
{
	must_open();
	ck_assert_msg(strstr(told->why, "journal.bad") != NULL, "%s", what);
	ck_assert_ptr_null(strchr(told->why, '\n'));
	ck_assert_uint_eq(told->count, 0);
	ck_assert_str_eq(told->host, HOST);
	ck_assert_int_eq(told->deadline_ns, -5);
	ck_assert_int_eq(add(told->journal, 2), 0);
	close_all();
	ck_assert(is_there("journal.bad"));
	must_open();
	ck_assert_str_eq(told->why, "");
	ck_assert_uint_eq(told->count, 1);
	ck_assert_ptr_nonnull(of(entry(2).token));
	close_all();
}

START_TEST(foreign_content)
{
	size_t size = good_bytes();
	static const char text[] = "# my journal\nMonday: nothing happened.\n";
	char *big = calloc(1, 100000);

	memset(big, 'x', 100000);
	store("", 0, 0600);
	check_put_aside("empty");
	store(text, sizeof(text), 0600);
	check_put_aside("text");
	store(big, 100000, 0600);
	check_put_aside("a long text");
	free(big);
	size = good_bytes();
	store(bytes, 50, 0600);
	check_put_aside("half a head");
	size = good_bytes();
	bytes[0] ^= 1;
	store(bytes, size, 0600);
	check_put_aside("another magic");
	size = good_bytes();
	bytes[15] = (char)0xff; /* or on a big-endian machine: a strange but possible one */
	bytes[8] = (char)0xff;
	store(bytes, size, 0600);
	check_put_aside("a deadline below 0");
	size = good_bytes();
	bytes[BOOT_AT + 39] = 'x';
	store(bytes, size, 0600);
	check_put_aside("a boot id without end");
	size = good_bytes();
	memset(bytes + BOOT_AT + 40, 'h', STORE_HOST_BYTES);
	store(bytes, size, 0600);
	check_put_aside("a host without end");
	size = good_bytes();
	memset(bytes + BOOT_AT + 40 + STORE_HOST_BYTES, 'i', STORE_INC_BYTES);
	store(bytes, size, 0600);
	check_put_aside("an incarnation without end");
	size = good_bytes();
	memset(bytes + BOOT_AT + 40, 0, STORE_HOST_BYTES);
	store(bytes, size, 0600);
	check_put_aside("no host");
	size = good_bytes();
	memset(bytes + size, 0, 6000);
	store(bytes, size + 6000, 0600);
	check_put_aside("zeros at the end");
}
END_TEST

START_TEST(foreign_mode)
{
	static const mode_t modes[] = {0644, 0660, 0601, 0666, 0700 | S_IROTH};
	size_t size = good_bytes();

	store(bytes, size, modes[_i]);
	check_put_aside("wrong mode");
}
END_TEST

START_TEST(foreign_owner)
{
	size_t size = good_bytes();

	store(bytes, size, 0600);
	if (fchownat(dir_fd, "journal", geteuid() + 1, -1, 0) != 0) {
		ck_assert_int_eq(errno, EPERM); /* only root can give files away, and only root could be given one */
		return;
	}
	check_put_aside("somebody else's");
}
END_TEST

START_TEST(foreign_kind)
{
	good_bytes();
	unlinkat(dir_fd, "elsewhere", 0);
	ck_assert_int_eq(renameat(dir_fd, "journal", dir_fd, "elsewhere"), 0);
	ck_assert_int_eq(symlinkat("elsewhere", dir_fd, "journal"), 0);
	check_put_aside("a link to a good one");
	unlinkat(dir_fd, "journal", 0);
	ck_assert_int_eq(symlinkat("nowhere", dir_fd, "journal"), 0);
	check_put_aside("a link to nowhere");
	ck_assert(!is_there("nowhere"));
	unlinkat(dir_fd, "journal", 0);
	ck_assert_int_eq(mkfifoat(dir_fd, "journal", 0600), 0);
	check_put_aside("a pipe");
	unlinkat(dir_fd, "journal", 0);
	unlinkat(dir_fd, "journal.bad", 0);
	ck_assert_int_eq(mkdirat(dir_fd, "journal", 0700), 0);
	check_put_aside("a directory");
}
END_TEST

/* It cannot be put aside: better no keeper than one that overwrites it. */
START_TEST(cannot_put_aside)
{
	store("text", 4, 0600);
	ck_assert_int_eq(mkdirat(dir_fd, "journal.bad", 0700), 0);
	ck_assert_ptr_null(reopen());
	ck_assert_int_eq(told->err, EISDIR);
	ck_assert_uint_eq(load("journal"), 4);
}
END_TEST

/* A lack of our own says nothing about the file. */
START_TEST(no_descriptor)
{
	struct rlimit old, none;
	int spare;

	good_bytes();
	spare = dup(dir_fd);
	close(spare);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &old), 0);
	none = (struct rlimit){.rlim_cur = spare, .rlim_max = old.rlim_max};
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	ck_assert_ptr_null(reopen());
	ck_assert_int_eq(told->err, EMFILE);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &old), 0);
	must_open();
	ck_assert_str_eq(told->why, "");
	ck_assert_uint_eq(told->count, 1);
	close_all();
}
END_TEST

int main(void)
{
	char folder[] = "/dev/shm/dflock-journal-XXXXXX";
	Suite *suite = suite_create("journal");
	TCase *tc = tcase_create("file");
	SRunner *runner;
	int failed;

	if (!mkdtemp(folder) || (dir_fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0) {
		perror(folder);
		return EXIT_FAILURE;
	}
	tcase_add_checked_fixture(tc, clear_folder, NULL);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, new_one);
	tcase_add_test(tc, comes_back);
	tcase_add_test(tc, host_stays);
	tcase_add_test(tc, incarnation);
	tcase_add_test(tc, longest_strings);
	tcase_add_test(tc, unusable_entries);
	tcase_add_test(tc, unknown_tokens);
	tcase_add_test(tc, torn_at_every_byte);
	tcase_add_test(tc, damaged_at_every_byte);
	tcase_add_test(tc, killed);
	tcase_add_test(tc, half_of_a_new_one);
	tcase_add_test(tc, stays_small);
	tcase_add_test(tc, no_room);
	tcase_add_test(tc, no_room_to_remove);
	tcase_add_test(tc, no_room_to_take_up);
	tcase_add_test(tc, no_room_to_write_anew);
	tcase_add_test(tc, other_boot);
	tcase_add_test(tc, foreign_content);
	tcase_add_loop_test(tc, foreign_mode, 0, 5);
	tcase_add_test(tc, foreign_owner);
	tcase_add_test(tc, foreign_kind);
	tcase_add_test(tc, cannot_put_aside);
	tcase_add_test(tc, no_descriptor);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	clear_folder();
	if (rmdir(folder) != 0) { /* something else was left in it */
		perror(folder);
		failed++;
	}
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
