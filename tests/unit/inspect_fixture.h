/*
 * Looking at descriptors as keeper/kernel/inspect.c does: in a worker, and in the caller's thread. Each test has an empty folder,
 * and leaves no descriptor open.
 */
#ifndef DFLOCK_TESTS_UNIT_INSPECT_FIXTURE_H
#define DFLOCK_TESTS_UNIT_INSPECT_FIXTURE_H

#include <dirent.h>
#include <limits.h>
#include <sys/file.h>

#include "keeper/kernel/inspect.h"
#include "tests/unit/open_count.h"
#include "tests/unit/suite.h"

struct asked {
	struct inspect_result result;
	unsigned answers;
	bool known, unused;
	int other; /* a descriptor to try for a lock in the callback, or 0 */
	bool lockable;
};

static char folder[SUITE_PATH_BYTES];
static uv_loop_t loop;
static struct ucred self;
static int before;
static struct workers *workers;
static gid_t peer_group; /* the peer's other group; 0: none */
static bool at_once;     /* in the caller's thread, else in a worker */

static inline void clear_folder(void)
{
	DIR *dir = opendir(folder);
	struct dirent *d;

	while (dir && (d = readdir(dir)))
		if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0 &&
		    unlinkat(dirfd(dir), d->d_name, 0) != 0)
			unlinkat(dirfd(dir), d->d_name, AT_REMOVEDIR);
	if (dir)
		closedir(dir);
}

static inline void make_folder(void)
{
	char made[SUITE_PATH_BYTES], *path;

	suite_make_folder(made, "/tmp");
	path = realpath(made, NULL);
	ck_assert_ptr_nonnull(path);
	ck_assert_int_lt(snprintf(folder, sizeof(folder), "%s", path), sizeof(folder));
	free(path);
}

static inline void remove_folder(void)
{
	clear_folder();
	ck_assert_int_eq(rmdir(folder), 0);
}

static inline void on_answer(void *arg, struct inspect_result *result)
{
	struct asked *a = arg;

	a->answers++;
	if (result != &a->result)
		a->result = *result;
	if (a->other)
		a->lockable = flock(a->other, LOCK_EX | LOCK_NB) == 0;
}

static inline void start(struct asked *a, int fd, const struct ucred *peer, bool test_shared)
{
	struct inspect_request request = {.fd = fd,
					  .peer = *peer,
					  .foreign = peer->uid != self.uid,
					  .known = a->known,
					  .unused = a->unused,
					  .test_shared = test_shared};

	ck_assert_int_ge(fd, 0);
	if (peer_group) {
		request.groups = malloc(sizeof(gid_t));
		request.groups[0] = peer_group;
		request.group_count = 1;
	}
	if (at_once) {
		int ret = inspect_now(&request, &a->result);

		ck_assert_int_eq(ret, a->result.refused[0] ? -1 : 0);
		on_answer(a, &a->result);
		return;
	}
	ck_assert_ptr_nonnull(inspect_start(workers, 1, &request, on_answer, a));
	ck_assert_uint_eq(a->answers, 0); /* never from inside the call */
}

static inline void setup(void)
{
	struct asked a = {0};

	clear_folder();
	self = (struct ucred){getpid(), geteuid(), getegid()};
	ck_assert_int_eq(uv_loop_init(&loop), 0);
	workers = workers_new(&loop);
	/* The first job starts libuv's threads, which have descriptors of their own; so has the table of mounts. */
	identity_mount_is_ours(0);
	start(&a, open("/dev/null", O_RDONLY | O_CLOEXEC), &self, false);
	uv_run(&loop, UV_RUN_DEFAULT);
	before = count_open();
}

static inline void in_a_worker(void) { at_once = false; }
VARIANT(in_a_worker)

static inline void in_this_thread(void) { at_once = true; }
VARIANT(in_this_thread)

static inline void teardown(void)
{
	ck_assert_int_eq(count_open(), before);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
	workers_free(workers);
}

/* Takes over fd, as the keeper does. */
static inline struct inspect_result look_as(int fd, const struct ucred *peer, bool test_shared)
{
	struct asked a = {0};

	start(&a, fd, peer, test_shared);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(a.answers, 1);
	ck_assert((a.result.fd < 0) == (a.result.nameless || a.result.refused[0] != '\0'));
	return a.result;
}

static inline struct inspect_result look(int fd) { return look_as(fd, &self, false); }

static inline const char *in_folder(const char *name)
{
	static char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

static inline int make(const char *name, int flags, mode_t mode)
{
	int fd = open(in_folder(name), flags | O_CREAT | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fchmod(fd, mode), 0);
	return fd;
}

static inline void check_good(const struct inspect_result *r, const char *path)
{
	struct stat st;

	ck_assert_str_eq(r->refused, "");
	ck_assert_str_eq(r->path, path);
	ck_assert_int_eq(fstat(r->fd, &st), 0);
	ck_assert_uint_eq(st.st_ino, r->st.st_ino);
	ck_assert_uint_eq(st.st_dev, r->st.st_dev);
	ck_assert_int_eq(fcntl(r->fd, F_GETFD), FD_CLOEXEC);
}

static inline void check_refused(const struct inspect_result *r, const char *why)
{
	ck_assert_msg(strstr(r->refused, why) != NULL, "refused: \"%s\", not \"%s\"", r->refused, why);
	ck_assert_ptr_null(strchr(r->refused, '\n'));
	ck_assert_int_eq(r->fd, -1);
}

/* Look at the descriptor, which is taken over: the file is found under this name, or refused. */
static inline struct inspect_result good_as(int fd, const struct ucred *peer, const char *name)
{
	struct inspect_result r = look_as(fd, peer, false);

	check_good(&r, in_folder(name));
	close(r.fd);
	return r;
}

static inline struct inspect_result good(int fd, const char *name) { return good_as(fd, &self, name); }

static inline void refused_as(int fd, const struct ucred *peer, const char *why)
{
	struct inspect_result r = look_as(fd, peer, false);

	check_refused(&r, why);
}

static inline void refused(int fd, const char *why) { refused_as(fd, &self, why); }
FIXTURE_ONCE(make_folder, remove_folder)
FIXTURE(setup, teardown)

#endif
