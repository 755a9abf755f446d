/*
 * See supervisor.h. Threads that have nothing to do wait for calls; the one that the kernel wakes receives a call and decides it, and if
 * none waits any more, it starts another one before. So no call waits for what another one waits for, and the reading of memory or files
 * that hang delays nobody. Threads that have nothing to do and are many end.
 *
 * They wait in an epoll, edge-triggered: the kernel then wakes one thread for a call, and no thread has to wake another one. Calls that come
 * at once may be one event; so a thread that has received a call looks whether there is another one, and sets the event anew if so.
 *
 * NOTIF_RECV waits if another thread was faster. On kernels before 6.11, it then does not return when the last process has gone; so the main
 * thread waits for that, too (supervisor_watch()).
 *
 * A thread has its call's place from before NOTIF_RECV until after the answer, for the supervisor that comes next (supervisor.h).
 */
#include "net/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net/decide.h"
#include "net/shared.h"
#include "shim/settings.h"
#include "wire/sys.h"

/* Enough for a few paths and messages; what is not touched costs no memory. */
#define STACK_BYTES   (256 << 10)
#define IDLE_MAX      4
#define PAUSE_NS      10000000
#define LOOK_AGAIN_NS 100000000

/* A signal that comes before a call was received ends the call, whatever it is (docs/net.md, finding 6); so root's supervisors run before
 * their job. */
#define NICE -10

/* The kernel's own limit of RLIMIT_NOFILE (fs.nr_open), unless that was changed. */
#define FILES_MAX (1 << 20)

static int events = -1;   /* the epoll */
static int shortage = -1; /* an eventfd for the main thread: no thread waits for a call, and none could be started */
static int idle;          /* threads that wait for a call */

/* Of poll(): what is the matter with the listener? */
static short supervisor_state(void)
{
	struct pollfd listener = {.fd = SUPERVISOR_LISTENER, .events = POLLIN};

	return poll(&listener, 1, 0) > 0 ? listener.revents : 0;
}

/* Is no process left under the filter? */
static bool supervisor_is_over(void)
{
	return supervisor_state() & (POLLHUP | POLLERR | POLLNVAL);
}

static void supervisor_pause(long ns)
{
	nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

static void supervisor_answer(uint64_t id, int answer)
{
	struct seccomp_notif_resp response = {.id = id};

	if (answer == DECIDE_CONTINUE)
		response.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
	else
		response.error = answer;
	/* Any other error: the thread was killed. */
	while (ioctl(SUPERVISOR_LISTENER, SECCOMP_IOCTL_NOTIF_SEND, &response) < 0 && errno == EINTR)
		;
}

static void supervisor_handle(struct caught *caught)
{
	int64_t until_ns;
	int answer;

	/* A thread that this process cannot see, of no child pid namespace of its own. */
	if (caught->notif.pid == 0)
		answer = -ENOLCK;
	else
		do
			answer = decide(caught, SUPERVISOR_LISTENER, &until_ns);
		while (answer == DECIDE_CONTINUE && until_ns && ask_clock_ns() >= until_ns);
	if (answer != DECIDE_GONE)
		supervisor_answer(caught->notif.id, answer);
	shared_free(caught);
}

/* Calls that come at once may be one event. */
static void supervisor_look_for_more(void)
{
	struct epoll_event in = {.events = EPOLLIN | EPOLLET};

	if (supervisor_state() & POLLIN)
		epoll_ctl(events, EPOLL_CTL_MOD, SUPERVISOR_LISTENER, &in);
}

/* NULL: the caller was killed, or its call sent back by a signal; or all places are taken. */
static struct caught *supervisor_try_receive(void)
{
	struct caught *caught = shared_find();

	if (!caught) {
		supervisor_pause(PAUSE_NS);
		return NULL;
	}
	if (ioctl(SUPERVISOR_LISTENER, SECCOMP_IOCTL_NOTIF_RECV, &caught->notif) == 0)
		return caught;
	shared_free(caught);
	return NULL;
}

/* The next call, in shared memory. Does not return when no process is left. */
static struct caught *supervisor_receive(void)
{
	struct caught *caught = NULL;
	struct epoll_event event;

	while (!caught) {
		const short state = supervisor_state();

		if (state & POLLIN)
			caught = supervisor_try_receive();
		else if (state)
			_exit(0);
		else
			epoll_wait(events, &event, 1, -1);
	}
	supervisor_look_for_more();
	return caught;
}

static bool supervisor_start_thread(struct caught *caught);

/* NULL: there are threads enough. */
static struct caught *supervisor_next(void)
{
	struct caught *caught;

	/* If all other threads have received a call between the two steps, this thread must wait for the next one. */
	while (__atomic_fetch_add(&idle, 1, __ATOMIC_RELAXED) >= IDLE_MAX)
		if (__atomic_sub_fetch(&idle, 1, __ATOMIC_RELAXED) > 0)
			return NULL;
	caught = supervisor_receive();
	if (__atomic_sub_fetch(&idle, 1, __ATOMIC_RELAXED) == 0 && !supervisor_start_thread(NULL))
		eventfd_write(shortage, 1);
	return caught;
}

/* left: struct caught: a call that the other supervisor has left, to be decided first; or NULL. */
static void *supervisor_work(void *left)
{
	struct caught *caught = left;

	if (caught && shared_inherit(caught))
		supervisor_handle(caught);
	while ((caught = supervisor_next()))
		supervisor_handle(caught);
	return NULL;
}

/* `caught`: as supervisor_work(). */
static bool supervisor_start_thread(struct caught *caught)
{
	pthread_attr_t attributes;
	pthread_t thread;
	int err;

	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	err = pthread_create(&thread, &attributes, supervisor_work, caught);
	pthread_attr_destroy(&attributes);
	return err == 0;
}

static void supervisor_take_over(bool busy)
{
	struct caught *caught;
	unsigned at = 0;

	while ((caught = shared_next(&at, busy)))
		while (!supervisor_start_thread(caught))
			supervisor_pause(PAUSE_NS);
}

/* Decides the calls that another supervisor has left in the shared memory, and receives from now on, in threads. The process ends
 * when no process is left under the filter. 0 or -errno; may be tried again. */
static int supervisor_start(void)
{
	struct epoll_event in = {.events = EPOLLIN | EPOLLET};

	if (shortage < 0 && (shortage = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
		return -errno;
	if (events < 0) {
		events = epoll_create1(EPOLL_CLOEXEC);
		if (events < 0 || epoll_ctl(events, EPOLL_CTL_ADD, SUPERVISOR_LISTENER, &in) < 0)
			return -errno;
	}
	supervisor_take_over(true);
	return supervisor_start_thread(NULL) ? 0 : -EAGAIN;
}

/* The job may have limited itself, and the supervisors serve all that it starts. Root may exceed a hard limit, too. */
static void supervisor_raise_limits(void)
{
	for (int which = 0; which < RLIM_NLIMITS; which++) {
		const rlim_t most = which == RLIMIT_NOFILE ? FILES_MAX : RLIM_INFINITY;
		const struct rlimit none = {.rlim_cur = most, .rlim_max = most};
		struct rlimit limit;

		if (which == RLIMIT_CORE || which == RLIMIT_STACK || getrlimit(which, &limit) < 0)
			continue;
		if (limit.rlim_max < most && setrlimit(which, &none) == 0)
			continue;
		limit.rlim_cur = limit.rlim_max;
		setrlimit(which, &limit);
	}
}

void supervisor_settle(void)
{
	static const int kept[] = {SIGCHLD, SIGCONT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
	const struct sigaction ignore = {.sa_handler = SIG_IGN}, usual = {.sa_handler = SIG_DFL};
	sigset_t none;

	for (int sig = 1; sig < _NSIG; sig++)
		sigaction(sig, &ignore, NULL);
	for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
		sigaction(kept[i], &usual, NULL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	supervisor_raise_limits();
	setpriority(PRIO_PROCESS, 0, NICE);
	prctl(PR_SET_NAME, NETMARK_NAME);
}

int supervisor_place(int fd, int number)
{
	int ret;

	if (fd == number)
		return fcntl(fd, F_SETFD, 0) < 0 ? -errno : 0;
	ret = dup2(fd, number) < 0 ? -errno : 0;
	close(fd);
	return ret;
}

/* --- first and second: the second one is a child of the first, started by exec and not by fork() alone, since the first one has
 * threads. It is /proc/self/exe, which is the same program also after an upgrade. --- */

/* Returns when the second supervisor waits, or has failed. Its pid, or -1. */
static pid_t supervisor_start_second(char *program)
{
	char word[] = SUPERVISOR_SECOND, *const argv[] = {program, word, NULL}, byte;
	posix_spawn_file_actions_t actions;
	int pipe[2], err;
	pid_t pid;
	ssize_t n;

	if (pipe2(pipe, O_CLOEXEC) < 0)
		return -1;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, pipe[1], SUPERVISOR_READY);
	err = posix_spawn(&pid, "/proc/self/exe", &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	close(pipe[1]);
	do
		n = read(pipe[0], &byte, 1);
	while (n < 0 && errno == EINTR);
	close(pipe[0]);
	if (err == 0 && n == 1)
		return pid;
	while (err == 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return -1;
}

static _Noreturn void supervisor_fail(int ready, const char *why)
{
	sys(write, ready, why, (long)strlen(why) + 1);
	_exit(0);
}

/* Threads or memory may have been short for a moment, and the calls that the threads have may wait for weeks. */
static void supervisor_mend(void)
{
	eventfd_t times;

	eventfd_read(shortage, &times);
	if (__atomic_load_n(&idle, __ATOMIC_RELAXED) || supervisor_start_thread(NULL))
		return;
	supervisor_pause(LOOK_AGAIN_NS);
	eventfd_write(shortage, 1);
}

/* Until the second one ends. The process ends when no process is left under the filter. */
static void supervisor_watch(pid_t second)
{
	const int pidfd = (int)sys(pidfd_open, second, 0L);
	struct pollfd ends[] = {
		{.fd = SUPERVISOR_LISTENER}, {.fd = pidfd, .events = POLLIN}, {.fd = shortage, .events = POLLIN}};

	/* Without a pidfd, the threads that receive calls notice the end of the processes. */
	while (pidfd >= 0 && !ends[0].revents && !ends[1].revents) {
		poll(ends, 3, -1);
		if (ends[2].revents)
			supervisor_mend();
	}
	if (ends[0].revents)
		_exit(0);
	if (pidfd >= 0)
		close(pidfd);
	while (waitpid(second, NULL, 0) < 0 && errno == EINTR)
		;
}

/* With shared->first. */
static _Noreturn void supervisor_be_first(char *program, int ready)
{
	pid_t second = -1;

	/* The job has not begun so far. Later, calls wait for an answer, and the second one perhaps for a file system. */
	if (ready >= 0 && (second = supervisor_start_second(program)) < 0)
		supervisor_fail(ready, "no process for the net");
	while (supervisor_start() < 0) {
		if (ready >= 0)
			supervisor_fail(
				ready,
				"no thread for the net: raise the limits of processes and memory (ulimit -u, ulimit -v)");
		supervisor_pause(LOOK_AGAIN_NS);
	}
	if (ready >= 0) {
		sys(write, ready, "", 1L);
		close(ready);
	}
	supervisor_pause(LOOK_AGAIN_NS);
	supervisor_take_over(false); /* what the other one has received after all */
	for (;; supervisor_pause(LOOK_AGAIN_NS), second = -1) {
		if (second < 0)
			second = supervisor_start_second(program);
		if (second >= 0)
			supervisor_watch(second);
	}
}

_Noreturn void supervisor_lead(char *program, int ready)
{
	shared_lock(&shared->first);
	supervisor_be_first(program, ready);
}

_Noreturn void supervisor_wait(char *program)
{
	supervisor_settle();
	settings_init();
	if (shared_map(SUPERVISOR_SHARED) < 0)
		_exit(1);
	sys(write, SUPERVISOR_READY, "", 1L);
	close(SUPERVISOR_READY);
	shared_lock(&shared->first);
	if (supervisor_is_over())
		_exit(0);
	supervisor_be_first(program, -1);
}
