/*
 * Findings of docs/net.md about signals that come while a lock call is with the supervisor. `signals NAME` shows one of them.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/ptrace.h>
#include <sys/time.h>

#include "net.h"

/* What supervisor and job both see. */
struct shared {
	char path[64];
	_Atomic int handled; /* signals that the job's handler saw */
	_Atomic int done[2]; /* results of the job's calls: 0: none so far; 1: success; -errno */
	_Atomic int next;    /* the supervisor has seen the last result */
	_Atomic long calls, successes, interrupted, others, unlocked, locked;
};

static struct shared *shared;

static void handler(int signal) { shared->handled++; }

static void handle(int signal, int flags)
{
	struct sigaction sa = {.sa_handler = handler, .sa_flags = flags};

	sigaction(signal, &sa, NULL);
}

static int result(long ret) { return ret < 0 ? -errno : 1; }

static void begin(void)
{
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		DIE("cannot map memory");
	close(net_file(shared->path));
}

static void finish(pid_t pid, int listener)
{
	kill(pid, SIGKILL);
	net_end(pid);
	close(listener);
	unlink(shared->path);
}

static int await(int which)
{
	int ret;

	NET_UNTIL((ret = shared->done[which]) != 0);
	shared->done[which] = 0;
	return ret;
}

static void must_receive(int listener, struct seccomp_notif *q)
{
	if (!net_next(listener, q, NET_DEADLINE_MS))
		DIE("no call came");
}

static void await_call(int listener)
{
	struct pollfd p = {.fd = listener, .events = POLLIN};

	if (poll(&p, 1, NET_DEADLINE_MS) != 1)
		DIE("no call came");
}

/* --- before the supervisor has received the call --- */

static int early_job(void *arg)
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int fd = open(shared->path, O_RDWR);

	handle(SIGUSR1, 0);
	shared->done[0] = result(flock(fd, LOCK_EX | LOCK_NB));
	shared->done[0] = result(fcntl(fd, F_SETLK, &l));
	l.l_type = F_UNLCK;
	shared->done[0] = result(fcntl(fd, F_SETLK, &l));
	handle(SIGUSR1, SA_RESTART);
	shared->done[0] = result(flock(fd, LOCK_EX | LOCK_NB));
	pause();
	return 0;
}

static void show_early(void)
{
	struct seccomp_notif q;
	int listener, handled;
	pid_t pid = net_spawn(early_job, NULL, KILLABLE, &listener);

	await_call(listener);
	NET_UNTIL(net_state(pid) == 'S');
	kill(pid, SIGUSR1);
	SHOW(await(0) == -EINTR,
	     "LOCK_NB ends with EINTR if a signal comes before the supervisor has received the call");
	SHOW(!net_is_locked(shared->path, false), "then nothing is locked");
	must_receive(listener, &q);
	net_continue(listener, q.id);
	SHOW(await(0) == 1 && net_is_locked(shared->path, true), "a record lock is had");
	await_call(listener);
	NET_UNTIL(net_state(pid) == 'S');
	kill(pid, SIGUSR1);
	SHOW(await(0) == -EINTR && net_is_locked(shared->path, true),
	     "F_SETLK with F_UNLCK ends with EINTR, and the lock stays");
	await_call(listener);
	NET_UNTIL(net_state(pid) == 'S');
	handled = shared->handled;
	kill(pid, SIGUSR1);
	NET_UNTIL(shared->handled > handled);
	must_receive(listener, &q);
	net_continue(listener, q.id);
	SHOW(await(0) == 1, "with SA_RESTART the call comes again, and succeeds");
	finish(pid, listener);
}

/* --- after the supervisor has received it, with WAIT_KILLABLE_RECV --- */

static int received_job(void *arg)
{
	int fd = open(shared->path, O_RDWR);

	handle(SIGUSR1, 0);
	shared->done[0] = result(flock(fd, LOCK_EX | LOCK_NB));
	shared->done[0] = result(flock(fd, LOCK_EX));
	handle(SIGUSR1, SA_RESTART);
	shared->done[0] = result(flock(fd, LOCK_EX));
	pause();
	return 0;
}

static void signal_received(pid_t pid, int listener, struct seccomp_notif *q)
{
	must_receive(listener, q);
	NET_UNTIL(net_state(pid) == 'S');
	kill(pid, SIGUSR1);
	NET_UNTIL(net_state(pid) == 'D');
}

static void show_received(void)
{
	struct seccomp_notif q;
	int listener;
	pid_t pid = net_spawn(received_job, NULL, KILLABLE, &listener);

	signal_received(pid, listener, &q);
	SHOW(shared->handled == 0, "a thread whose call was received sleeps as D once a signal has come, and not as S");
	net_continue(listener, q.id);
	SHOW(await(0) == 1 && shared->handled == 1, "LOCK_NB: the call is done, and then the handler runs");
	signal_received(pid, listener, &q);
	net_answer(listener, q.id, -RESTARTSYS, 0);
	SHOW(await(0) == -EINTR, "without SA_RESTART, the answer -512 to such a thread is EINTR");
	signal_received(pid, listener, &q);
	net_answer(listener, q.id, -RESTARTSYS, 0);
	must_receive(listener, &q);
	SHOW(shared->handled == 3, "with SA_RESTART, the handler runs, and the call comes again");
	net_continue(listener, q.id);
	SHOW(await(0) == 1, "and succeeds");
	finish(pid, listener);
}

/* --- the answer -512 to a thread that no signal is waiting for --- */

static void *leak_thread(void *arg)
{
	int fd = open(shared->path, O_RDWR);

	shared->done[1] = result(flock(fd, LOCK_EX));
	shared->done[1] = result(flock(fd, LOCK_EX));
	return NULL;
}

static int leak_job(void *arg)
{
	int fd = open("/dev/shm", O_RDONLY);
	pthread_t thread;

	handle(SIGUSR1, 0);
	pthread_create(&thread, NULL, leak_thread, NULL);
	while (shared->next == 0)
		usleep(100);
	shared->done[0] = result(flock(fd, LOCK_SH));
	pause();
	return 0;
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
	pid_t pid = net_spawn(leak_job, NULL, KILLABLE, &listener);

	must_receive(listener, &of_thread);
	net_answer(listener, of_thread.id, -RESTARTSYS, 0);
	SHOW(await(1) == -RESTARTSYS, "the answer -512 to a thread without a signal is errno 512 in the program");
	must_receive(listener, &of_thread);
	shared->next = 1;
	must_receive(listener, &of_main);
	NET_UNTIL(net_state(of_main.pid) == 'S' && net_state(of_thread.pid) == 'S');
	kill(pid, SIGUSR1);
	NET_UNTIL(net_state(of_main.pid) == 'D');
	SHOW(is_pending(of_thread.pid, SIGUSR1) && net_state(of_thread.pid) == 'S',
	     "a signal of the process is pending for both threads by ShdPnd; it went to one, and only that one is D");
	net_answer(listener, of_thread.id, -RESTARTSYS, 0);
	SHOW(await(1) == -RESTARTSYS, "so who goes by ShdPnd gives the other one errno 512");
	net_answer(listener, of_main.id, -RESTARTSYS, 0);
	SHOW(await(0) == -EINTR, "and who goes by D gives the right one EINTR");
	finish(pid, listener);
}

/* --- by the thousand --- */

#define STORM_THREADS 4
#define STORM_CALLS   400

static void *storm_thread(void *arg)
{
	char path[64];
	int fd = net_file(path), ret;

	unlink(path);
	for (int i = 0; i < STORM_CALLS; i++) {
		ret = result(flock(fd, LOCK_EX));
		shared->calls++;
		if (ret == 1)
			shared->successes++;
		else if (ret == -EINTR)
			shared->interrupted++;
		else
			shared->others++;
		flock(fd, LOCK_UN);
	}
	return NULL;
}

static int storm_job(void *arg)
{
	const struct itimerval often = {{0, 300}, {0, 300}};
	pthread_t threads[STORM_THREADS];
	sigset_t alarm;

	handle(SIGALRM, 0);
	for (int i = 0; i < STORM_THREADS; i++)
		pthread_create(&threads[i], NULL, storm_thread, NULL);
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &alarm, NULL); /* the kernel would give all of them to this thread */
	setitimer(ITIMER_REAL, &often, NULL);
	for (int i = 0; i < STORM_THREADS; i++)
		pthread_join(threads[i], NULL);
	return 0;
}

/* Each call is kept for some looks at its thread. It is sent back if a signal came, else continued. */
static void show_storm(void)
{
	struct seccomp_notif kept[STORM_THREADS] = {0};
	int looks[STORM_THREADS] = {0}, listener, given;
	struct seccomp_notif q;
	long restarts = 0, continued = 0;
	pid_t pid = net_spawn(storm_job, NULL, KILLABLE, &listener);

	while (shared->calls < STORM_THREADS * STORM_CALLS) {
		if (net_next(listener, &q, 0))
			for (int i = 0; i < STORM_THREADS; i++)
				if (kept[i].id == 0) {
					kept[i] = q;
					looks[i] = 0;
					break;
				}
		for (int i = 0; i < STORM_THREADS; i++) {
			if (kept[i].id == 0)
				continue;
			given = 1;
			if (net_state(kept[i].pid) == 'D' && ++restarts)
				net_answer(listener, kept[i].id, -RESTARTSYS, 0);
			else if (++looks[i] == 20 && ++continued)
				net_continue(listener, kept[i].id);
			else
				given = 0;
			if (given)
				kept[i].id = 0;
		}
	}
	SHOW(shared->others == 0,
	     "%ld calls of %d threads, %d signals: %ld sent back, %ld continued; %ld EINTR, %ld others", shared->calls,
	     STORM_THREADS, shared->handled, restarts, continued, shared->interrupted, shared->others);
	SHOW(shared->interrupted > 0 && restarts > 0, "some of them were interrupted");
	finish(pid, listener);
}

/* --- replies that get lost --- */

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

static int lost_job(void *arg)
{
	const struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
	bool executed = arg != NULL;
	int fd = open(shared->path, O_RDWR), ret;

	handle(SIGALRM, 0);
	setitimer(ITIMER_REAL, &often, NULL);
	for (int i = 0; i < LOST_CALLS; i++) {
		ret = result(flock(fd, LOCK_EX | LOCK_NB));
		if (ret == 1)
			shared->successes++;
		else
			shared->interrupted++;
		if (executed && lists_lock(fd) != (ret == 1)) {
			if (ret == 1)
				shared->unlocked++;
			else
				shared->locked++;
		}
		flock(fd, LOCK_UN);
	}
	setitimer(ITIMER_REAL, &never, NULL);
	shared->next = 1;
	pause();
	return 0;
}

/* With "done" nothing is executed: what counts is whether the result arrives. */
static void lose(const char *what, bool executed, unsigned flags)
{
	struct seccomp_notif q;
	long accepted = 0;
	int listener;
	pid_t pid;

	begin();
	pid = net_spawn(lost_job, executed ? shared : NULL, flags, &listener);
	while (shared->next == 0)
		if (net_next(listener, &q, 10))
			accepted += net_answer(listener, q.id, 0, executed ? SECCOMP_USER_NOTIF_FLAG_CONTINUE : 0) == 0;
	SHOW(shared->unlocked == 0 && shared->locked == 0,
	     "%s: of %d calls %ld ended with EINTR; %ld answers accepted, %ld of them lost; after EINTR %ld locked, "
	     "after success %ld not locked",
	     what, LOST_CALLS, shared->interrupted, accepted, accepted - shared->successes, shared->locked,
	     shared->unlocked);
	finish(pid, listener);
}

static void show_lost(void)
{
	unlink(shared->path);
	lose("\"done\"", false, 0);
	lose("\"done\", WAIT_KILLABLE_RECV", false, KILLABLE);
	lose("\"continue\"", true, 0);
	lose("\"continue\", WAIT_KILLABLE_RECV", true, KILLABLE);
}

/* --- a thread that waits in the kernel is called back --- */

static int waiting_job(void *arg)
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int fd = open(shared->path, O_RDWR);

	handle(SIGUSR1, 0);
	handle(SIGCONT, SA_RESTART);
	shared->done[0] = result(flock(fd, LOCK_EX));
	shared->done[0] = result(fcntl(fd, F_SETLKW, &l));
	pause();
	return 0;
}

static void call_back(pid_t pid)
{
	int status;

	if (ptrace(PTRACE_SEIZE, pid, 0, 0) < 0 || ptrace(PTRACE_INTERRUPT, pid, 0, 0) < 0 ||
	    waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status))
		DIE("cannot interrupt the job");
	if (ptrace(PTRACE_DETACH, pid, 0, 0) < 0)
		DIE("cannot let the job go on");
}

static pid_t trace(pid_t pid)
{
	pid_t tracer = fork();

	if (tracer == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (ptrace(PTRACE_SEIZE, pid, 0, 0) < 0)
			_exit(1);
		shared->next = 1;
		pause();
	}
	NET_UNTIL(shared->next == 1);
	shared->next = 0;
	return tracer;
}

static void let_go(int holder, bool record)
{
	struct flock l = {.l_type = F_UNLCK, .l_whence = SEEK_SET};

	if (record)
		fcntl(holder, F_OFD_SETLK, &l);
	else
		flock(holder, LOCK_UN);
}

static void show_callback(void)
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	struct seccomp_notif q;
	int listener, holder = open(shared->path, O_RDWR | O_CLOEXEC), status;
	pid_t pid, tracer;

	if (flock(holder, LOCK_EX) < 0 || fcntl(holder, F_OFD_SETLK, &l) < 0)
		DIE("cannot lock");
	pid = net_spawn(waiting_job, NULL, KILLABLE, &listener);
	for (int record = 0; record < 2; record++) {
		must_receive(listener, &q);
		net_continue(listener, q.id);
		NET_UNTIL(net_waits(pid));
		call_back(pid);
		must_receive(listener, &q);
		SHOW(shared->done[0] == 0 && shared->handled == 0,
		     "%s: an interrupt by ptrace ends the kernel's wait, and the call comes again; the program sees nothing",
		     record ? "F_SETLKW" : "flock");
		net_continue(listener, q.id);
		NET_UNTIL(net_waits(pid));
		tracer = trace(pid);
		SHOW(ptrace(PTRACE_SEIZE, pid, 0, 0) < 0 && errno == EPERM, "not if a debugger has the job");
		kill(tracer, SIGKILL);
		net_end(tracer);
		NET_UNTIL(net_waits(pid));
		kill(pid, SIGSTOP);
		SHOW(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status),
		     "SIGSTOP does it, too, and the parent hears of it");
		kill(pid, SIGCONT);
		must_receive(listener, &q);
		shared->handled = 0;
		net_continue(listener, q.id);
		NET_UNTIL(net_waits(pid));
		let_go(holder, record);
		SHOW(await(0) == 1, "then the lock is had");
	}
	finish(pid, listener);
	close(holder);
}

/* --- and a thread that has left the lock call meanwhile --- */

static int elsewhere_job(void *arg)
{
	struct epoll_event event;
	int poll = epoll_create1(0), ends[2];
	char byte;

	if (pipe(ends) < 0)
		return 1;
	shared->next = 1;
	shared->done[0] = result(epoll_wait(poll, &event, 1, -1));
	shared->done[1] = result(read(ends[0], &byte, 1));
	return 0;
}

static void show_elsewhere(void)
{
	int listener;
	pid_t pid = net_spawn(elsewhere_job, NULL, KILLABLE, &listener);

	NET_UNTIL(shared->next && net_state(pid) == 'S');
	call_back(pid);
	SHOW(await(0) == -EINTR, "an interrupt by ptrace makes epoll_wait() fail with EINTR, though no signal came");
	NET_UNTIL(net_sleeps_in(pid) == SYS_read);
	call_back(pid);
	NET_UNTIL(net_sleeps_in(pid) == SYS_read);
	SHOW(shared->done[1] == 0, "read() goes on");
	finish(pid, listener);
}

static const struct finding findings[] = {
	{"early", show_early}, {"received", show_received}, {"leak", show_leak},           {"storm", show_storm},
	{"lost", show_lost},   {"callback", show_callback}, {"elsewhere", show_elsewhere}, {NULL, NULL},
};

int main(int argc, char **argv)
{
	begin();
	return net_main(argc, argv, findings);
}
