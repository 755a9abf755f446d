/* Programs that lock, with the shim's own code for it (shim/acquire.c): their time, and what they do. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim/call.h"
#include "tests/sim/sim.h"

#define FIRST_PID 5000000 /* the product looks into /proc: no process of the machine may have such a number */

struct program sim_programs[SIM_PROGRAMS];
int sim_program_count;
static uint64_t naps;

/* --- a program's time --- */

struct program *program_of_task(void)
{
	for (int i = 0; i < sim_program_count; i++)
		if (task_now && sim_programs[i].task == task_now)
			return &sim_programs[i];
	return NULL;
}

struct program *program_of_pid(pid_t pid)
{
	for (int i = 0; i < sim_program_count; i++)
		if (sim_programs[i].pid == pid)
			return &sim_programs[i];
	return NULL;
}

void program_wake(struct program *p, uint64_t nap)
{
	if (p->state == PROGRAM_ENDED || p->nap != nap)
		return;
	p->wakes = p->frozen && !p->in_window;
	if (p->wakes)
		return;
	p->nap = 0;
	task_resume(p->task);
}

static void wake_event(void *arg, uint64_t nap) { program_wake(arg, nap); }

static void wake_soon(struct program *p)
{
	if (p->nap)
		sim_after(rng_delay(&p->rng, 50 * MS), wake_event, p, p->nap);
}

void program_sleep(struct program *p, int64_t ns)
{
	p->nap = ++naps;
	if (ns != PROGRAM_FOREVER)
		sim_after(ns, wake_event, p, p->nap);
	task_yield();
}

void program_freeze(struct program *p, bool frozen)
{
	if (p->frozen == frozen)
		return;
	p->frozen = frozen;
	sim_trace("p%d: %s", p->id, frozen ? "frozen" : "goes on");
	if (frozen && !p->caught)
		lives_call(p, 0);
	if (frozen && p->in_call && p->waits_for_lock) { /* its stop ends the wait */
		if (!p->left)
			lives_call(p, 'o');
		p->called_back = p->wakes = p->left = true;
	}
	if (frozen)
		p->host->frozen += !host_is_disturbed(p->host);
	else if (p->wakes)
		sim_after(0, wake_event, p, p->nap);
}

static void let_go(struct program *p)
{
	if (p->sock >= 0)
		close(p->sock);
	if (p->fd >= 0)
		close(p->fd);
	p->sock = p->fd = -1;
	kernel_changed(p->host);
	loop_poll(p->host);
}

void program_kill(struct program *p, const char *why)
{
	if (p->state == PROGRAM_ENDED)
		return;
	sim_trace("p%d: ends: %s", p->id, why);
	lives_call(p, 0);
	p->state = PROGRAM_ENDED;
	p->frozen = false;
	let_go(p);
	if (p->task == task_now)
		task_yield(); /* for good */
}

/* False: a signal came. */
bool program_wait_for_lock(struct program *p)
{
	p->waits_for_lock = true;
	program_sleep(p, PROGRAM_FOREVER);
	p->waits_for_lock = false;
	bool go_on = !p->interrupted;

	p->interrupted = false;
	return go_on;
}

void programs_look_again(struct host *host)
{
	for (int i = 0; i < sim_program_count; i++)
		if (sim_programs[i].host == host && sim_programs[i].waits_for_lock)
			wake_soon(&sim_programs[i]);
}

void programs_answered(struct host *host)
{
	for (int i = 0; i < sim_program_count; i++) {
		struct program *p = &sim_programs[i];

		if (p->host == host && p->receives && p->sock >= 0 && is_readable(p->sock))
			wake_soon(p);
	}
}

/* --- what a program does --- */

static const struct store_range whole_file = {.from = 0, .to = WIRE_EOF};

static int call(struct program *p, const struct store_range *range, bool nonblock)
{
	/* Some of them have not looked at the page yet, or cannot. */
	struct protect_look look = {.page = rng_chance(&p->rng, 700) ? host_page(p->host) : NULL};
	struct stat st;
	struct intent want = {.space = range->space,
			      .mode = range->mode,
			      .owner = WIRE_OWNER_DESCRIPTION,
			      .nonblock = nonblock,
			      .from = range->from,
			      .to = range->to,
			      .first = range->from,
			      .last = intent_last(range->to)};
	int op = (range->mode == WIRE_SHARED ? LOCK_SH : LOCK_EX) | (nonblock ? LOCK_NB : 0);
	enum program_state before = p->state;
	int rc;

	if (fstat(p->fd, &st) != 0)
		sim_fail("fstat: %s", strerror(errno));
	look.file = (struct leases_file){
		.dev = st.st_dev, .ino = st.st_ino, .path_hash = leases_hash(p->host->files[p->file])};
	if (before == PROGRAM_HOLDING)
		lives_call(p, 0);
	p->state = PROGRAM_CALLING;
	p->wants = *range;
	p->interrupted = false;
	lives_begin(p, nonblock);
	sim_trace("p%d: h%d %s: %s%s", p->id, p->host->id, program_file_name(p->file), check_range(range),
		  nonblock ? ", without waiting" : "");
	rc = p->caught                    ? caught_call(p, &want)
	     : range->space == WIRE_FLOCK ? acquire_flock(p->fd, op, &want, &look)
					  : acquire_record(p->fd, &want, &look);
	sim_trace("p%d: %s", p->id, rc == 0 ? "has it" : strerror(-rc));
	if (!p->caught)
		lives_call(p, rc == 0 ? 's' : 0);
	if (rc == 0) {
		p->state = PROGRAM_HOLDING;
		p->held = *range;
		p->grants++;
		if (before != PROGRAM_HOLDING)
			check_new_lock(p);
	} else {
		/* A record call that fails changes nothing; flock() may have lost what it was to convert. */
		p->state = before == PROGRAM_HOLDING && range->space == WIRE_RECORD ? PROGRAM_HOLDING : PROGRAM_IDLE;
		p->refusals++;
	}
	return rc;
}

static void unlock(struct program *p)
{
	struct flock lock = {.l_type = F_UNLCK, .l_whence = SEEK_SET};

	p->state = PROGRAM_IDLE;
	lives_call(p, 'u');
	if (rng_chance(&p->rng, 300)) {
		close(p->fd);
		p->fd = -1;
	} else if (p->held.space == WIRE_FLOCK) {
		flock(p->fd, LOCK_UN);
	} else {
		fcntl(p->fd, F_OFD_SETLK, &lock);
	}
	sim_trace("p%d: unlocked", p->id);
	kernel_changed(p->host);
}

/* In one run of eight all programs lock the whole of one file and convert it: leases are shrunk all the time, so
 * that each fault also comes while one is. Of other runs few shrink a lease at all. */
static bool all_convert(void) { return sim_seed % 8 == 5; }

static struct store_range choose(struct program *p)
{
	struct store_range range = whole_file;
	struct rng world = rng_of("world", 1);

	if (all_convert()) {
		range.space = rng_chance(&world, 500) ? WIRE_RECORD : WIRE_FLOCK;
		range.mode = rng_chance(&p->rng, 600) ? WIRE_EXCLUSIVE : WIRE_SHARED;
		return range;
	}
	range.space = rng_chance(&p->rng, (unsigned)rng_between(&world, 0, 3) * 300) ? WIRE_RECORD : WIRE_FLOCK;
	range.mode = rng_chance(&p->rng, (unsigned)rng_between(&world, 2, 11) * 100) ? WIRE_EXCLUSIVE : WIRE_SHARED;
	if (range.space == WIRE_RECORD && rng_chance(&p->rng, 800)) {
		range.from = rng_between(&p->rng, 0, 4) * 10;
		range.to = rng_chance(&p->rng, 200) ? WIRE_EOF : range.from + 10 * rng_between(&p->rng, 1, 4);
	}
	return range;
}

/* The program holds a lock: goes on in one of the ways in which programs do. */
static void use(struct program *p)
{
	struct store_range other = p->held;

	program_sleep(p, rng_chance(&p->rng, p->final ? 0 : 300) ? rng_between(&p->rng, 0, 8 * SEC)
								 : rng_between(&p->rng, 0, 300 * MS));
	if (!p->converts || !rng_chance(&p->rng, all_convert() ? 800 : 300))
		return;
	other.mode = p->held.mode == WIRE_SHARED ? WIRE_EXCLUSIVE : WIRE_SHARED;
	/* Two upgraders of record locks that wait for each other would wait for ever: OFD locks know no deadlock. */
	call(p, &other, other.space == WIRE_RECORD || rng_chance(&p->rng, 300));
	if (p->state == PROGRAM_HOLDING)
		program_sleep(p, rng_between(&p->rng, 0, 600 * MS));
}

static void one_round(struct program *p)
{
	struct store_range range = p->final ? p->wants : choose(p);
	bool nonblock = !p->faithful && rng_chance(&p->rng, 500);
	int rc;

	if (!p->final)
		p->file = all_convert() ? 0 : (int)rng_between(&p->rng, 0, SIM_FILES);
	if (host_at_least_ms_of(program_file_name(p->file))) /* such files have no other locks */
		range = (struct store_range){.space = range.space, .mode = WIRE_EXCLUSIVE, .to = WIRE_EOF};
	do {
		if (p->fd < 0)
			p->fd = open(p->host->files[p->file], O_RDWR | O_CLOEXEC);
		if (p->fd < 0)
			sim_fail("%s: %s", p->host->files[p->file], strerror(errno));
		rc = call(p, &range, nonblock);
		if (rc < 0 && p->faithful)
			program_sleep(p, rng_between(&p->rng, 100 * MS, SEC));
	} while (rc < 0 && p->faithful);
	if (p->state == PROGRAM_HOLDING)
		use(p);
	if (p->state == PROGRAM_HOLDING)
		unlock(p);
	if (p->fd >= 0)
		close(p->fd);
	p->fd = -1;
	kernel_changed(p->host);
}

static void program_main(void *arg)
{
	struct program *p = arg;

	while (p->rounds-- > 0 || (p->busy && sim_now < faults_end)) {
		one_round(p);
		program_sleep(p, rng_between(&p->rng, 0, rng_chance(&p->rng, 200) ? 4 * SEC : 500 * MS));
	}
	program_kill(p, "done");
}

static struct program *program_new(struct host *host, int64_t start)
{
	struct program *p = &sim_programs[sim_program_count];

	if (sim_program_count == SIM_PROGRAMS)
		sim_fail("too many programs");
	*p = (struct program){.id = sim_program_count,
			      .host = host,
			      .boot = host->boot,
			      .pid = FIRST_PID + sim_program_count,
			      .fd = -1,
			      .sock = -1,
			      .rng = rng_of("program", (uint64_t)sim_program_count)};
	sim_program_count++;
	p->task = task_new(host, &p->rng, program_main, p);
	p->nap = ++naps;
	sim_at(start, wake_event, p, p->nap);
	return p;
}

void programs_start(int count)
{
	struct rng rng = rng_of("programs", 0), caught = rng_of("caught", 0);
	int64_t over = rng_between(&rng, 1, 8) * SEC;

	for (int i = 0; i < count; i++) {
		struct program *p =
			program_new(&sim_hosts[rng_between(&rng, 0, sim_host_count)], rng_between(&rng, 0, over));

		p->rounds = (int)rng_between(&rng, 1, 4);
		p->busy = rng_chance(&rng, 600);
		p->faithful = rng_chance(&rng, 500);
		p->converts = rng_chance(&rng, 300) || all_convert();
		p->caught = rng_chance(&caught, 300);
		if (faults_dropped('p', i))
			program_kill(p, "left out");
	}
}

/* On every host that runs, for every file: can it be locked, in both spaces? This also finds what dead hosts left. */
void programs_finish(void)
{
	for (int h = 0; h < sim_host_count; h++)
		for (int i = 0; i < 2 * SIM_FILES && sim_hosts[h].up; i++) {
			struct program *p =
				program_new(&sim_hosts[h], sim_now + rng_between(&sim_hosts[h].rng, 0, SEC));

			p->rounds = 1;
			p->final = p->faithful = true;
			p->file = i / 2;
			p->wants = whole_file;
			p->wants.space = i % 2;
			p->wants.mode = WIRE_EXCLUSIVE;
		}
}

bool programs_ended(void)
{
	for (int i = 0; i < sim_program_count; i++)
		if (sim_programs[i].state != PROGRAM_ENDED)
			return false;
	return true;
}
