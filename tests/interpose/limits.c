/*
 * limits WHAT FILE [FOLDER]: takes locks where descriptors, the file system or the file's name have been taken away. WHAT is a row of the
 * table below; those of the second part make all kinds of calls.
 */
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "tests/interpose/calls.h"

static int fd; /* of FILE */
static const char *file, *folder;

static int must(int rc, const char *what)
{
	if (rc < 0) {
		perror(what);
		exit(99);
	}
	return rc;
}

static void use_up(void)
{
	struct rlimit limit = {40, 40};

	setrlimit(RLIMIT_NOFILE, &limit);
	while (dup(1) >= 0)
		;
}

static void used_up(void)
{
	use_up();
	CALL("used up", flock(fd, LOCK_EX));
	close(20);
	close(21);
	CALL("two left", flock(fd, LOCK_EX | LOCK_NB));
	CALL("unlock", flock(fd, LOCK_UN));
}

static void used_up_later(void)
{
	CALL("with the page", flock(must_open("/etc/passwd", O_RDONLY), LOCK_SH | LOCK_NB));
	use_up();
	CALL("used up", flock(fd, LOCK_EX));
}

static void closed(void)
{
	fd = dup2(fd, 9);
	close_range(2, 8, 0);
	close_range(10, ~0u, 0);
	close(0);
	CALL("all others closed", flock(fd, LOCK_EX));
	CALL("unlock", flock(fd, LOCK_UN));
}

/* Any line on descriptor 2 would now be in the data. */
static void stderr_is_data(void)
{
	dup2(must_open(folder, O_RDWR | O_CREAT), 2);
	CALL("stderr is data", flock(fd, LOCK_EX));
}

/* The same pipe that was there from the start; its reader has gone by now: SIGPIPE would end us. */
static void stderr_is_broken(void)
{
	int pair[2];

	if (read(0, pair, 1) == 0)
		CALL("stderr is broken", flock(fd, LOCK_EX));
}

static void *lock(void *arg)
{
	struct flock all = {.l_type = F_WRLCK};

	CALL("small stack", fcntl(fd, F_SETLK, &all));
	return arg;
}

static void small_stack(void)
{
	pthread_attr_t attributes;
	pthread_t thread;

	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 16 << 10); /* glibc's least on x86-64 */
	pthread_create(&thread, &attributes, lock, NULL);
	pthread_join(thread, NULL);
}

static void subreaper(void)
{
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	CALL("subreaper", flock(fd, LOCK_EX));
}

static void seccomp(void)
{
	struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog filter = {1, &allow};

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
	CALL("seccomp", flock(fd, LOCK_EX));
}

/* --- FILE is FOLDER/file --- */

/* Under a path longer than PATH_MAX. */
static void deep(void)
{
	static char name[256];
	int up, dir = must_open(folder, O_RDONLY | O_DIRECTORY);

	memset(name, 'n', 255);
	for (int depth = 0; depth < 17; depth++) {
		mkdirat(dir, name, 0700);
		up = dir;
		dir = openat(up, name, O_RDONLY | O_DIRECTORY);
		close(up);
	}
	fd = openat(dir, "file", O_RDWR | O_CREAT, 0600);
	close(dir);
}

/* Made without a name; opened again through /proc; or given the name FOLDER/named. */
static void tmpfile_made(void) { fd = must(open(folder, O_TMPFILE | O_RDWR, 0600), "O_TMPFILE"); }

static void tmpfile_reopened(void)
{
	char link[64];

	tmpfile_made();
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	fd = must(open(link, O_RDWR), link);
}

static void tmpfile_linked(void)
{
	char path[PATH_MAX], link[64];

	tmpfile_made();
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	snprintf(path, sizeof(path), "%s/named", folder);
	must(linkat(AT_FDCWD, link, AT_FDCWD, path, AT_SYMLINK_FOLLOW), path);
}

static void deleted(void) { unlink(file); }

/* Opened before chroot(FOLDER); the first lock was before it, too; opened after it; and before one to a folder beside it. */
static void before(void) { must(chroot(folder), "chroot"); }

static void late(void)
{
	CALL("first", flock(fd, LOCK_EX | LOCK_NB));
	CALL("unlock", flock(fd, LOCK_UN));
	before();
}

static void in_chroot(void)
{
	close(fd);
	before();
	fd = must_open("/file", O_RDWR | O_CREAT);
}

static void outside(void)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/../jail", folder);
	must(chroot(path), "chroot");
}

static void make_all_calls(void)
{
	struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10};

	CALL("flock", flock(fd, LOCK_EX | LOCK_NB));
	CALL("waiting", flock(fd, LOCK_EX));
	CALL("unlock", flock(fd, LOCK_UN));
	CALL("record", fcntl(fd, F_SETLK, &range));
	CALL("getlk", fcntl(fd, F_GETLK, &range));
}

static const struct {
	const char *name;
	void (*run)(void), (*then)(void);
} kinds[] = {
	{"used-up", used_up, NULL},
	{"used-up-later", used_up_later, NULL},
	{"closed", closed, print_descriptors},
	{"stderr-is-data", stderr_is_data, NULL},
	{"stderr-is-broken", stderr_is_broken, NULL},
	{"small-stack", small_stack, print_descriptors},
	{"subreaper", subreaper, NULL},
	{"seccomp", seccomp, NULL},
	{"deep", deep, make_all_calls},
	{"tmpfile", tmpfile_made, make_all_calls},
	{"reopened", tmpfile_reopened, make_all_calls},
	{"linked", tmpfile_linked, make_all_calls},
	{"deleted", deleted, make_all_calls},
	{"before", before, make_all_calls},
	{"late", late, make_all_calls},
	{"chroot", in_chroot, make_all_calls},
	{"outside", outside, make_all_calls},
};

int main(int argc, char **argv)
{
	if (argc < 3)
		return 99;
	file = argv[2];
	folder = argv[3];
	fd = must_open(file, O_RDWR | O_CREAT);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (strcmp(argv[1], kinds[i].name) == 0) {
			kinds[i].run();
			if (kinds[i].then)
				kinds[i].then();
			return 0;
		}
	}
	return 99;
}
