/*
 * The net in small: `gate STORE HOST FILE -- JOB` runs JOB under the filter as host 0 or 1. FILE is this host's protected file;
 * the other host has another inode. The store is memory in a file: which host has which lease, shared or exclusive, and which ones
 * want it: one for flock() and one for record locks, of the whole file.
 *
 * Every call is continued; nothing that takes a lock is executed for the job. Why no two hosts' jobs have the lock:
 *
 *     At each moment a host has the lease, or its supervisors have the kernel lock of FILE (the gate), or both; with a shared
 *     lease they have it shared.
 *
 * The gate is taken before the job starts. It is made weaker only after the lease was granted; a lease is given back, or becomes
 * shared, only after the gate was taken. So a job that gets the kernel lock, whenever that is, gets it while its host has the lease;
 * and the lease does not end as long as a process has the kernel lock, because then the gate cannot be taken. It does not matter where
 * a thread is between "continue" and the lock, nor for how long. With --open the gate is let go as soon as it was taken, which is what
 * a probe does: then only time keeps hosts apart.
 *
 * One step is none for the kernel: a shared flock() that becomes exclusive is lost first. So before that ("closing") no exclusive call
 * may be under way: they are called back by ptrace, and kept meanwhile.
 *
 * A call that waits is continued at once, and waits in the kernel: for local holders, or at the gate for the other host. So the
 * kernel itself does signals, restarts, conversions and local deadlocks. A call that does not wait is kept until the lease is
 * there, or the other host has said that its gate is not to be had; then it meets the gate, and the kernel says EWOULDBLOCK.
 *
 * Two supervisors have the listener and the gate's description. The second one works when the first one has ended, and decides
 * the call that was received and not answered: a call that was not continued has not begun. Not here: keepers, ranges, other files, outages (window.c,
 * show_outage()), deadlocks over hosts.
 */
#include "gate.h"

static bool is_protected(const struct seccomp_notif *q)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", q->pid, (int)q->data.args[0]);
	return stat(path, &st) == 0 && st.st_dev == file.st_dev && st.st_ino == file.st_ino;
}

/* l_type is the first member of all kinds of struct flock. */
static enum mode record_mode(const struct seccomp_notif *q)
{
	short type = F_WRLCK;
	struct iovec to = {&type, sizeof(type)}, from = {(void *)(uintptr_t)q->data.args[2], sizeof(type)};

	if (process_vm_readv(q->pid, &to, 1, &from, 1, 0) != sizeof(type))
		return EXCLUSIVE;
	return type == F_UNLCK ? NONE : type == F_RDLCK ? SHARED : EXCLUSIVE;
}

static enum mode flock_mode(int op)
{
	op &= ~LOCK_NB;
	return op == LOCK_SH ? SHARED : op == LOCK_EX ? EXCLUSIVE : NONE;
}

static bool is_flock(const struct seccomp_notif *q)
{
	return q->data.nr == (q->data.arch == NET_ARCH ? (int)SYS_flock : NET_FLOCK_32);
}

/* Under the mutex. 0 or -errno. */
static int decide_lock(const struct seccomp_notif *q, int space, enum mode mode, bool waits)
{
	struct started *call = note_started(q, space, mode, waits);

	if (!call)
		return -ENOLCK;
	if ((net->lease[space] >= mode && (!net->closing[space] || !waits)) || (waits && gate_stands(space, mode))) {
		net_continue(listener, q->id);
		return 0;
	}
	if (net->closing[space] && mode == EXCLUSIVE)
		give_up_shared(call);
	return keep(q, call) ? 0 : -ENOLCK;
}

static void decide(const struct seccomp_notif *q)
{
	int space = !is_flock(q), command = (int)q->data.args[1], ret;
	bool waits = space ? command == 7 || command == 14 || command == 38 : !(command & LOCK_NB);
	enum mode mode = !is_protected(q) ? NONE : space ? record_mode(q) : flock_mode(command);

	if (mode == NONE) {
		forget_started(q->pid);
		net_continue(listener, q->id);
		return;
	}
	point();
	store_lock();
	point();
	net->calls++;
	ret = decide_lock(q, space, mode, waits);
	if (ret < 0)
		net_answer(listener, q->id, ret, 0);
	point();
	if (net->lease[space] < mode)
		store_changed();
	store_unlock();
}

/* --- the lease --- */

/* May this host have it, for all that the other one has? */
static bool may_have(int space, enum mode mode)
{
	return store->spaces[space].has[!me] + mode <= EXCLUSIVE;
}

/* The store has it first, then the calls and the gate. A gate becomes weaker in one step. */
static void lease_got(int space, enum mode mode)
{
	store->spaces[space].has[me] = mode;
	point();
	net->lease[space] = mode;
	store->spaces[space].wants[me] = NONE;
	point();
	gate_set(space, EXCLUSIVE - mode, true);
	point();
	continue_kept(space, false);
	point();
}

/* Takes the gate for a weaker lease. Under the mutex, which is let go of while this waits. False: not now. */
static bool gate_strengthen(int space, enum mode mode)
{
	bool taken;

	if (space == 0 && net->lease[space] == SHARED) {
		net->closing[space] = true;
		point();
		if (!call_back_all(space))
			return false;
		point();
	}
	if (space == 0 && have_interrupted())
		return false;
	taken = gate_set(space, mode, false);
	if (!taken) {
		store->spaces[space].busy[me] = true;
		store_changed();
		if (space == 1 && net->lease[space] == SHARED) {
			/* To wait with a shared lock in hand, behind a writer that waits for this very lock, is a
			 * deadlock. The attempt keeps the shared lock, so it is made again. */
			store_wait(1);
		} else {
			store_unlock();
			taken = gate_set(space, mode, true);
			store_lock();
		}
		store->spaces[space].busy[me] = taken ? false : store->spaces[space].busy[me];
	}
	point();
	return taken;
}

/* The other host wants what is not possible beside this lease. */
static void lease_return(int space)
{
	enum mode rest = EXCLUSIVE - store->spaces[space].wants[!me];

	if (!gate_strengthen(space, EXCLUSIVE - rest))
		return;
	if (store->spaces[space].wants[!me] + rest < EXCLUSIVE) {
		/* It no longer wants that. */
		gate_set(space, EXCLUSIVE - net->lease[space], true);
		net->closing[space] = false;
	} else {
		net->lease[space] = rest;
		net->closing[space] = false;
		net->returned++;
		point();
		store->spaces[space].has[me] = rest;
		/* To the one that waited, at once. */
		store->spaces[space].has[!me] = EXCLUSIVE - rest;
		point();
		if (leave_open)
			gate_set(space, NONE, true);
	}
	store_changed();
	continue_kept(space, false);
}

static void lease_want(int space, bool *unsure)
{
	enum mode wanted = mode_wanted(space, unsure);

	if (wanted <= net->lease[space])
		wanted = NONE;
	if (store->spaces[space].wants[me] != wanted) {
		store->spaces[space].wants[me] = wanted;
		store_changed();
	}
	if (wanted != NONE && may_have(space, wanted))
		lease_got(space, wanted);
	else if (wanted != NONE && store->spaces[space].busy[!me])
		continue_kept(space, true);
}

/* One thread for each space. What an earlier supervisor was about to do is done again: the gate may be stronger than it must be. */
static void *look_after_lease(void *arg)
{
	int space = *(int *)arg;
	bool unsure;

	store_lock();
	store->spaces[space].busy[me] = false;
	if (!net->closing[space])
		gate_set(space, EXCLUSIVE - net->lease[space], true);
	continue_kept(space, false);
	for (;;) {
		unsure = false;
		if (store->spaces[space].wants[!me] + net->lease[space] <= EXCLUSIVE)
			store->spaces[space].busy[me] = false;
		if (store->spaces[space].has[me] > net->lease[space])
			lease_got(space, store->spaces[space].has[me]);
		if (store->spaces[space].wants[!me] + net->lease[space] > EXCLUSIVE)
			lease_return(space);
		else if (net->closing[space]) {
			gate_set(space, EXCLUSIVE - net->lease[space], true);
			net->closing[space] = false;
			continue_kept(space, false);
		}
		lease_want(space, &unsure);
		unsure = unsure || net->closing[space] || (space == 0 && have_interrupted());
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
	bool some_kept = true;
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
	for (;;) {
		if (net_next(listener, &net->received, some_kept ? 3 : -1))
			decide(&net->received);
		else if (poll(p, 1, 0) > 0 && p[0].revents & POLLHUP)
			break;
		store_lock();
		some_kept = look_at_kept();
		store_unlock();
	}
	/* The last filtered process has ended. */
	store_lock();
	for (int i = 0; i < SPACES; i++) {
		store->spaces[i].wants[me] = NONE;
		store->spaces[i].has[me] = NONE;
	}
	store_changed();
	say("calls:", net->calls);
	say("leases given back:", net->returned);
	say("calls called back by ptrace:", net->called_back);
	say("calls sent back by -512:", net->sent_back);
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
		if (!gate_set(i, EXCLUSIVE, true))
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
