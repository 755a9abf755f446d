/* Findings of docs/net.md about the time between "continue" and the kernel lock. `window NAME` shows one of them. */
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/ptrace.h>

#include "net.h"

struct shared {
	char path[64], other[64];
	_Atomic int done, faulted, serve, replace;
};

static struct shared *shared;

static int result(long ret) { return ret < 0 ? -errno : 1; }

static int await(void)
{
	int ret;

	NET_UNTIL((ret = shared->done) != 0);
	shared->done = 0;
	return ret;
}

static void must_receive(int listener, struct seccomp_notif *q)
{
	if (!net_next(listener, q, NET_DEADLINE_MS))
		DIE("no call came");
}

static void finish(pid_t pid, int listener)
{
	kill(pid, SIGKILL);
	net_end(pid);
	close(listener);
	unlink(shared->path);
	unlink(shared->other);
}

/* By a description of its own. Returns its descriptor, or -1. */
static int take_lock(void)
{
	int fd = open(shared->path, O_RDWR | O_CLOEXEC);

	if (flock(fd, LOCK_EX | LOCK_NB) == 0)
		return fd;
	close(fd);
	return -1;
}

/* --- a call that stays between "continue" and the lock --- */

static int fault_fd;
static char *fault_page;

/* Serves the page in which the job's struct flock is, when it is told to. */
static void *serve_page(void *arg)
{
	static char content[65536] __attribute__((aligned(65536)));
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	struct uffdio_copy copy = {
		.src = (uintptr_t)content, .dst = (uintptr_t)fault_page, .len = (size_t)sysconf(_SC_PAGESIZE)};
	struct uffd_msg message;

	memcpy(content, &l, sizeof(l));
	if (read(fault_fd, &message, sizeof(message)) != sizeof(message))
		DIE("no page fault");
	shared->faulted = 1;
	NET_UNTIL(shared->serve);
	ioctl(fault_fd, UFFDIO_COPY, &copy);
	return NULL;
}

static int fault_job(void *arg)
{
	struct uffdio_api api = {.api = UFFD_API};
	struct uffdio_register range = {.mode = UFFDIO_REGISTER_MODE_MISSING};
	int fd = open(shared->path, O_RDWR);
	pthread_t thread;

	fault_page = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	fault_fd = syscall(SYS_userfaultfd, O_CLOEXEC);
	range.range.start = (uintptr_t)fault_page;
	range.range.len = 65536;
	if (fault_fd < 0 || ioctl(fault_fd, UFFDIO_API, &api) < 0 || ioctl(fault_fd, UFFDIO_REGISTER, &range) < 0)
		DIE("userfaultfd");
	pthread_create(&thread, NULL, serve_page, NULL);
	shared->done = result(fcntl(fd, F_SETLK, fault_page));
	pause();
	return 0;
}

/* /proc/TID/syscall without the address: the call and its first arguments. */
static void say_syscall(pid_t tid, char *text, size_t size)
{
	char path[64];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/syscall", tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = read(fd, text, size - 1);
	text[n > 0 ? n : 0] = 0;
	close(fd);
}

static void show_window(void)
{
	struct seccomp_notif q;
	char before[256], within[256];
	int listener, status, looks;
	pid_t pid = net_spawn(fault_job, NULL, KILLABLE, &listener);

	must_receive(listener, &q);
	NET_UNTIL(net_sleeps_in(pid) == SYS_fcntl);
	say_syscall(pid, before, sizeof(before));
	net_continue(listener, q.id);
	NET_UNTIL(shared->faulted);
	NET_UNTIL(net_sleeps_in(pid) == SYS_fcntl);
	say_syscall(pid, within, sizeof(within));
	SHOW(!net_is_locked(shared->path, true),
	     "a continued call takes its time: the kernel lists no lock, another process gets it");
	SHOW(strcmp(before, within) == 0, "/proc/TID/syscall is the same as before \"continue\": %.30s...", within);
	kill(pid, SIGSTOP);
	if (ptrace(PTRACE_SEIZE, pid, 0, 0) < 0 || ptrace(PTRACE_INTERRUPT, pid, 0, 0) < 0)
		DIE("ptrace");
	for (looks = 0; looks < 50 && waitpid(pid, &status, WNOHANG | WUNTRACED) == 0; looks++)
		NET_PAUSE();
	SHOW(looks == 50, "neither SIGSTOP nor an interrupt by ptrace keeps it from going on");
	shared->serve = 1;
	/* SIGSTOP stops all threads of the job, also the one that serves the page. */
	kill(pid, SIGCONT);
	SHOW(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status) && net_is_locked(shared->path, true),
	     "it stops when it leaves the call: with the lock");
	ptrace(PTRACE_DETACH, pid, 0, 0);
	kill(pid, SIGCONT);
	SHOW(await() == 1, "and then believes in it");
	finish(pid, listener);
}

static int wait_job(void *arg)
{
	int fd = open(shared->path, O_RDWR);

	for (int i = 0; i < 3; i++)
		shared->done = result(flock(fd, LOCK_EX));
	pause();
	return 0;
}

static void show_outage(void)
{
	struct seccomp_notif q;
	int listener, status, taken;
	pid_t holder = fork(), pid;

	if (holder == 0) {
		take_lock();
		shared->faulted = 1;
		pause();
	}
	NET_UNTIL(shared->faulted);
	pid = net_spawn(wait_job, NULL, KILLABLE, &listener);
	must_receive(listener, &q);
	net_continue(listener, q.id);
	NET_UNTIL(net_waits(pid));
	if (ptrace(PTRACE_SEIZE, pid, 0, 0) < 0 || ptrace(PTRACE_INTERRUPT, pid, 0, 0) < 0 ||
	    waitpid(pid, &status, 0) != pid)
		DIE("ptrace");
	kill(holder, SIGKILL);
	net_end(holder);
	SHOW(!net_is_locked(shared->path, false),
	     "a waiting job was stopped before the holder was killed: it did not get the lock");
	taken = take_lock();
	ptrace(PTRACE_DETACH, pid, 0, 0);
	must_receive(listener, &q);
	SHOW(taken >= 0 && shared->done == 0, "another process has it, and the job, let go, asks again");
	finish(pid, listener);
}

/* --- what another thread changes meanwhile --- */

static int replaced_fd;
static struct flock replaced_lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10};

static void *replacing_thread(void *arg)
{
	NET_UNTIL(shared->replace);
	dup2(open(shared->other, O_RDWR), replaced_fd);
	replaced_lock.l_start = 100;
	shared->replace = 0;
	NET_UNTIL(shared->replace);
	replaced_lock.l_start = 200;
	shared->replace = 0;
	return NULL;
}

static int replacing_job(void *arg)
{
	pthread_t thread;

	replaced_fd = open(shared->path, O_RDWR);
	pthread_create(&thread, NULL, replacing_thread, NULL);
	shared->done = result(flock(replaced_fd, LOCK_EX | LOCK_NB));
	shared->done = result(fcntl(replaced_fd, F_SETLK, &replaced_lock));
	pause();
	return 0;
}

static bool is_locked_at(const char *path, off_t start)
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = start, .l_len = 1};
	int fd = open(path, O_RDWR | O_CLOEXEC);

	fcntl(fd, F_OFD_GETLK, &l);
	close(fd);
	return l.l_type != F_UNLCK;
}

static void show_replaced(void)
{
	struct seccomp_notif q;
	char path[64], link[128] = "";
	int listener;
	pid_t pid = net_spawn(replacing_job, NULL, KILLABLE, &listener);

	must_receive(listener, &q);
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", q.pid, (int)q.data.args[0]);
	if (readlink(path, link, sizeof(link) - 1) < 0)
		DIE("%s", path);
	shared->replace = 1;
	NET_UNTIL(!shared->replace);
	net_continue(listener, q.id);
	SHOW(await() == 1 && strcmp(link, shared->path) == 0 && net_is_locked(shared->other, false),
	     "another thread replaces the descriptor by dup2() before \"continue\": the other file is locked");
	SHOW(!net_is_locked(shared->path, false), "and the one that the supervisor saw is not");
	must_receive(listener, &q);
	shared->replace = 1;
	NET_UNTIL(!shared->replace);
	net_continue(listener, q.id);
	SHOW(await() == 1 && is_locked_at(shared->other, 205) && !is_locked_at(shared->other, 105),
	     "and the same for the range in struct flock");
	finish(pid, listener);
}

/* --- how to see that a thread has left the call --- */

static int left_job(void *arg)
{
	int fd = open(shared->path, O_RDWR);

	shared->done = result(flock(fd, LOCK_EX | LOCK_NB));
	while (!shared->serve)
		;
	usleep(1);
	pause();
	return 0;
}

static void show_left(void)
{
	struct seccomp_notif q;
	char text[256];
	int listener, taken = take_lock(), status;
	pid_t pid = net_spawn(left_job, NULL, KILLABLE, &listener);

	must_receive(listener, &q);
	net_continue(listener, q.id);
	SHOW(await() == -EWOULDBLOCK, "a call that fails leaves nothing in the kernel's lists");
	say_syscall(pid, text, sizeof(text));
	SHOW(strncmp(text, "running", 7) == 0,
	     "a thread that computes is \"running\", as one is that was preempted within the call");
	if (ptrace(PTRACE_SEIZE, pid, 0, 0) < 0 || ptrace(PTRACE_INTERRUPT, pid, 0, 0) < 0 ||
	    waitpid(pid, &status, 0) != pid)
		DIE("ptrace");
	SHOW(WIFSTOPPED(status) && net_state(pid) == 't', "one that stops for ptrace has left the call");
	ptrace(PTRACE_DETACH, pid, 0, 0);
	shared->serve = 1;
	NET_UNTIL(net_sleeps_in(pid) >= 0 && net_sleeps_in(pid) != SYS_flock);
	SHOW(true, "one that sleeps in another system call has left it, too, and /proc/TID/syscall says so");
	close(taken);
	finish(pid, listener);
}

static const struct finding findings[] = {
	{"window", show_window},
	{"outage", show_outage},
	{"replaced", show_replaced},
	{"left", show_left},
	{NULL, NULL},
};

int main(int argc, char **argv)
{
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		DIE("cannot map memory");
	close(net_file(shared->path));
	close(net_file(shared->other));
	return net_main(argc, argv, findings);
}
