/*
 * Programs that lock, with the shim's own code for it (shim/acquire.c). The socket to the keeper is a real one; only
 * waiting for an answer is the scheduler's.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "shim/acquire.h"
#include "shim/sys.h"
#include "tests/sim/sim.h"
#include "wire/place.h"

#define FIRST_PID 2000
#define FOREVER   INT64_MAX

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

void program_wake(struct program *p, uint64_t nap)
{
	if (p->state == PROGRAM_ENDED || p->nap != nap)
		return;
	p->wakes = p->frozen;
	if (p->frozen)
		return;
	p->nap = 0;
	task_resume(p->task);
}

static void wake_event(void *arg, uint64_t nap)
{
	program_wake(arg, nap);
}

static void wake_soon(struct program *p)
{
	if (p->nap)
		sim_after(rng_delay(&p->rng, 50 * MS), wake_event, p, p->nap);
}

void program_sleep(struct program *p, int64_t ns)
{
	p->nap = ++naps;
	if (ns != FOREVER)
		sim_after(ns, wake_event, p, p->nap);
	task_yield();
}

void program_freeze(struct program *p, bool frozen)
{
	if (p->frozen == frozen)
		return;
	p->frozen = frozen;
	sim_trace("p%d: %s", p->id, frozen ? "frozen" : "goes on");
	if (frozen)
		p->host->frozen++;
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
	program_sleep(p, FOREVER);
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

static bool readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 0) > 0;
}

void programs_answered(struct host *host)
{
	for (int i = 0; i < sim_program_count; i++) {
		struct program *p = &sim_programs[i];

		if (p->host == host && p->receives && p->sock >= 0 && readable(p->sock))
			wake_soon(p);
	}
}

/* --- shim/ask.h --- */

static int connect_keeper(struct program *p)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX}, name = {.sun_family = AF_UNIX};

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%.90s/%s", p->host->run, WIRE_SOCKET_NAME);
	p->sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (p->sock < 0)
		return -errno;
	/* Its name tells the keeper's machine who asks (clocks.c). */
	snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "dflock-sim-%d-%d-%llu", (int)getpid(), (int)p->pid,
		 (unsigned long long)++naps);
	if (bind(p->sock, (struct sockaddr *)&name, sizeof(name)) != 0)
		sim_fail("bind: %s", strerror(errno));
	if (connect(p->sock, (struct sockaddr *)&addr, sizeof(addr)) != 0) {
		int err = errno;

		close(p->sock);
		p->sock = -1;
		return -err;
	}
	loop_poll(p->host);
	return 0;
}

int ask_open(struct ask *ask, const struct protect_by *by, const struct intent *want, int fd, int attempt)
{
	struct program *p = program_of_task();
	int rc;

	(void)by;
	program_sleep(p, rng_delay(&p->rng, 20 * MS));
	*ask = (struct ask){.sock = -1, .fd = fd, .nonblock = want->nonblock};
	ask->deadline_ns = want->nonblock ? sys_clock_ns(CLOCK_MONOTONIC) + ASK_PATIENCE_NS : 0;
	rc = connect_keeper(p);
	if (rc < 0) { /* its parent starts another one */
		program_sleep(p, 50 * MS << (attempt < 3 ? attempt : 3));
		rc = connect_keeper(p);
	}
	ask->sock = p->sock;
	return rc < 0 ? -ECONNRESET : 0;
}

static int send_question(struct ask *ask, struct wire_request *request, const struct protect_by *by, int fd)
{
	struct program *p = program_of_task();
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {.bytes = {0}};
	struct iovec iov = {.iov_base = request, .iov_len = sizeof(*request)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	request->magic = WIRE_MAGIC;
	request->version = WIRE_VERSION;
	request->size = sizeof(*request);
	request->config = by->id;
	if (fd >= 0) {
		msg.msg_control = control.bytes;
		msg.msg_controllen = sizeof(control.bytes);
		control.align = (struct cmsghdr){
			.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
		memcpy(CMSG_DATA(&control.align), &fd, sizeof(int));
	}
	request->sent_ns = sys_clock_ns(CLOCK_BOOTTIME);
	program_sleep(p, rng_delay(&p->rng, 20 * MS));
	if (sendmsg(ask->sock, &msg, MSG_NOSIGNAL) < 0 && errno != EPIPE && errno != ECONNRESET)
		sim_fail("p%d cannot send: %s", p->id, strerror(errno));
	loop_poll(p->host);
	return 0;
}

int ask_send(struct ask *ask, const struct protect_by *by, enum wire_op op, const struct intent *want, bool have)
{
	struct wire_request request = {
		.op = (uint8_t)op,
		.space = (uint8_t)want->space,
		.mode = (uint8_t)want->mode,
		.flags = (uint8_t)((want->nonblock ? WIRE_F_NONBLOCK : 0) | (have ? WIRE_F_HAVE : 0)),
		.owner = (uint8_t)want->owner,
		.from = want->from,
		.to = want->to,
	};

	return send_question(ask, &request, by, ask->fd);
}

int ask_before(struct ask *ask, const struct protect_by *by, int64_t from)
{
	struct wire_request request = {.op = WIRE_BEFORE, .space = WIRE_RECORD, .from = from, .to = WIRE_EOF};

	return send_question(ask, &request, by, -1);
}

int ask_receive(struct ask *ask, struct wire_reply *reply)
{
	struct program *p = program_of_task();

	for (;;) {
		ssize_t n = recv(ask->sock, reply, sizeof(*reply), MSG_TRUNC | MSG_DONTWAIT);

		if (n == sizeof(*reply))
			return 0;
		if (n == 0 || (n < 0 && errno == ECONNRESET))
			return -ECONNRESET;
		if (n > 0 || errno != EAGAIN)
			sim_fail("p%d got an answer of %zd bytes: %s", p->id, n, strerror(errno));
		if (p->interrupted && !ask->nonblock) {
			p->interrupted = false;
			return -EINTR;
		}
		p->receives = true;
		if (ask->nonblock)
			program_sleep(p, 31 * SEC);
		else
			program_sleep(p, FOREVER);
		p->receives = false;
		if (ask->nonblock && sys_clock_ns(CLOCK_MONOTONIC) > ask->deadline_ns)
			return -ENOLCK;
	}
}

void ask_close(struct ask *ask)
{
	struct program *p = program_of_task();

	if (ask->sock < 0)
		return;
	program_sleep(p, rng_delay(&p->rng, 20 * MS));
	close(ask->sock);
	ask->sock = p->sock = -1;
	loop_poll(p->host);
}

/* --- shim/protect.h --- */

bool protect_is_kernels(int fd)
{
	(void)fd;
	return false;
}

enum protect protect_ask(int fd, struct protect_look *look)
{
	struct host *host = program_of_task()->host;

	(void)fd;
	look->by = (struct protect_by){.config = host->config, .euid = geteuid()};
	place_config_id(host->config, &look->by.id);
	snprintf(look->by.dir, sizeof(look->by.dir), "%.90s", host->run);
	if (!look->page && rng_chance(&program_of_task()->rng, 500))
		look->page = host_page(host);
	return PROTECT_ASK;
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
	p->state = PROGRAM_CALLING;
	p->wants = *range;
	p->interrupted = false;
	sim_trace("p%d: h%d %s: %s %s%s [%lld, %lld)", p->id, p->host->id, program_file_name(p->file),
		  range->space == WIRE_FLOCK ? "flock" : "record", range->mode == WIRE_SHARED ? "shared" : "exclusive",
		  nonblock ? ", without waiting" : "", (long long)range->from, (long long)range->to);
	rc = range->space == WIRE_FLOCK ? acquire_flock(p->fd, op, &want, &look) : acquire_record(p->fd, &want, &look);
	sim_trace("p%d: %s", p->id, rc == 0 ? "has it" : strerror(-rc));
	if (rc == 0) {
		p->state = PROGRAM_HOLDING;
		p->held = *range;
		p->grants++;
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

static struct store_range choose(struct program *p)
{
	struct store_range range = whole_file;
	struct rng world = rng_of("world", 1);

	range.space = rng_chance(&p->rng, (unsigned)rng_between(&world, 0, 3) * 300) ? WIRE_RECORD : WIRE_FLOCK;
	range.mode = rng_chance(&p->rng, (unsigned)rng_between(&world, 2, 11) * 100) ? WIRE_EXCLUSIVE : WIRE_SHARED;
	if (range.space == WIRE_RECORD && rng_chance(&p->rng, 800)) {
		range.from = rng_between(&p->rng, 0, 4) * 10;
		range.to = rng_chance(&p->rng, 200) ? WIRE_EOF : range.from + 10 * rng_between(&p->rng, 1, 4);
	}
	return range;
}

/* It holds something: goes on in one of the ways in which programs do. */
static void use(struct program *p)
{
	struct store_range other = p->held;

	program_sleep(p, rng_chance(&p->rng, p->final ? 0 : 300) ? rng_between(&p->rng, 0, 8 * SEC) : rng_between(&p->rng, 0, 300 * MS));
	if (!p->converts || !rng_chance(&p->rng, 300))
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

	p->file = p->final ? p->file : (int)rng_between(&p->rng, 0, SIM_FILES);
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
	*p = (struct program){.id = sim_program_count, .host = host, .boot = host->boot, .pid = FIRST_PID + sim_program_count,
			      .fd = -1, .sock = -1, .rng = rng_of("program", (uint64_t)sim_program_count)};
	sim_program_count++;
	p->task = task_new(host, &p->rng, program_main, p);
	p->nap = ++naps;
	sim_at(start, wake_event, p, p->nap);
	return p;
}

void programs_start(int count)
{
	struct rng rng = rng_of("programs", 0);
	int64_t over = rng_between(&rng, 1, 8) * SEC;

	for (int i = 0; i < count; i++) {
		struct program *p = program_new(&sim_hosts[rng_between(&rng, 0, sim_host_count)], rng_between(&rng, 0, over));

		p->rounds = (int)rng_between(&rng, 1, 4);
		p->busy = rng_chance(&rng, 600);
		p->faithful = rng_chance(&rng, 500);
		p->converts = rng_chance(&rng, 300);
		if (faults_dropped('p', i))
			program_kill(p, "left out");
	}
}

/* On every host that runs, for every file: can it be locked, in both spaces? This also finds what dead hosts left. */
void programs_finish(void)
{
	for (int h = 0; h < sim_host_count; h++)
		for (int i = 0; i < 2 * SIM_FILES && sim_hosts[h].up; i++) {
			struct program *p = program_new(&sim_hosts[h], sim_now + rng_between(&sim_hosts[h].rng, 0, SEC));

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
