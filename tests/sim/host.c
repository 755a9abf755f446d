/*
 * A host's life. The keeper is the product's keeper_run(), as a task; its parent does what keeper/guard/supervise.c does,
 * with the product's freezer, as another.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/callers/listener.h"
#include "keeper/callers/session.h"
#include "keeper/guard/freeze.h"
#include "keeper/guard/supervise.h"
#include "keeper/guard/table.h"
#include "keeper/leases/host.h"
#include "keeper/main.h"
#include "tests/sim/sim.h"

#define FIRST_PARENT 1000
#define CHECK_MS     PULSE_CHECK_MS
#define QUICK_MS     PULSE_QUICK_MS
#define HUNG_MS      PULSE_HUNG_MS

struct host sim_hosts[SIM_HOSTS];
struct host *sim_starting;
int sim_host_count;

/* The page that the keeper shares with programs; NULL: no keeper has made one yet. */
const struct page *host_page(struct host *host)
{
	int fd = host->page ? -1 : openat(host->dir_fd, PAGE_NAME, O_RDONLY | O_CLOEXEC);
	struct stat st;
	void *page;

	if (fd < 0)
		return host->page;
	if (fstat(fd, &st) == 0 && st.st_size >= (off_t)PAGE_BYTES) {
		page = mmap(NULL, PAGE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
		host->page = page == MAP_FAILED ? NULL : page;
	}
	close(fd);
	return host->page;
}

/* --- time --- */

int64_t host_clock(const struct host *host) { return host->clock_base + (int64_t)((double)sim_now * host->rate); }

int64_t host_after(const struct host *host, int64_t own_ns)
{
	return sim_now + (int64_t)((double)own_ns / host->rate) + 1;
}

pid_t host_parent_pid(const struct host *host) { return FIRST_PARENT + host->id; }

/* --- the keeper --- */

int __real_host_start(struct keeper *k);
int __wrap_host_start(struct keeper *k);

/* The way by which the simulation gets to the keeper's state. */
int __wrap_host_start(struct keeper *k)
{
	int ret = __real_host_start(k);

	task_host(task_now)->k = k;
	if (k->config->lease.dead_ms != host_dead_ms())
		sim_fail("h%d has a configuration that is not this run's", task_host(task_now)->id);
	return ret;
}

static void keeper_ended(void *arg, uint64_t life)
{
	struct host *host = arg;

	if (host->life != life)
		return;
	sim_trace("h%d: the keeper has ended (%d)", host->id, host->exit_status);
	lives_keeper(host, 'X');
	task_free(host->keeper);
	host->keeper = NULL;
	host->k = NULL;
	host->life++;
	programs_answered(host);
	host_notify_parent(host);
}

static void keeper_main(void *arg)
{
	struct host *host = arg;
	struct keeper_options options = {.config = host->config,
					 .runtime_dir = host->run,
					 .dir_fd = host->dir_fd,
					 .ready_fd = -1,
					 .foreground = true,
					 .table = &host->table,
					 .parent_fd = host->parent_pipe[0]};

	host->exit_status = keeper_run(&options);
	sim_after(0, keeper_ended, host, host->life);
}

static void start_keeper(void *arg, uint64_t boot)
{
	struct host *host = arg;

	if (!host->up || host->boot != boot)
		return;
	sim_trace("h%d: a keeper starts", host->id);
	lives_keeper(host, 'K');
	host->starting = host->idle = host->paused = host->ending = host->crashing = host->kicked = false;
	host->stopped_until = 0;
	host->exit_status = -1;
	host->inbox = NULL;
	host->keeper = task_new(host, &host->rng, keeper_main, host);
	task_resume(host->keeper);
}

static void unpause(void *arg, uint64_t life)
{
	struct host *host = arg;

	if (!host_lives(host, (unsigned)life))
		return;
	if (sim_now < host->stopped_until) {
		sim_at(host->stopped_until, unpause, host, life);
		return;
	}
	host->paused = false;
	task_resume(host->keeper);
}

void host_pause(struct host *host, int64_t ns)
{
	host->paused = true;
	sim_after(ns, unpause, host, host->life);
	task_yield();
}

static bool is_programs(int fd)
{
	for (int i = 0; i < sim_program_count; i++)
		if (sim_programs[i].fd == fd)
			return true;
	return false;
}

/* Also descriptors that its workers have. */
static void close_files(const struct host *host)
{
	struct stat files[SIM_FILES], st;
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *d;

	for (int i = 0; i < SIM_FILES; i++)
		if (stat(host->files[i], &files[i]) != 0)
			sim_fail("%s: %s", host->files[i], strerror(errno));
	while (dir && (d = readdir(dir))) {
		int fd = atoi(d->d_name);

		if (fd == dirfd(dir) || is_programs(fd) || fstat(fd, &st) != 0)
			continue;
		for (int i = 0; i < SIM_FILES; i++)
			if (files[i].st_dev == st.st_dev && files[i].st_ino == st.st_ino) {
				close(fd);
				break;
			}
	}
	closedir(dir);
}

static void close_sockets(const struct keeper *k)
{
	struct session *s;

	DL_FOREACH (k->sessions->all, s)
		close(s->fd);
	close(k->sessions->epoll);
	if (!k->listener)
		return;
	close(k->listener->fd);
	close(k->listener->spare_fd);
}

void host_disturb(struct host *host)
{
	host->disturbed[0] = host->disturbed[1];
	host->disturbed[1] = sim_now;
}

bool host_is_disturbed(const struct host *host)
{
	return host->disturbed[0] && sim_now - host->disturbed[0] < SIM_TTL_MS * MS;
}

void host_kill_keeper(struct host *host, const char *why)
{
	bool self = host->keeper == task_now;

	if (!host->keeper)
		return;
	host_disturb(host);
	sim_trace("h%d: the keeper dies %s", host->id, why);
	lives_keeper(host, 'X');
	loop_drop(host);
	kernel_drop(host);
	net_drop(host);
	if (host->k)
		close_sockets(host->k);
	close_files(host);
	host->k = NULL;
	if (!self)
		task_free(host->keeper);
	host->keeper = NULL;
	host->life++;
	kernel_changed(host);
	programs_answered(host);
	host_notify_parent(host);
}

/* --- the parent --- */

static void parent_wake(void *arg, uint64_t nap)
{
	struct host *host = arg;

	if (!host->parent || !host->parent_sleeps || host->parent_nap != nap)
		return;
	if (sim_now < host->parent_busy_until) {
		sim_at(host->parent_busy_until, parent_wake, host, nap);
		return;
	}
	host->parent_sleeps = false;
	task_resume(host->parent);
}

void host_notify_parent(struct host *host)
{
	host->notified = true;
	if (host->parent_sleeps)
		sim_after(rng_delay(&host->parent_rng, 30 * MS), parent_wake, host, host->parent_nap);
}

static void parent_sleep(struct host *host, int64_t ms)
{
	static uint64_t naps;

	if (host->notified) /* the signal has come already */
		ms = 0;
	host->notified = false;
	host->parent_sleeps = true;
	host->parent_nap = ++naps;
	sim_at(host_after(host, ms * MS) + rng_delay(&host->parent_rng, 30 * MS), parent_wake, host, host->parent_nap);
	task_yield();
}

static void watch_keeper(struct host *host)
{
	int64_t seen = -1, since = host_clock(host), looked = since, still = 0;

	while (host->starting || host->keeper) {
		int64_t period = (table_patience_ns(&host->table, since) < HUNG_MS * MS ? QUICK_MS : CHECK_MS) * MS,
			now;

		parent_sleep(host, freezer_look(host->freezer, (int)(period / MS)));
		now = host_clock(host);
		still += now - looked < 2 * period ? now - looked : 2 * period;
		looked = now;
		if (host->table.head->alive != seen) {
			since = now;
			still = 0;
		}
		seen = host->table.head->alive;
		if (still >= table_patience_ns(&host->table, since)) {
			host_kill_keeper(host, "since it hangs");
			still = 0;
		}
	}
}

static void parent_main(void *arg)
{
	struct host *host = arg;

	for (;;) {
		host->starting = true;
		sim_after(rng_delay(&host->parent_rng, 50 * MS), start_keeper, host, host->boot);
		freeze_set_keeper(host->freezer, host_parent_pid(host) + 100);
		watch_keeper(host);
		table_unsure(&host->table);
		if (host->exit_status >= 0)
			sim_fail("h%d: the keeper has ended by itself with status %d", host->id, host->exit_status);
		int64_t end = host_clock(host) + rng_between(&host->parent_rng, 0, 3) * 100 * MS;

		while (host_clock(host) < end)
			parent_sleep(host, freezer_look(host->freezer, (int)((end - host_clock(host)) / MS) + 1));
	}
}

static void start_parent(struct host *host)
{
	char why[256];
	int ret;

	sim_starting = host;
	ret = table_open(&host->table, host->dir_fd, why, sizeof(why));
	sim_starting = NULL;
	if (ret < 0 || *why)
		sim_fail("h%d has no table of leases: %s %s", host->id, strerror(-ret), why);
	host->freezer = freeze_new(&host->table);
	if (!host->freezer || (!host->parent_pipe[1] && pipe2(host->parent_pipe, O_CLOEXEC) != 0))
		sim_fail("h%d has no parent: %s", host->id, strerror(errno));
	host->table.head->parent = host_parent_pid(host);
	host->parent = task_new(host, &host->parent_rng, parent_main, host);
	host->parent_sleeps = true;
	host->parent_nap = 0;
	host->orphaned = false;
	sim_after(0, parent_wake, host, 0);
}

static void next_parent(void *arg, uint64_t boot)
{
	struct host *host = arg;

	if (!host->up || host->boot != boot)
		return;
	sim_trace("h%d: another parent starts", host->id);
	lives_cut(host);
	table_close(&host->table);
	start_parent(host);
}

static void make_room(void *arg, uint64_t boot)
{
	struct host *host = arg;

	if (!host->up || host->boot != boot)
		return;
	if (host->keeper && host->keeper == task_now)
		sim_fail("h%d: the keeper ends inside itself", host->id);
	host_kill_keeper(host, "to make room for another parent");
	sim_after(rng_delay(&host->parent_rng, 50 * MS), next_parent, host, boot);
}

/* Traced programs die with the tracer. Until the next parent watches, nothing else may happen to the keeper: that would
 * be both faults at once. */
void host_kill_parent(struct host *host)
{
	if (!host->up || !host->parent || !host->keeper || sim_now < host->stopped_until || host->parent == task_now)
		return;
	sim_trace("h%d: the parent dies by kill -9", host->id);
	host->orphaned = true;
	host->crashing = false;
	host->parent_sleeps = false;
	task_free(host->parent);
	host->parent = NULL;
	stopping_forget(host);
	for (int i = 0; i < sim_program_count; i++)
		if (sim_programs[i].host == host && sim_programs[i].frozen)
			program_kill(&sim_programs[i], "with the parent that had it frozen");
	sim_after(rng_delay(&host->parent_rng, 100 * MS), make_room, host, host->boot);
}

/* --- keeper/guard/supervise.h: no service manager waits for it --- */

void supervise_serves(const struct table *table, uint32_t *serves) {}

/* --- the machine --- */

/* The runtime directory is on a tmpfs: nothing in it outlasts a boot. */
static void clear_runtime_dir(const struct host *host)
{
	DIR *dir = opendir(host->run);
	struct dirent *d;

	while (dir && (d = readdir(dir)))
		if (d->d_name[0] != '.' &&
		    unlinkat(host->dir_fd, d->d_name, d->d_type == DT_DIR ? AT_REMOVEDIR : 0) != 0)
			sim_fail("%s/%s: %s", host->run, d->d_name, strerror(errno));
	if (!dir || closedir(dir) != 0)
		sim_fail("%s: %s", host->run, strerror(errno));
}

void host_boot(struct host *host)
{
	clear_runtime_dir(host);
	host->up = true;
	host->boot++;
	sim_trace("h%d: boots", host->id);
	start_parent(host);
}

void host_die(struct host *host)
{
	sim_trace("h%d: the machine is gone", host->id);
	host->up = false;
	host->parent_sleeps = false;
	if (host->parent)
		task_free(host->parent);
	host->parent = NULL;
	stopping_forget(host);
	for (int i = 0; i < sim_program_count; i++)
		if (sim_programs[i].host == host)
			program_kill(&sim_programs[i], "with its machine");
	net_silence(host);
	host_kill_keeper(host, "with its machine");
	lives_forget(host);
	table_close(&host->table);
	if (host->page)
		munmap((void *)host->page, PAGE_BYTES);
	host->page = NULL;
}

void hosts_start(int count)
{
	struct rng world = rng_of("clocks", 0);

	sim_host_count = count;
	for (int i = 0; i < SIM_HOSTS; i++) {
		struct host *host = &sim_hosts[i];

		host->rng = rng_of("host", (uint64_t)i);
		host->parent_rng = rng_of("parent", (uint64_t)i);
		host->rate = 1 + (double)rng_between(&world, -50, 51) / 10000;
		host->clock_base = rng_between(&world, 1000, 1000000) * SEC;
		clear_runtime_dir(host);
		if (i < count)
			host_boot(host);
	}
}
