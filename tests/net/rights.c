/*
 * Findings of docs/net.md about what a supervisor may do and see, and what is left when supervisors end. `rights NAME` shows
 * one of them.
 */
#include <linux/io_uring.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "net.h"

#ifndef PIDFD_THREAD
#define PIDFD_THREAD O_EXCL /* Linux 6.9 */
#endif
#define NOBODY 65534

struct shared {
	char path[64], other[64];
	_Atomic int done, go;
	struct seccomp_notif call; /* received by a supervisor that is killed then */
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
	if (listener >= 0)
		close(listener);
	unlink(shared->path);
	unlink(shared->other);
}

/* --- filters of the job's own --- */

/* This answers flock() with the given action, and lets all else pass. */
static int install_own(unsigned action, unsigned flags)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_flock, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, action),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = {.len = 4, .filter = code};

	return result(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &prog));
}

static int own_job(void *arg)
{
	int fd = open(shared->path, O_RDWR);

	shared->done = install_own(SECCOMP_RET_USER_NOTIF, SECCOMP_FILTER_FLAG_NEW_LISTENER);
	NET_UNTIL(shared->done == 0);
	install_own(SECCOMP_RET_ALLOW, 0);
	shared->done = result(flock(fd, LOCK_EX | LOCK_NB));
	NET_UNTIL(shared->done == 0);
	install_own(SECCOMP_RET_TRACE, 0);
	shared->done = result(flock(fd, LOCK_EX | LOCK_NB));
	NET_UNTIL(shared->done == 0);
	install_own(SECCOMP_RET_ERRNO | ENOLCK, 0);
	shared->done = result(flock(fd, LOCK_EX | LOCK_NB));
	pause();
	return 0;
}

static void show_filters(void)
{
	struct seccomp_notif q;
	int listener;
	pid_t pid = net_spawn(own_job, NULL, KILLABLE, &listener);

	SHOW(await() == -EBUSY,
	     "a second listener is refused with EBUSY: neither a net in a net, nor a job with its own");
	must_receive(listener, &q);
	net_continue(listener, q.id);
	SHOW(await() == 1, "the call still comes if the job's own filter allows it");
	must_receive(listener, &q);
	net_continue(listener, q.id);
	SHOW(await() == 1, "and if that filter would ask a tracer");
	SHOW(await() == -ENOLCK, "if that filter refuses the call, it is refused");
	finish(pid, listener);
}

/* --- supervisors that end --- */

static int calling_job(void *arg)
{
	int fd = open(shared->path, O_RDWR);

	for (;;) {
		shared->done = result(flock(fd, LOCK_EX));
		NET_UNTIL(shared->done == 0);
	}
}

static void show_dead(void)
{
	struct seccomp_notif q;
	int listener;
	pid_t pid = net_spawn(calling_job, NULL, KILLABLE, &listener);

	must_receive(listener, &q);
	close(listener);
	SHOW(await() == -ENOSYS,
	     "a call that was received fails with ENOSYS when the last copy of the listener is closed");
	SHOW(await() == -ENOSYS, "and so do all calls after it");
	finish(pid, -1);
}

static void show_survivor(void)
{
	uint64_t unknown;
	int listener;
	pid_t pid = net_spawn(calling_job, NULL, KILLABLE, &listener), first = fork();

	if (first == 0) {
		/* The kernel writes the call into memory that both have. */
		shared->go = net_next(listener, &shared->call, NET_DEADLINE_MS);
		pause();
	}
	NET_UNTIL(shared->go);
	kill(first, SIGKILL);
	net_end(first);
	SHOW(net_state(pid) == 'S' && shared->done == 0,
	     "a call waits on when the supervisor that received it is killed");
	SHOW(net_answer(listener, shared->call.id, -ENOLCK, 0) == 0 && await() == -ENOLCK,
	     "the other one knows its id from shared memory, and can answer it");
	must_receive(listener, &shared->call);
	unknown = shared->call.id;
	shared->call.id = 0;
	for (uint64_t id = unknown - 8; shared->call.id == 0 && id < unknown + 8; id++)
		if (ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &id) == 0)
			shared->call.id = id;
	SHOW(shared->call.id == unknown, "an id that was not written down can be found: ids grow by one");
	finish(pid, listener);
}

/* --- threads with a table of descriptors of their own --- */

static void *apart_thread(void *arg)
{
	unshare(CLONE_FILES);
	dup2(open(shared->other, O_RDWR), 100);
	shared->done = result(flock(100, LOCK_EX | LOCK_NB));
	pause();
	return NULL;
}

static int apart_job(void *arg)
{
	pthread_t thread;

	dup2(open(shared->path, O_RDWR), 100);
	pthread_create(&thread, NULL, apart_thread, NULL);
	pause();
	return 0;
}

static bool leads_to(pid_t tid, int fd, const char *path)
{
	char link[64], found[128] = "";

	snprintf(link, sizeof(link), "/proc/%d/fd/%d", tid, fd);
	return readlink(link, found, sizeof(found) - 1) > 0 && strcmp(found, path) == 0;
}

static void show_tables(void)
{
	struct seccomp_notif q;
	int listener, pidfd, fd;
	pid_t pid = net_spawn(apart_job, NULL, KILLABLE, &listener);

	must_receive(listener, &q);
	SHOW((pid_t)q.pid != pid && leads_to(pid, 100, shared->path) && leads_to(q.pid, 100, shared->other),
	     "the call names the thread, and /proc/TID/fd shows the thread's own table");
	SHOW(syscall(SYS_pidfd_open, q.pid, 0) < 0, "pidfd_open() without PIDFD_THREAD refuses a thread");
	pidfd = syscall(SYS_pidfd_open, q.pid, PIDFD_THREAD);
	fd = pidfd < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, pidfd, 100, 0);
	SHOW(pidfd < 0 || (fd >= 0 && leads_to(getpid(), fd, shared->other)),
	     "with it (Linux 6.9) it gives the thread's");
	close(fd);
	close(pidfd);
	net_continue(listener, q.id);
	SHOW(await() == 1, "continued");
	finish(pid, listener);
}

/* --- rights --- */

/* Prints the effective user of a program that belongs to root and is setuid. */
static void run_setuid(bool privileged)
{
	char copy[] = "/tmp/dflock-net-setuid-XXXXXX", line[64] = "";
	int fd = mkstemp(copy), out[2], listener;
	FILE *f;
	pid_t pid;

	if (fd < 0 || fchmod(fd, 04755) < 0 || pipe(out) < 0)
		DIE("cannot make a setuid program");
	close(fd);
	snprintf(line, sizeof(line), "cp --no-preserve=mode /usr/bin/id %s", copy);
	if (system(line) != 0 || chmod(copy, 04755) < 0)
		DIE("%s", line);
	pid = fork();
	if (pid == 0) {
		dup2(out[1], 1);
		if (!privileged && (setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0))
			_exit(1);
		listener = net_install(KILLABLE);
		if (listener < 0)
			_exit(2);
		fcntl(listener, F_SETFD, FD_CLOEXEC);
		if (privileged && (setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0))
			_exit(3);
		execl(copy, "id", "-u", NULL);
		_exit(4);
	}
	close(out[1]);
	f = fdopen(out[0], "r");
	line[0] = 0;
	if (!f || !fgets(line, sizeof(line), f))
		line[0] = 0;
	fclose(f);
	net_end(pid);
	unlink(copy);
	if (privileged)
		SHOW(strcmp(line, "0\n") == 0, "under a net that root installed, setuid programs keep their rights");
	else
		SHOW(strcmp(line, "65534\n") == 0,
		     "an ordinary user can install a net only with no_new_privs: setuid programs lose their rights");
}

static int refused_job(void *arg)
{
	struct sock_filter code = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog prog = {.len = 1, .filter = &code};

	if (setresuid(NOBODY, NOBODY, NOBODY) < 0)
		return 1;
	shared->done = result(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog));
	return 0;
}

static void show_setuid(void)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(refused_job(NULL));
	net_end(pid);
	SHOW(await() == -EACCES, "without no_new_privs an ordinary user may install no filter");
	run_setuid(false);
	run_setuid(true);
	unlink(shared->path);
	unlink(shared->other);
}

/* --- a process that may not be looked into --- */

static int dumpable_job(void *arg)
{
	int fd;

	fd = open(shared->path, O_RDWR);
	flock(fd, LOCK_EX | LOCK_NB);
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	shared->done = result(flock(fd, LOCK_EX | LOCK_NB));
	pause();
	return 0;
}

/* An ordinary user's supervisor. */
static int look_as_nobody(void)
{
	struct seccomp_notif q;
	int listener, seen[2];
	pid_t pid;

	if (setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0)
		return 1;
	/* A change of user makes a process not dumpable. */
	prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
	pid = net_spawn(dumpable_job, NULL, KILLABLE, &listener);
	for (int i = 0; i < 2; i++) {
		must_receive(listener, &q);
		seen[i] = leads_to(q.pid, (int)q.data.args[0], shared->path);
		net_answer(listener, q.id, -ENOLCK, 0);
	}
	SHOW(await() == -ENOLCK && seen[0],
	     "an ordinary user's supervisor sees which file a process of this user locks");
	SHOW(!seen[1], "but not if that process is not dumpable: it cannot tell protected files from others");
	kill(pid, SIGKILL);
	net_end(pid);
	return net_differs;
}

static void show_dumpable(void)
{
	pid_t pid;

	if (chmod(shared->path, 0666) < 0)
		DIE("%s", shared->path);
	fflush(stdout);
	pid = fork();
	if (pid == 0)
		_exit(look_as_nobody());
	net_differs = net_end(pid) != 0;
	unlink(shared->path);
	unlink(shared->other);
}

/* --- ways past the filter --- */

static void show_uring(void)
{
	struct io_uring_params params = {0};
	struct io_uring_probe *probe = calloc(1, sizeof(*probe) + 256 * sizeof(struct io_uring_probe_op));
	int ring = syscall(SYS_io_uring_setup, 1, &params);

	/* IORING_OP_URING_CMD128 is 64, the last one of Linux 6.19; none of them locks. */
	if (ring < 0 || syscall(SYS_io_uring_register, ring, IORING_REGISTER_PROBE, probe, 256) < 0)
		SHOW(errno == EPERM || errno == ENOSYS, "io_uring is switched off here");
	else
		SHOW(probe->last_op <= 64, "io_uring has operations up to %d; up to 64 none of them locks files",
		     probe->last_op);
	close(ring);
	free(probe);
	unlink(shared->path);
	unlink(shared->other);
}

#ifdef __x86_64__
static int compat_job(void *arg)
{
	int fd = open(shared->path, O_RDWR);
	long ret;

	__asm__ volatile("int $0x80" : "=a"(ret) : "a"(NET_FLOCK_32), "b"(fd), "c"(LOCK_EX | LOCK_NB) : "memory");
	shared->done = ret < 0 ? (int)ret : 1;
	__asm__ volatile("int $0x80" : "=a"(ret) : "a"(NET_FLOCK_32), "b"(fd), "c"(LOCK_UN) : "memory");
	shared->go = 1;
	pause();
	return 0;
}

static void show_compat(void)
{
	struct seccomp_notif q;
	int listener;
	pid_t pid = net_spawn(compat_job, NULL, KILLABLE, &listener);

	must_receive(listener, &q);
	SHOW(q.data.arch == AUDIT_ARCH_I386 && q.data.nr == NET_FLOCK_32,
	     "a 64-bit program's int 0x80 is seen with its 32-bit number");
	net_continue(listener, q.id);
	SHOW(await() == 1, "and continues as such");
	NET_UNTIL(shared->go);
	finish(pid, listener);
}
#endif

static const struct finding findings[] = {
	{"filters", show_filters},
	{"dead", show_dead},
	{"survivor", show_survivor},
	{"tables", show_tables},
	{"setuid", show_setuid},
	{"dumpable", show_dumpable},
	{"uring", show_uring},
#ifdef __x86_64__
	{"compat", show_compat},
#endif
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
