/*
 * The net in small: `gate STORE HOST FILE -- JOB` runs JOB under the filter as host 0 or 1. FILE is this host's protected file;
 * the other host has another inode. The store is memory in a file: which host has the lease, which ones want it. Leases are
 * exclusive and whole, one for flock() and one for record locks.
 *
 * Every call is continued; nothing is executed for the job, and no thread is stopped. Why no two hosts' jobs have the lock:
 *
 *     At each moment a host has the lease, or its supervisors have the kernel lock of FILE (the gate), or both.
 *
 * The gate is taken before the job starts. It is let go only after the lease was granted; the lease is given back only after
 * the gate was taken. So a job that gets the kernel lock, whenever that is, gets it while its host has the lease; and the lease
 * does not end as long as a process has the kernel lock, because then the gate cannot be taken. It does not matter where a
 * thread is between "continue" and the lock, nor for how long. With --open the gate is let go as soon as it was taken, which
 * is what a probe does: then only time keeps hosts apart.
 *
 * A call that waits is continued at once, and waits in the kernel: for local holders, or at the gate for the other host. So the
 * kernel itself does signals, restarts, conversions and local deadlocks. A call that does not wait is kept until the lease is
 * there, or the other host has said that its gate is not to be had; then it meets the gate, and the kernel says EWOULDBLOCK.
 *
 * Two supervisors have the listener and the gate's description. The second one works when the first one has ended, and decides
 * the call that was received and not answered: a call that was not continued has not begun. Not here: keepers, shared leases, ranges, other files, outages (window.c,
 * show_outage()), deadlocks over hosts.
 */
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "net.h"

#define SPACES 2 /* 0: flock, 1: record */
#define CALLS  256

/* What both hosts see, under the mutex. */
struct store {
	atomic_bool ready;
	pthread_mutex_t mutex; /* also for what is below of each host */
	_Atomic unsigned
		changes; /* a futex: a condition variable does not outlive the death of a process that waits on it */
	struct {
		int owner; /* host, or -1 */
		bool wants[2];
		bool busy[2]; /* this host waits for its gate */
	} spaces[SPACES];
};

/* A call that was continued, and may be under way still. */
struct started {
	pid_t tid;
	int nr, space;
	bool waits;
};

/* A call that has no answer so far. */
struct kept {
	uint64_t id;
	pid_t tid;
	int space;
};

/* What the two supervisors of a host see, under the mutex of the store. */
struct net {
	bool lease[SPACES];
	struct started started[CALLS];
	struct kept kept[CALLS];
	struct seccomp_notif received;
	long calls, returned;
};

static struct store *store;
static struct net *net;
static int me, listener, gate, log_fd;
static bool leave_open;
static _Atomic long die_at;
static struct stat file;

/* With --die N the first supervisor kills itself at the N-th of these places. */
static void point(void)
{
	if (die_at > 0 && atomic_fetch_sub(&die_at, 1) == 1)
		kill(getpid(), SIGKILL);
}

static void say(const char *text, long number)
{
	dprintf(log_fd, "host %d, supervisor %d: %s %ld\n", me, getpid(), text, number);
}

static void store_lock(void)
{
	if (pthread_mutex_lock(&store->mutex) == EOWNERDEAD)
		pthread_mutex_consistent(&store->mutex);
}

static void store_unlock(void)
{
	pthread_mutex_unlock(&store->mutex);
}

static void store_changed(void)
{
	store->changes++;
	syscall(SYS_futex, &store->changes, FUTEX_WAKE, 1 << 30, NULL, NULL, 0);
}

/* Without the mutex, until the next change, or for a while. */
static void store_wait(int ms)
{
	const struct timespec timeout = {.tv_nsec = ms * 1000000};
	unsigned seen = store->changes;

	store_unlock();
	syscall(SYS_futex, &store->changes, FUTEX_WAIT, seen, &timeout, NULL, 0);
	store_lock();
}

/* --- the gate --- */

static bool gate_take(int space, bool wait)
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

	if (space == 0)
		return flock(gate, LOCK_EX | (wait ? 0 : LOCK_NB)) == 0;
	return fcntl(gate, wait ? F_OFD_SETLKW : F_OFD_SETLK, &l) == 0;
}

static void gate_let_go(int space)
{
	struct flock l = {.l_type = F_UNLCK, .l_whence = SEEK_SET};

	if (space == 0)
		flock(gate, LOCK_UN);
	else
		fcntl(gate, F_OFD_SETLK, &l);
}

/* --- calls --- */

/* Notes the call before it is continued. A thread is in one call at a time: its earlier one is over. */
static bool note_started(const struct seccomp_notif *q, int space, bool waits)
{
	struct started *free = NULL, *s;

	for (s = net->started; s < net->started + CALLS && s->tid != (pid_t)q->pid; s++)
		if (s->tid == 0 && !free)
			free = s;
	s = s < net->started + CALLS ? s : free;
	if (s)
		*s = (struct started){.tid = q->pid, .nr = q->data.nr, .space = space, .waits = waits};
	return s;
}

/* The thread is in a call that matters to nobody: its earlier one is over. */
static void forget_started(pid_t tid)
{
	store_lock();
	for (struct started *s = net->started; s < net->started + CALLS; s++)
		if (s->tid == tid)
			s->tid = 0;
	store_unlock();
}

/* Does a call of this space wait in the kernel? Forgets calls that are seen to be over. */
static bool somebody_waits(int space, bool *unsure)
{
	bool waits = false;
	long nr;

	for (struct started *s = net->started; s < net->started + CALLS; s++) {
		if (s->tid == 0 || s->space != space || !s->waits)
			continue;
		nr = net_sleeps_in(s->tid);
		if (nr == s->nr)
			waits = true;
		else if (nr >= 0 || net_state(s->tid) == 0)
			s->tid = 0;
		else
			*unsure = true;
	}
	return waits;
}

static bool have_kept(int space)
{
	for (struct kept *k = net->kept; k < net->kept + CALLS; k++)
		if (k->id != 0 && k->space == space)
			return true;
	return false;
}

static void continue_kept(int space)
{
	for (struct kept *k = net->kept; k < net->kept + CALLS; k++)
		if (k->id != 0 && k->space == space) {
			net_continue(listener, k->id);
			k->id = 0;
		}
}

static bool keep(const struct seccomp_notif *q, int space)
{
	for (struct kept *k = net->kept; k < net->kept + CALLS; k++)
		if (k->id == 0) {
			*k = (struct kept){.id = q->id, .tid = q->pid, .space = space};
			return true;
		}
	return false;
}

static bool is_protected(const struct seccomp_notif *q)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", q->pid, (int)q->data.args[0]);
	return stat(path, &st) == 0 && st.st_dev == file.st_dev && st.st_ino == file.st_ino;
}

/* l_type is the first member of all kinds of struct flock. */
static bool is_unlock(const struct seccomp_notif *q)
{
	short type = F_WRLCK;
	struct iovec to = {&type, sizeof(type)}, from = {(void *)(uintptr_t)q->data.args[2], sizeof(type)};

	return process_vm_readv(q->pid, &to, 1, &from, 1, 0) == sizeof(type) && type == F_UNLCK;
}

static bool is_flock(const struct seccomp_notif *q)
{
	return q->data.nr == (q->data.arch == NET_ARCH ? (int)SYS_flock : NET_FLOCK_32);
}

static void decide(const struct seccomp_notif *q)
{
	int space = !is_flock(q), command = (int)q->data.args[1];
	bool waits = space ? command == 7 || command == 14 || command == 38 : !(command & LOCK_NB);
	int ret = 0;

	if (!is_protected(q) || (space && is_unlock(q))) {
		forget_started(q->pid);
		net_continue(listener, q->id);
		return;
	}
	point();
	store_lock();
	point();
	net->calls++;
	if (!note_started(q, space, waits))
		ret = -ENOLCK;
	else if (net->lease[space] || waits)
		net_continue(listener, q->id);
	else if (!keep(q, space))
		ret = -ENOLCK;
	if (ret < 0)
		net_answer(listener, q->id, ret, 0);
	point();
	if (!net->lease[space])
		store_changed();
	store_unlock();
}

/* --- the lease --- */

static void lease_got(int space)
{
	point();
	net->lease[space] = true;
	store->spaces[space].wants[me] = false;
	point();
	gate_let_go(space);
	point();
	continue_kept(space);
	point();
}

/* The other host wants the lease. */
static void lease_return(int space)
{
	bool taken = gate_take(space, false);

	if (!taken) {
		store->spaces[space].busy[me] = true;
		store_changed();
		store_unlock();
		taken = gate_take(space, true);
		store_lock();
		store->spaces[space].busy[me] = false;
	}
	if (!taken)
		return;
	point();
	if (!store->spaces[space].wants[!me]) {
		gate_let_go(space);
		return;
	}
	net->lease[space] = false;
	net->returned++;
	point();
	store->spaces[space].owner = !me;
	point();
	store_changed();
	if (leave_open)
		gate_let_go(space);
}

static void lease_want(int space, bool *unsure)
{
	bool kept = have_kept(space);

	store->spaces[space].wants[me] = kept || somebody_waits(space, unsure);
	if (!store->spaces[space].wants[me])
		return;
	store_changed();
	if (store->spaces[space].owner < 0)
		store->spaces[space].owner = me;
	else if (kept && store->spaces[space].owner != me && store->spaces[space].busy[!me])
		continue_kept(space); /* they meet the gate */
}

/* One thread for each space. What an earlier supervisor was about to do is done again. */
static void *look_after_lease(void *arg)
{
	int space = *(int *)arg;
	bool unsure;

	store_lock();
	store->spaces[space].busy[me] = false;
	if (net->lease[space])
		gate_let_go(space);
	for (;;) {
		unsure = false;
		if (!net->lease[space] && store->spaces[space].owner != me)
			lease_want(space, &unsure);
		if (!net->lease[space] && store->spaces[space].owner == me)
			lease_got(space);
		if (net->lease[space] && store->spaces[space].wants[!me])
			lease_return(space);
		store_wait(unsure ? 2 : 50);
	}
	return NULL;
}

/* --- the supervisors --- */

/* The call that the earlier supervisor had received last, and had neither answered nor kept, is decided now. Calls that are kept
 * stay so. */
static void take_over(void)
{
	struct seccomp_notif q = net->received;
	bool again = q.id != 0 && ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &q.id) == 0;

	store_lock();
	for (struct kept *k = net->kept; k < net->kept + CALLS; k++)
		again = again && k->id != q.id;
	store_unlock();
	say("takes over; calls decided:", again);
	if (again)
		decide(&q);
}

static void supervise(bool second, int other)
{
	static int spaces[SPACES] = {0, 1};
	struct pollfd p[2] = {{.fd = listener}, {.fd = other, .events = POLLIN}};
	pthread_t thread;

	if (second) {
		while (poll(p, 2, -1) < 0 || !(p[0].revents & POLLHUP || p[1].revents))
			;
		if (p[0].revents & POLLHUP)
			return;
		die_at = 0;
		take_over();
	}
	say("supervises", 0);
	for (int i = 0; i < SPACES; i++)
		if (pthread_create(&thread, NULL, look_after_lease, &spaces[i]) != 0)
			DIE("thread");
	while (net_next(listener, &net->received, -1))
		decide(&net->received);
	/* The last filtered process has ended. */
	store_lock();
	for (int i = 0; i < SPACES; i++) {
		store->spaces[i].wants[me] = false;
		if (store->spaces[i].owner == me)
			store->spaces[i].owner = -1;
	}
	store_changed();
	say("calls:", net->calls);
	say("leases given back:", net->returned);
	_exit(0);
}

/* Neither child of the job nor of its session, with none of its descriptors 0 to 2. */
static void become_supervisor(bool second, int socket, int other)
{
	static const int deaf[] = {SIGTERM, SIGINT, SIGHUP, SIGPIPE};
	int null = open("/dev/null", O_RDWR);

	for (size_t i = 0; i < sizeof(deaf) / sizeof(*deaf); i++)
		signal(deaf[i], SIG_IGN);
	for (int fd = 0; fd <= 2; fd++)
		dup2(null, fd);
	listener = net_receive_fd(socket);
	if (listener < 0)
		_exit(1);
	ioctl(listener, SECCOMP_IOCTL_NOTIF_SET_FLAGS, NET_SYNC_WAKE_UP);
	close(socket);
	supervise(second, other);
	_exit(0);
}

/* Returns when both have been started; they then wait for the listener. */
static void start_supervisors(int sockets[2][2])
{
	int alive[2];
	pid_t pid;

	if (pipe2(alive, O_CLOEXEC) < 0 || (pid = fork()) < 0)
		DIE("cannot start supervisors");
	if (pid == 0) {
		setsid();
		for (int i = 0; i < 2; i++) {
			pid = fork();
			if (pid == 0) {
				close(alive[i]); /* the first one has the writing end */
				for (int j = 0; j < 2; j++) {
					close(sockets[j][0]);
					if (j != i)
						close(sockets[j][1]);
				}
				become_supervisor(i, sockets[i][1], i ? alive[0] : -1);
			}
		}
		_exit(pid < 0);
	}
	close(alive[0]);
	close(alive[1]);
	if (net_end(pid) != 0)
		DIE("cannot start supervisors");
}

/* --- begin --- */

static void open_store(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	pthread_mutexattr_t mutex;

	if (fd < 0 || flock(fd, LOCK_EX) < 0 || ftruncate(fd, sizeof(*store)) < 0)
		DIE("%s", path);
	store = mmap(NULL, sizeof(*store), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (store == MAP_FAILED)
		DIE("%s", path);
	if (!store->ready) {
		pthread_mutexattr_init(&mutex);
		pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
		pthread_mutexattr_setrobust(&mutex, PTHREAD_MUTEX_ROBUST);
		pthread_mutex_init(&store->mutex, &mutex);
		for (int i = 0; i < SPACES; i++)
			store->spaces[i].owner = -1;
		store->ready = true;
	}
	flock(fd, LOCK_UN); /* the mapping keeps the description */
	close(fd);
}

int main(int argc, char **argv)
{
	int sockets[2][2], fd;
	char path[4096];

	leave_open = argc > 1 && strcmp(argv[1], "--open") == 0;
	argc -= leave_open;
	argv += leave_open;
	if (argc > 2 && strcmp(argv[1], "--die") == 0) {
		die_at = atol(argv[2]);
		argc -= 2;
		argv += 2;
	}
	if (argc < 6 || strcmp(argv[4], "--") != 0) {
		fprintf(stderr, "usage: gate [--open] [--die N] STORE HOST FILE -- JOB...\n");
		return 2;
	}
	open_store(argv[1]);
	me = argv[2][0] == '1';
	snprintf(path, sizeof(path), "%s.log", argv[1]);
	log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	gate = open(argv[3], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	net = mmap(NULL, sizeof(*net), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (log_fd < 0 || gate < 0 || fstat(gate, &file) < 0 || net == MAP_FAILED)
		DIE("%s", argv[3]);
	for (int i = 0; i < SPACES; i++)
		if (!gate_take(i, true))
			DIE("gate");
	for (int i = 0; i < 2; i++)
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets[i]) < 0)
			DIE("socketpair");
	start_supervisors(sockets);
	fd = net_install(KILLABLE);
	if (fd < 0) {
		fprintf(stderr, "gate: seccomp: %s\n", strerror(-fd));
		return 125;
	}
	for (int i = 0; i < 2; i++) {
		net_send_fd(sockets[i][0], fd);
		close(sockets[i][0]);
		close(sockets[i][1]);
	}
	close(fd);
	close(gate);
	execvp(argv[5], argv + 5);
	fprintf(stderr, "gate: %s: %s\n", argv[5], strerror(errno));
	return 127;
}
