/*
 * What docs/net.md says was found out about the kernel, where no test of the net itself shows it. `findings NAME` shows one of them: a seccomp
 * filter hands the lock calls of a job, which is a child, to this process.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RESTARTSYS  512 /* the kernel's own; a program must never see it */
#define DEADLINE_MS 20000
#define NOBODY      65534
#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#else
#error "x86-64 and arm64 only"
#endif
#define FLOCK_32 143

/* What this process and the job both see. */
static struct shared {
	char path[64], other[64];
	_Atomic int listener; /* the job's descriptor, until this process has a copy */
	_Atomic int handled;  /* signals that the job's handler saw */
	_Atomic int done[2];  /* results of the job's calls: 0: none so far; 1: success; -errno */
	_Atomic int go, seen; /* one lets the other go on */
	_Atomic long successes, interrupted, wrong;
} * shared;

static bool differs;

#define DIE(...)                                                                                                       \
	do {                                                                                                           \
		fprintf(stderr, __VA_ARGS__);                                                                          \
		fprintf(stderr, " (line %d, %s)\n", __LINE__, strerror(errno));                                        \
		exit(99);                                                                                              \
	} while (0)

/* Waits until the condition holds; else the program ends. */
#define UNTIL(condition)                                                                                               \
	do {                                                                                                           \
		for (int ms_ = 0; !(condition); ms_++) {                                                               \
			if (ms_ > DEADLINE_MS)                                                                         \
				DIE("not within %d ms: %s", DEADLINE_MS, #condition);                                  \
			usleep(1000);                                                                                  \
		}                                                                                                      \
	} while (0)

/* One line for each thing that was seen; the program fails if one is not as docs/net.md says. */
#define SHOW(is, ...)                                                                                                  \
	do {                                                                                                           \
		bool is_ = (is);                                                                                       \
		printf("%s ", is_ ? "seen:" : "NOT SEEN:");                                                            \
		printf(__VA_ARGS__);                                                                                   \
		printf("\n");                                                                                          \
		fflush(stdout);                                                                                        \
		differs = differs || !is_;                                                                             \
	} while (0)

/* --- a job under the filter --- */

#define LOAD(field)   BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define JUMP(k, t, f) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, k, t, f)
#define RETURN(what)  BPF_STMT(BPF_RET | BPF_K, what)

static int set_filter(struct sock_filter *code, unsigned short length, unsigned flags)
{
	struct sock_fprog prog = {.len = length, .filter = code};
	int ret = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &prog);

	return ret < 0 ? -errno : ret;
}

/* A listener that gets flock() but for LOCK_UN, fcntl(), and i386's flock(). */
static int listen_to_locks(void)
{
	struct sock_filter code[] = {
		LOAD(arch),
		JUMP(ARCH, 2, 0),
		LOAD(nr),
		JUMP(FLOCK_32, 5, 6),
		LOAD(nr),
		JUMP(SYS_fcntl, 3, 0),
		JUMP(SYS_flock, 0, 3),
		LOAD(args[1]),
		JUMP(LOCK_UN, 1, 0),
		RETURN(SECCOMP_RET_USER_NOTIF),
		RETURN(SECCOMP_RET_ALLOW),
	};

	if (geteuid() != 0)
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	return set_filter(code, sizeof(code) / sizeof(code[0]),
			  SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV);
}

/* Runs job() in a child under the filter. */
static pid_t spawn(void (*job)(void), int *listener)
{
	int fd;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		shared->listener = fd = listen_to_locks();
		UNTIL(shared->listener == 0);
		close(fd);
		job();
		pause();
	}
	UNTIL(shared->listener != 0);
	*listener = syscall(SYS_pidfd_getfd, syscall(SYS_pidfd_open, pid, 0), shared->listener, 0);
	if (*listener < 0)
		DIE("cannot install the filter: %d", shared->listener);
	shared->listener = 0;
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static int result(long ret) { return ret < 0 ? -errno : 1; }

static int await(int which)
{
	int ret;

	UNTIL((ret = shared->done[which]) != 0);
	shared->done[which] = 0;
	return ret;
}

static void await_call(int listener)
{
	struct pollfd p = {.fd = listener, .events = POLLIN};

	if (poll(&p, 1, DEADLINE_MS) != 1)
		DIE("no call came");
}

static struct seccomp_notif receive(int listener)
{
	struct seccomp_notif q;

	do {
		await_call(listener);
		memset(&q, 0, sizeof(q));
	} while (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &q) < 0);
	return q;
}

static int answer(int listener, uint64_t id, int error, unsigned flags)
{
	struct seccomp_notif_resp r = {.id = id, .error = error, .flags = flags};

	return ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &r);
}

static int let_go_on(int listener, uint64_t id) { return answer(listener, id, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE); }

static void handler(int signal) { shared->handled++; }

static void handle(int signal, int flags)
{
	struct sigaction sa = {.sa_handler = handler, .sa_flags = flags};

	sigaction(signal, &sa, NULL);
}

static int open_path(void) { return open(shared->path, O_RDWR | O_CLOEXEC); }

/* --- what is seen from outside --- */

/* R, S, D, t, T, Z of this thread. */
static char state(pid_t tid)
{
	char path[64], found = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", tid);
	f = fopen(path, "re");
	if (!f || fscanf(f, "%*d (%*[^)]) %c", &found) != 1)
		DIE("%s", path);
	fclose(f);
	return found;
}

/* /proc/TID/syscall: the call in which the thread sleeps and its arguments; -1: none, or it runs. */
static long sleeps_in(pid_t tid, char *text, int size)
{
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/syscall", tid);
	f = fopen(path, "re");
	if (!f || !fgets(text, size, f))
		text[0] = 0;
	if (f)
		fclose(f);
	return text[0] >= '0' && text[0] <= '9' ? atol(text) : -1;
}

/* Does the kernel refuse an exclusive lock on a description of our own? start: in the space of records, from there on; -1: of flock(). */
static bool is_locked(const char *path, off_t start)
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = start, .l_len = 10};
	int fd = open(path, O_RDWR | O_CLOEXEC),
	    ret = start < 0 ? flock(fd, LOCK_EX | LOCK_NB) : fcntl(fd, F_OFD_SETLK, &l);

	close(fd);
	return ret < 0;
}

static bool leads_to(pid_t tid, int fd, const char *path)
{
	char link[64], found[128] = "";

	snprintf(link, sizeof(link), "/proc/%d/fd/%d", tid, fd);
	return readlink(link, found, sizeof(found) - 1) > 0 && strcmp(found, path) == 0;
}

/* --- signals --- */

static void early_job(void)
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int fd = open_path();

	handle(SIGUSR1, 0);
	shared->done[0] = result(flock(fd, LOCK_EX | LOCK_NB));
	shared->done[0] = result(fcntl(fd, F_SETLK, &l));
	l.l_type = F_UNLCK;
	shared->done[0] = result(fcntl(fd, F_SETLK, &l));
	handle(SIGUSR1, SA_RESTART);
	shared->done[0] = result(flock(fd, LOCK_EX | LOCK_NB));
}

static void signal_early(pid_t pid, int listener)
{
	int handled = shared->handled;

	await_call(listener);
	UNTIL(state(pid) == 'S');
	kill(pid, SIGUSR1);
	UNTIL(shared->handled > handled);
}

static void show_early(void)
{
	int listener;
	pid_t pid = spawn(early_job, &listener);

	signal_early(pid, listener);
	SHOW(await(0) == -EINTR && !is_locked(shared->path, -1),
	     "LOCK_NB ends with EINTR if a signal comes before the supervisor has received the call; nothing is locked");
	let_go_on(listener, receive(listener).id);
	SHOW(await(0) == 1 && is_locked(shared->path, 0), "a record lock is had");
	signal_early(pid, listener);
	SHOW(await(0) == -EINTR && is_locked(shared->path, 0),
	     "F_SETLK with F_UNLCK ends with EINTR, and the lock stays");
	signal_early(pid, listener);
	let_go_on(listener, receive(listener).id);
	SHOW(await(0) == 1, "with SA_RESTART the call comes again, and succeeds");
	end(pid);
}

static void *leak_thread(void *arg)
{
	int fd = open_path();

	shared->done[1] = result(flock(fd, LOCK_EX));
	shared->done[1] = result(flock(fd, LOCK_EX));
	return NULL;
}

static void leak_job(void)
{
	int fd = open("/dev/shm", O_RDONLY);
	pthread_t thread;

	handle(SIGUSR1, 0);
	pthread_create(&thread, NULL, leak_thread, NULL);
	UNTIL(shared->go);
	shared->done[0] = result(flock(fd, LOCK_SH));
}

/* A bit of ShdPnd in /proc/TID/status. */
static bool is_pending(pid_t tid, int signal)
{
	char path[64], line[256];
	unsigned long long set = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", tid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		sscanf(line, "ShdPnd: %llx", &set);
	if (f)
		fclose(f);
	return set >> (signal - 1) & 1;
}

static void show_leak(void)
{
	struct seccomp_notif of_thread, of_main;
	int listener;
	pid_t pid = spawn(leak_job, &listener);

	answer(listener, receive(listener).id, -RESTARTSYS, 0);
	SHOW(await(1) == -RESTARTSYS, "the answer -512 to a thread without a signal is errno 512 in the program");
	of_thread = receive(listener);
	shared->go = 1;
	of_main = receive(listener);
	UNTIL(state(of_main.pid) == 'S' && state(of_thread.pid) == 'S');
	kill(pid, SIGUSR1);
	UNTIL(state(of_main.pid) == 'D');
	SHOW(is_pending(of_thread.pid, SIGUSR1) && state(of_thread.pid) == 'S',
	     "a signal of the process is pending for both threads by ShdPnd; it went to one, and only that one is D");
	answer(listener, of_thread.id, -RESTARTSYS, 0);
	SHOW(await(1) == -RESTARTSYS, "so who goes by ShdPnd gives the other one errno 512");
	answer(listener, of_main.id, -RESTARTSYS, 0);
	SHOW(await(0) == -EINTR, "and who goes by D gives the right one EINTR");
	end(pid);
}

#define LOST_CALLS 20000

static bool lists_lock(int fd)
{
	char path[64], text[512] = "";
	int info;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	info = open(path, O_RDONLY);
	if (read(info, text, sizeof(text) - 1) < 0)
		text[0] = 0;
	close(info);
	return strstr(text, "lock:");
}

static void lost_job(void)
{
	const struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
	int fd = open_path(), ret;

	handle(SIGALRM, 0);
	setitimer(ITIMER_REAL, &often, NULL);
	for (int i = 0; i < LOST_CALLS; i++) {
		ret = result(flock(fd, LOCK_EX | LOCK_NB));
		shared->successes += ret == 1;
		shared->interrupted += ret == -EINTR;
		shared->wrong += lists_lock(fd) != (ret == 1);
		flock(fd, LOCK_UN);
	}
	setitimer(ITIMER_REAL, &never, NULL);
	shared->seen = 1;
}

static void show_lost(void)
{
	struct seccomp_notif q;
	long accepted = 0;
	int listener;
	pid_t pid = spawn(lost_job, &listener);

	while (shared->seen == 0) {
		struct pollfd p = {.fd = listener, .events = POLLIN};

		memset(&q, 0, sizeof(q));
		if (poll(&p, 1, 10) > 0 && ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &q) == 0)
			accepted += let_go_on(listener, q.id) == 0;
	}
	SHOW(accepted == shared->successes && shared->wrong == 0,
	     "of %d calls %ld ended with EINTR; of %ld answers none was lost (%ld had the lock)", LOST_CALLS,
	     shared->interrupted, accepted, shared->successes);
	end(pid);
}

/* --- a thread that has left the lock call is called back --- */

static void elsewhere_job(void)
{
	struct epoll_event event;
	int poll = epoll_create1(0), ends[2];
	char byte;

	if (pipe(ends) < 0)
		return;
	shared->seen = 1;
	shared->done[0] = result(epoll_wait(poll, &event, 1, -1));
	shared->done[1] = result(read(ends[0], &byte, 1));
}

static void call_back(pid_t pid)
{
	if (ptrace(PTRACE_SEIZE, pid, 0, 0) < 0 || ptrace(PTRACE_INTERRUPT, pid, 0, 0) < 0 ||
	    waitpid(pid, NULL, 0) != pid || ptrace(PTRACE_DETACH, pid, 0, 0) < 0)
		DIE("cannot interrupt the job");
}

static void show_elsewhere(void)
{
	char text[256];
	int listener;
	pid_t pid = spawn(elsewhere_job, &listener);

	UNTIL(shared->seen && state(pid) == 'S');
	call_back(pid);
	SHOW(await(0) == -EINTR, "an interrupt by ptrace makes epoll_wait() fail with EINTR, though no signal came");
	UNTIL(sleeps_in(pid, text, sizeof(text)) == SYS_read);
	call_back(pid);
	UNTIL(sleeps_in(pid, text, sizeof(text)) == SYS_read);
	SHOW(shared->done[1] == 0, "read() goes on");
	end(pid);
}

/* --- between "continue" and the lock --- */

static int fault_fd;
static char *fault_page;

/* Serves the page in which the job's struct flock is, when it is told to. */
static void *serve_page(void *arg)
{
	static char content[65536] __attribute__((aligned(65536)));
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	struct uffdio_copy copy = {
		.src = (uintptr_t)content, .dst = (uintptr_t)fault_page, .len = sysconf(_SC_PAGESIZE)};
	struct uffd_msg message;

	memcpy(content, &l, sizeof(l));
	if (read(fault_fd, &message, sizeof(message)) != sizeof(message))
		DIE("no page fault");
	shared->seen = 1;
	UNTIL(shared->go);
	ioctl(fault_fd, UFFDIO_COPY, &copy);
	return NULL;
}

static void window_job(void)
{
	struct uffdio_api api = {.api = UFFD_API};
	struct uffdio_register range = {.mode = UFFDIO_REGISTER_MODE_MISSING};
	int fd = open_path();
	pthread_t thread;

	fault_page = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	fault_fd = syscall(SYS_userfaultfd, O_CLOEXEC);
	range.range.start = (uintptr_t)fault_page;
	range.range.len = 65536;
	if (fault_fd < 0 || ioctl(fault_fd, UFFDIO_API, &api) < 0 || ioctl(fault_fd, UFFDIO_REGISTER, &range) < 0)
		DIE("userfaultfd");
	pthread_create(&thread, NULL, serve_page, NULL);
	shared->done[0] = result(fcntl(fd, F_SETLK, fault_page));
}

static void show_window(void)
{
	struct seccomp_notif q;
	char before[256], within[256];
	int listener, status, looks;
	pid_t pid = spawn(window_job, &listener);

	q = receive(listener);
	UNTIL(sleeps_in(pid, before, sizeof(before)) == SYS_fcntl);
	let_go_on(listener, q.id);
	UNTIL(shared->seen && sleeps_in(pid, within, sizeof(within)) == SYS_fcntl);
	SHOW(!is_locked(shared->path, 0),
	     "a continued call takes its time: the kernel lists no lock, another process gets it");
	SHOW(strcmp(before, within) == 0, "/proc/TID/syscall is the same as before \"continue\": %.30s...", within);
	kill(pid, SIGSTOP);
	if (ptrace(PTRACE_SEIZE, pid, 0, 0) < 0 || ptrace(PTRACE_INTERRUPT, pid, 0, 0) < 0)
		DIE("ptrace");
	for (looks = 0; looks < 50 && waitpid(pid, &status, WNOHANG | WUNTRACED) == 0; looks++)
		usleep(200);
	SHOW(looks == 50, "neither SIGSTOP nor an interrupt by ptrace keeps it from going on");
	shared->go = 1;
	kill(pid, SIGCONT); /* SIGSTOP stops all threads of the job, also the one that serves the page */
	SHOW(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status) && is_locked(shared->path, 0),
	     "it stops when it leaves the call: with the lock");
	ptrace(PTRACE_DETACH, pid, 0, 0);
	kill(pid, SIGCONT);
	SHOW(await(0) == 1, "and then believes in it");
	end(pid);
}

static int replaced_fd;
static struct flock replaced_lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10};

static void *replacing_thread(void *arg)
{
	UNTIL(shared->go);
	dup2(open(shared->other, O_RDWR), replaced_fd);
	replaced_lock.l_start = 100;
	shared->go = 0;
	UNTIL(shared->go);
	replaced_lock.l_start = 200;
	shared->go = 0;
	return NULL;
}

static void replacing_job(void)
{
	pthread_t thread;

	replaced_fd = open_path();
	pthread_create(&thread, NULL, replacing_thread, NULL);
	shared->done[0] = result(flock(replaced_fd, LOCK_EX | LOCK_NB));
	shared->done[0] = result(fcntl(replaced_fd, F_SETLK, &replaced_lock));
}

static void replace_and_go_on(int listener, uint64_t id)
{
	shared->go = 1;
	UNTIL(!shared->go);
	let_go_on(listener, id);
}

static void show_replaced(void)
{
	struct seccomp_notif q;
	bool before;
	int listener;
	pid_t pid = spawn(replacing_job, &listener);

	q = receive(listener);
	before = leads_to(q.pid, (int)q.data.args[0], shared->path);
	replace_and_go_on(listener, q.id);
	SHOW(await(0) == 1 && before && is_locked(shared->other, -1),
	     "another thread replaces the descriptor by dup2() before \"continue\": the other file is locked");
	SHOW(!is_locked(shared->path, -1), "and the one that the supervisor saw is not");
	replace_and_go_on(listener, receive(listener).id);
	SHOW(await(0) == 1 && is_locked(shared->other, 200) && !is_locked(shared->other, 100),
	     "and the same for the range in struct flock");
	end(pid);
}

/* --- rights, and other ways to the kernel --- */

/* From now on a filter of the job's own answers flock() so. */
static int answer_flock(unsigned action, unsigned flags)
{
	struct sock_filter code[] = {LOAD(nr), JUMP(SYS_flock, 0, 1), RETURN(action), RETURN(SECCOMP_RET_ALLOW)};

	return set_filter(code, 4, flags);
}

static void filters_job(void)
{
	const unsigned actions[] = {SECCOMP_RET_ALLOW, SECCOMP_RET_TRACE, SECCOMP_RET_ERRNO | ENOLCK};
	int fd = open_path();

	shared->done[1] = answer_flock(SECCOMP_RET_USER_NOTIF, SECCOMP_FILTER_FLAG_NEW_LISTENER);
	for (int i = 0; i < 3; i++) {
		answer_flock(actions[i], 0);
		shared->done[0] = result(flock(fd, LOCK_EX | LOCK_NB));
		UNTIL(shared->done[0] == 0);
	}
}

static void show_filters(void)
{
	int listener;
	pid_t pid = spawn(filters_job, &listener);

	SHOW(await(1) == -EBUSY,
	     "a second listener is refused with EBUSY: neither a net in a net, nor a job with its own");
	let_go_on(listener, receive(listener).id);
	SHOW(await(0) == 1, "the call still comes if the job's own filter allows it");
	let_go_on(listener, receive(listener).id);
	SHOW(await(0) == 1, "and if that filter would ask a tracer");
	SHOW(await(0) == -ENOLCK, "if that filter refuses the call, it is refused");
	end(pid);
}

static void dumpable_job(void)
{
	int fd = open_path();

	flock(fd, LOCK_EX | LOCK_NB);
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	flock(fd, LOCK_EX | LOCK_NB);
}

static void show_dumpable(void)
{
	struct seccomp_notif q;
	bool seen[2];
	int listener;
	pid_t pid;

	if (chmod(shared->path, 0666) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
	    setresuid(NOBODY, NOBODY, NOBODY) < 0)
		DIE("cannot become an ordinary user's supervisor");
	prctl(PR_SET_DUMPABLE, 1, 0, 0, 0); /* a change of user makes a process not dumpable */
	pid = spawn(dumpable_job, &listener);
	for (int i = 0; i < 2; i++) {
		q = receive(listener);
		seen[i] = leads_to(q.pid, (int)q.data.args[0], shared->path);
		answer(listener, q.id, -ENOLCK, 0);
	}
	SHOW(seen[0], "an ordinary user's supervisor sees which file a process of this user locks");
	SHOW(!seen[1], "but not if that process is not dumpable: it cannot tell protected files from others");
	end(pid);
}

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
	free(probe);
}

#ifdef __x86_64__
static void compat_job(void)
{
	int fd = open_path();
	long ret;

	__asm__ volatile("int $0x80" : "=a"(ret) : "a"(FLOCK_32), "b"(fd), "c"(LOCK_EX | LOCK_NB) : "memory");
	shared->done[0] = ret < 0 ? (int)ret : 1;
}

static void show_compat(void)
{
	struct seccomp_notif q;
	int listener;
	pid_t pid = spawn(compat_job, &listener);

	q = receive(listener);
	SHOW(q.data.arch == AUDIT_ARCH_I386 && q.data.nr == FLOCK_32,
	     "a 64-bit program's int 0x80 is seen with its 32-bit number");
	let_go_on(listener, q.id);
	SHOW(await(0) == 1, "and continues as such");
	end(pid);
}
#endif

static const struct finding {
	const char *name;
	void (*show)(void);
} findings[] = {
	{"early", show_early},         {"leak", show_leak},         {"lost", show_lost},
	{"elsewhere", show_elsewhere}, {"window", show_window},     {"replaced", show_replaced},
	{"filters", show_filters},     {"dumpable", show_dumpable}, {"uring", show_uring},
#ifdef __x86_64__
	{"compat", show_compat},
#endif
};

/* findings FILE FILE NAME: the files are empty. */
int main(int argc, char **argv)
{
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED || argc != 4)
		DIE("usage: findings FILE FILE NAME");
	snprintf(shared->path, sizeof(shared->path), "%s", argv[1]);
	snprintf(shared->other, sizeof(shared->other), "%s", argv[2]);
	for (size_t i = 0; i < sizeof(findings) / sizeof(findings[0]); i++)
		if (strcmp(argv[3], findings[i].name) == 0) {
			findings[i].show();
			return differs;
		}
	return 2;
}
