/*
 * What the code of a host gets from its machine: the time, its parent, randomness. Also the points at which a process
 * may lose the processor, or be killed, in the middle of its work. Linked with --wrap.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "tests/sim/sim.h"

/* The server's clock, and the wall clock of all hosts, at the beginning. */
#define WALL_START INT64_C(1750000000)

/* The linker's names: what the product calls, and what it would have called. */
#define WRAP(type, name, ...)                                                                                          \
	type __real_##name(__VA_ARGS__);                                                                               \
	type __wrap_##name(__VA_ARGS__)

WRAP(int, clock_gettime, clockid_t clock, struct timespec *t);
WRAP(time_t, time, time_t *out);
WRAP(ssize_t, getrandom, void *buffer, size_t size, unsigned flags);
WRAP(int, getsockopt, int fd, int level, int option, void *value, socklen_t *size);
WRAP(pid_t, getppid, void);
WRAP(int, kill, pid_t pid, int number);
WRAP(int, nanosleep, const struct timespec *wanted, struct timespec *left);
WRAP(void, table_put64, uint64_t *word, uint64_t value);
WRAP(void, table_put32, uint32_t *word, uint32_t value);
WRAP(void, table_put_bytes, void *to, const void *from, size_t count);
WRAP(ssize_t, sendmsg, int fd, const struct msghdr *msg, int flags);
WRAP(int, flock, int fd, int op);
WRAP(int, close, int fd);

static bool is_keeper(void) { return task_now && task_host(task_now) && task_host(task_now)->keeper == task_now; }

/* Now and then a process does not run for a while, wherever it is. */
static void hiccup(void)
{
	struct host *host = task_host(task_now);
	struct program *program = program_of_task();
	struct rng *rng = task_rng(task_now);

	if (!rng_chance(rng, faults_hiccups()))
		return;
	int64_t ns = rng_chance(rng, 50) ? rng_between(rng, 0, 4 * SEC) : rng_delay(rng, 300 * MS);

	if (is_keeper())
		host_pause(host, ns);
	else if (program)
		program_sleep(program, ns);
}

static bool crashes_now(struct host *host)
{
	if (!host->crashing || host->crash_countdown-- > 0)
		return false;
	host->crashing = false;
	return true;
}

/* The keeper may die here. True: it dies after half of what it was about to do. */
static bool crash_point(void) { return is_keeper() && crashes_now(task_host(task_now)); }

static void crash(void)
{
	host_kill_keeper(task_host(task_now), "in the middle of something");
	task_yield(); /* and never comes back */
	abort();
}

/* A place at which the keeper may be suspended, or die. */
static void may_die(void)
{
	hiccup();
	if (crash_point())
		crash();
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
	struct host *host = task_now ? task_host(task_now) : sim_starting;
	int64_t ns;

	if (!host)
		return __real_clock_gettime(clock, t);
	ns = host_clock(host);
	if (clock == CLOCK_REALTIME)
		ns = WALL_START * SEC + sim_now;
	t->tv_sec = ns / SEC;
	t->tv_nsec = ns % SEC;
	if (task_now)
		hiccup();
	return 0;
}

time_t __wrap_time(time_t *out)
{
	time_t now = WALL_START + sim_now / SEC;

	if (!task_now)
		return __real_time(out);
	if (out)
		*out = now;
	return now;
}

ssize_t __wrap_getrandom(void *buffer, size_t size, unsigned flags)
{
	unsigned char *to = buffer;

	if (!task_now)
		return __real_getrandom(buffer, size, flags);
	for (size_t i = 0; i < size; i++)
		to[i] = (unsigned char)rng_next(task_rng(task_now));
	return (ssize_t)size;
}

/* A seed means the same after the next start of this machine. */
unsigned __wrap_hostid_machine(void);

unsigned __wrap_hostid_machine(void) { return 0; }

/* All programs are one process here. */
int __wrap_getsockopt(int fd, int level, int option, void *value, socklen_t *size)
{
	int ret = __real_getsockopt(fd, level, option, value, size);
	struct sockaddr_un name = {0};
	socklen_t len = sizeof(name);
	int pid;

	if (ret == 0 && is_keeper() && level == SOL_SOCKET && option == SO_PEERCRED &&
	    getpeername(fd, (struct sockaddr *)&name, &len) == 0 &&
	    sscanf(name.sun_path + 1, "dflock-sim-%*d-%d-", &pid) == 1)
		((struct ucred *)value)->pid = pid;
	return ret;
}

pid_t __wrap_getppid(void)
{
	struct host *host = task_host(task_now);

	return host ? host_parent_pid(host) : __real_getppid();
}

int __wrap_kill(pid_t pid, int number)
{
	struct host *host = task_host(task_now);
	struct program *p;

	if (!host)
		return __real_kill(pid, number);
	if (pid == host_parent_pid(host)) {
		if (number == SIGUSR1)
			host_notify_parent(host);
		return 0;
	}
	p = program_of_pid(pid);
	if (!p || p->state == PROGRAM_ENDED) {
		errno = ESRCH;
		return -1;
	}
	if (number == SIGKILL) {
		host->killed++;
		program_kill(p, "killed by the keeper's parent");
	}
	return 0;
}

static void parent_awake(void *arg, uint64_t boot)
{
	struct host *host = arg;

	if (host->parent && host->boot == boot && !task_ended(host->parent))
		task_resume(host->parent);
}

/* Only the parent sleeps in the product's code. */
int __wrap_nanosleep(const struct timespec *wanted, struct timespec *left)
{
	struct host *host = task_host(task_now);

	if (!host)
		return __real_nanosleep(wanted, left);
	if (left)
		*left = (struct timespec){0};
	sim_after(wanted->tv_sec * SEC + wanted->tv_nsec, parent_awake, host, host->boot);
	task_yield();
	return 0;
}

/* Between any two stores into the table of leases: a process that is killed has done those before, and none after. */
static void own_store(void)
{
	if (is_keeper())
		may_die();
}

void __wrap_table_put64(uint64_t *word, uint64_t value)
{
	own_store();
	__real_table_put64(word, value);
	for (int i = 0; i < sim_host_count; i++)
		lives_entry(&sim_hosts[i], word, value);
	if (is_keeper())
		lives_store(task_host(task_now), word, value);
}

void __wrap_table_put32(uint32_t *word, uint32_t value)
{
	own_store();
	__real_table_put32(word, value);
}

void __wrap_table_put_bytes(void *to, const void *from, size_t count)
{
	if (is_keeper() && crash_point()) {
		__real_table_put_bytes(to, from, (size_t)rng_between(task_rng(task_now), 0, (int64_t)count + 1));
		crash();
	}
	__real_table_put_bytes(to, from, count);
}

void host_write_point(const struct host *host)
{
	if (is_keeper() && task_host(task_now) == host)
		may_die();
}

bool host_dies_here(struct host *host)
{
	if (!host->keeper || !crashes_now(host))
		return false;
	host_kill_keeper(host, "while a probe fires");
	return true;
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	ssize_t n;

	if (!is_keeper())
		return __real_sendmsg(fd, msg, flags);
	may_die();
	n = __real_sendmsg(fd, msg, flags);
	may_die();
	return n;
}

int __wrap_flock(int fd, int op)
{
	struct host *host = task_host(task_now);
	int ret;

	if (is_keeper() && crash_point())
		crash();
	ret = __real_flock(fd, op);
	if (host && ret == 0)
		kernel_changed(host);
	return ret;
}

/* A copy of a description, also one in a socket that no process has read, may have been the last that kept a lock
 * alive. */
int __wrap_close(int fd)
{
	int ret = __real_close(fd);

	if (is_keeper())
		kernel_changed(task_host(task_now));
	return ret;
}
