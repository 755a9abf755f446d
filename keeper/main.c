/* dflockd: command line, one keeper per runtime directory, into the background. */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sysexits.h>
#include <unistd.h>

#include "keeper/clock.h"
#include "keeper/guard/inherit.h"
#include "keeper/guard/manager.h"
#include "keeper/kernel/hook.h"
#include "keeper/log.h"
#include "keeper/main.h"
#include "procfs/procfs.h"
#include "wire/rundir.h"

#define OTHER_WAIT_MS 8000

const char *argp_program_version = "dflockd " DFLOCK_VERSION;

struct arguments {
	bool foreground;
	const char *config, *runtime_dir;
	int ready_fd, after_fd;
};

static int descriptor(struct argp_state *state, const char *option, const char *arg)
{
	char *end;
	long fd = strtol(arg, &end, 10);

	if (!*arg || *end || fd < 0 || fd > INT_MAX)
		argp_error(state, "--%s takes a descriptor's number, not \"%s\"", option, arg);
	return (int)fd;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct arguments *a = state->input;

	switch (key) {
	case 'f':
		a->foreground = true;
		return 0;
	case 'c':
		a->config = arg;
		return 0;
	case 'd':
		a->runtime_dir = arg;
		return 0;
	case 'r':
		a->ready_fd = descriptor(state, "ready-fd", arg);
		return 0;
	case 'a':
		a->after_fd = descriptor(state, "after-fd", arg);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option options[] = {
	{"foreground", 'f', NULL, 0, "Stay in the foreground, log to standard error, do not end when idle", 0},
	{"config", 'c', "FILE", 0, "Configuration (default: DFLOCK_CONFIG, ~/.config/dflock.conf, /etc/dflock.conf)",
	 0},
	{"runtime-dir", 'd', "DIR", 0,
	 "Runtime directory (default: DFLOCK_RUNTIME_DIR, /run/dflock if it has a keeper, "
	 "/run/dflock/UID if it is there, /dev/shm/dflock-UID)",
	 0},
	{"ready-fd", 'r', "N", 0, "Close descriptor N when serving; write there first why it cannot start", 0},
	{"after-fd", 'a', "N", 0, "Start when the process at the other end of descriptor N has ended", 0},
	{0}};

static const struct argp argp = {
	.options = options,
	.parser = parse,
	.doc = "Holds the leases of this host's programs that run under libdflock.so.\v"
	       "Programs start it by themselves; a service manager uses --foreground. See dflockd(8)."};

/* Says why the keeper cannot start: to the process that waits for it, and to the terminal. */
static int main_fail(const struct arguments *a, const char *line)
{
	if (a->ready_fd >= 0 && write(a->ready_fd, line, strlen(line)) < 0)
		log_event(LINE_KEEPER_CANNOT_START, "the process that waits for this keeper cannot be told: %s",
			  strerror(errno));
	fprintf(stderr, "dflockd: %s\n", line);
	return EXIT_FAILURE;
}

/* Does a keeper listen there? To connect is enough: a keeper listens when it is ready. */
static bool serves(const char *dir)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool ok;

	snprintf(address.sun_path, sizeof(address.sun_path), "%.*s/" WIRE_SOCKET_NAME, PLACE_DIR_BYTES - 1, dir);
	ok = fd >= 0 && (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 || errno == EAGAIN);
	if (fd >= 0)
		close(fd);
	return ok;
}

/*
 * There is one keeper per runtime directory: the one that has keeper.lock. The descriptor stays open, in the keeper
 * too. 1: another keeper serves. 0: we have it, by *lock_fd. -errno.
 */
static int be_the_one(int dir_fd, const char *dir, int *lock_fd)
{
	int fd = openat(dir_fd, RUNDIR_LOCK_NAME, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	int64_t deadline = clock_now_ns() + OTHER_WAIT_MS * NS_PER_MS;
	const struct timespec pause = {.tv_nsec = 10 * NS_PER_MS};

	if (fd < 0)
		return -errno;
	while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
		if (errno != EWOULDBLOCK || clock_now_ns() > deadline) {
			int ret = -errno;

			close(fd);
			return ret;
		}
		if (serves(dir)) {
			close(fd);
			return 1;
		}
		nanosleep(&pause, NULL); /* the other keeper starts, or ends */
	}
	*lock_fd = fd;
	return 0;
}

/* The first process waits until the keeper serves, so that `dflockd && job` works, and shows the reason if it does not. */
static int wait_until_ready(int fd)
{
	char line[1024];
	ssize_t n, total = 0;

	while ((n = read(fd, line + total, sizeof(line) - 1 - total)) > 0 || (n < 0 && errno == EINTR))
		total += n > 0 ? n : 0;
	line[total] = '\0';
	if (!total)
		return EXIT_SUCCESS;
	fprintf(stderr, "dflockd: %s\n", line);
	return EXIT_FAILURE;
}

/* An orphaned keeper (orphan.c) starts the next one, and ends. */
static void wait_for_end(int fd)
{
	ssize_t n;
	char c;

	do
		n = read(fd, &c, 1);
	while (n > 0 || (n < 0 && errno == EINTR));
	close(fd);
}

/* A descriptor that is closed would be that of the next file that is opened, and what is written to standard error would go there. */
static void main_open_stdio(void)
{
	int fd;

	while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= 2)
		;
	if (fd > 2)
		close(fd);
}

static void detach_stdio(void)
{
	int null = open("/dev/null", O_RDWR);

	for (int fd = 0; fd <= 2 && null >= 0; fd++)
		dup2(null, fd);
	if (null > 2)
		close(null);
}

/* Returns in the keeper's process only; the first one exits. */
static int go_to_background(struct arguments *a)
{
	int fds[2];

	if (a->ready_fd < 0) {
		if (pipe2(fds, O_CLOEXEC) != 0)
			return -errno;
		switch (fork()) {
		case -1:
			return -errno;
		case 0:
			close(fds[0]);
			a->ready_fd = fds[1];
			break;
		default:
			close(fds[1]);
			exit(wait_until_ready(fds[0]));
		}
	}
	setsid();
	if (chdir("/") != 0)
		return -errno;
	detach_stdio();
	return 0;
}

/* Without a slash at its end: the system keeper is known by the name. */
static int choose_dir(const struct arguments *a, const struct place *place, char dir[PLACE_DIR_BYTES], char *why,
		      size_t why_size)
{
	size_t len;
	int ret = 0;

	if (a->runtime_dir && (*a->runtime_dir != '/' || strlen(a->runtime_dir) >= PLACE_DIR_BYTES)) {
		snprintf(why, why_size, "--runtime-dir must be an absolute path of at most %d characters, not %s",
			 PLACE_DIR_BYTES - 1, a->runtime_dir);
		return -EINVAL;
	}
	if (a->runtime_dir)
		snprintf(dir, PLACE_DIR_BYTES, "%s", a->runtime_dir);
	else
		ret = rundir_make(place, geteuid(), dir, why, why_size);
	for (len = strlen(dir); len > 1 && dir[len - 1] == '/'; len--)
		dir[len - 1] = '\0';
	return ret;
}

static int run_keeper(void *arg, const struct supervised *supervised)
{
	struct keeper_options *keeper = arg;

	keeper->table = supervised->table;
	keeper->parent_fd = supervised->parent_fd;
	keeper->ready_fd = supervised->ready_fd;
	keeper->serves = supervised->serves;
	return keeper_run(keeper);
}

struct serving {
	char config[PATH_MAX], dir[PLACE_DIR_BYTES];
	int dir_fd;
};

/*
 * The keeper would serve without these calls, and fail when it has to end a process. With such arguments none of them does anything.
 * openat2() is none of them: refind.c does without it, and RestrictSUIDSGID of the unit refuses it with ENOSYS. NULL: the kernel has all of them.
 */
static const char *main_kernel_lacks(void)
{
	static const struct {
		long number;
		const char *name;
	} needed[] = {{SYS_pidfd_open, "pidfd_open"},
		      {SYS_pidfd_send_signal, "pidfd_send_signal"},
		      {SYS_pidfd_getfd, "pidfd_getfd"},
		      {SYS_close_range, "close_range"}};

	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
		if (syscall(needed[i].number, -1, -1, -1, -1, -1) < 0 && errno == ENOSYS)
			return needed[i].name;
	return NULL;
}

/* By which configuration the keeper goes, and where it serves. False with one line in `why`. */
static bool main_prepare(const struct arguments *a, struct serving *s, char *why, size_t why_size)
{
	const char *lacks = main_kernel_lacks();
	struct utsname system;
	struct place place;

	if (lacks) {
		snprintf(
			why, why_size,
			"Linux %.60s has no %s(), or a container's filter denies it: the keeper needs Linux 5.10 or later",
			uname(&system) == 0 ? system.release : "", lacks);
		return false;
	}
	place_init(&place);
	/* Keeps the path as it is written, and does not follow its links: programs name the file by this path, and it
	 * may be replaced. The file need not exist: there may be a copy of it (configfile.h). */
	if (a->config && place_absolute(a->config, s->config) < 0) {
		snprintf(why, why_size, "%.900s: no usable path", a->config);
		return false;
	}
	if (!a->config)
		snprintf(s->config, sizeof(s->config), "%s", place.config);
	if (!*s->config) {
		snprintf(why, why_size,
			 "no configuration: write /etc/dflock.conf, ~/.config/dflock.conf, or set DFLOCK_CONFIG");
		return false;
	}
	if (procfs_check(why, why_size) < 0 || choose_dir(a, &place, s->dir, why, why_size) < 0)
		return false;
	s->dir_fd = rundir_open(s->dir, geteuid(), true, why, why_size);
	return s->dir_fd >= 0;
}

/* Becomes the parent, until no keeper is left. Returns the exit status. */
static int main_serve(const struct arguments *a, const struct serving *s, struct manager *manager, int lock_fd)
{
	struct keeper_options keeper = {.config = s->config,
					.runtime_dir = s->dir,
					.dir_fd = s->dir_fd,
					.lock_fd = lock_fd,
					.ready_fd = -1,
					.parent_fd = -1,
					.foreground = a->foreground};
	int ret = supervise(&(struct supervise){.runtime_dir = s->dir,
						.dir_fd = s->dir_fd,
						.ready_fd = a->ready_fd,
						.manager = manager,
						.run = run_keeper,
						.arg = &keeper});

	log_flush();
	flock(lock_fd, LOCK_UN); /* a keeper that was left behind (leftover.c) still has the pipe open */
	return ret;
}

int main(int argc, char **argv)
{
	struct arguments a = {.ready_fd = -1, .after_fd = -1};
	const char *level = secure_getenv("DFLOCK_LOG");
	struct serving serving;
	int lock_fd = -1, ret;
	struct manager manager;
	char why[1024];

	main_open_stdio();
	procfs_be_oneself(argv, false);
	if (argc > 1 && strcmp(argv[1], HOOK_RUN_EVENT) == 0)
		return runevent_main(argc - 2, argv + 2);
	if (argp_parse(&argp, argc, argv, 0, NULL, &a) != 0)
		return EXIT_FAILURE;
	manager_begin(&manager, a.foreground);
	if (a.ready_fd >= 0 && !a.foreground) /* a program started it, and not a person or a service manager */
		inherit_take_back();
	umask(022);
	prctl(PR_SET_NAME, "dflockd"); /* a keeper started as /proc/self/exe (orphan.c) would show that name */
	if (a.after_fd >= 0)
		wait_for_end(a.after_fd);
	if (!main_prepare(&a, &serving, why, sizeof(why)))
		return main_fail(&a, why);
	ret = a.foreground ? 0 : go_to_background(&a);
	signal(SIGPIPE, SIG_IGN); /* a reader of the log that has gone must not end the parent */
	/* The parent waits for these two. The kernel tells no parent that ignores SIGCHLD how a process ended. */
	signal(SIGCHLD, SIG_DFL);
	signal(SIGUSR1, SIG_DFL);
	log_init(a.foreground, level);
	if (!a.foreground)
		inherit_tell();
	if (ret == 0)
		ret = be_the_one(serving.dir_fd, serving.dir, &lock_fd);
	if (ret < 0) {
		snprintf(why, sizeof(why), "%s: no keeper can start: %s", serving.dir,
			 ret == -EWOULDBLOCK ? "another process has keeper.lock, but does not answer: kill it"
					     : strerror(-ret));
		return main_fail(&a, why);
	}
	if (ret == 1 && a.foreground)
		main_fail(&a, "another keeper serves this runtime directory already: `dflock stop` ends it");
	if (ret == 1)
		return a.foreground ? EX_TEMPFAIL : EXIT_SUCCESS;
	return main_serve(&a, &serving, &manager, lock_fd);
}
