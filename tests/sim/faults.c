/* Which faults happen in this run, and when: drawn from the seed before the run begins. Each fault has random numbers
 * of its own. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim.h"

#define BEGIN      (4 * SEC)  /* the store's first grace is over about then */
#define END        (20 * SEC) /* no fault happens any more */
#define MAX_FAULTS 10
#define FAR_STEP_S 28800 /* of the server's clock */

bool faults_mild;
int64_t faults_end = END;
const char *faults_drop = "";
static unsigned hiccups;

struct fault {
	int id;
	struct rng rng;
	struct host *host;
	int64_t ns; /* how long, or how far */
};

/* No fault lasts longer than that. */
static int64_t lasts(int64_t ns) { return sim_now + ns < END ? ns : END > sim_now ? END - sim_now : 0; }

bool faults_dropped(char kind, int number)
{
	char word[16];
	size_t len = (size_t)snprintf(word, sizeof(word), "%c%d", kind, number);

	for (const char *at = strstr(faults_drop, word); at; at = strstr(at + 1, word))
		if ((at == faults_drop || at[-1] == ',') && (!at[len] || at[len] == ','))
			return true;
	return false;
}

unsigned faults_hiccups(void) { return sim_now < END ? hiccups : 0; }

/* --- a host --- */

static void kill_keeper(struct fault *f)
{
	if (!f->host->orphaned)
		host_kill_keeper(f->host, "by kill -9");
}

static void kill_parent(void *arg, uint64_t number) { host_kill_parent(&sim_hosts[number]); }

/* In the middle of something: at one of the next writes to its table of leases, the store, or a program. */
static void kill_inside(struct fault *f)
{
	f->host->crashing = f->host->keeper != NULL && !f->host->orphaned;
	f->host->crash_countdown = (int)rng_between(&f->rng, 0, 40);
	sim_trace("h%d: the keeper is to die soon", f->host->id);
}

static void stop_keeper(struct fault *f)
{
	if (f->host->orphaned)
		return;
	sim_trace("h%d: the keeper stops for %.3f s", f->host->id, (double)f->ns / SEC);
	f->host->stopped_until = sim_now + f->ns;
}

static void boot_again(void *arg, uint64_t number)
{
	struct host *host = arg;

	if (!host->up)
		host_boot(host);
}

static void machine(struct fault *f)
{
	if (!f->host->up)
		return;
	host_die(f->host);
	if (rng_chance(&f->rng, 600))
		sim_after(rng_between(&f->rng, 0, 6 * SEC), boot_again, f->host, 0);
}

/* --- its programs --- */

static struct program *victim(struct fault *f)
{
	struct program *p = &sim_programs[rng_between(&f->rng, 0, sim_program_count)];

	return p->state == PROGRAM_ENDED ? NULL : p;
}

static void kill_program(struct fault *f)
{
	struct program *p = victim(f);

	if (p)
		program_kill(p, "by kill -9");
}

static void interrupt(struct fault *f)
{
	struct program *p = victim(f);

	if (!p || (!p->receives && !p->waits_for_lock))
		return;
	sim_trace("p%d: a signal", p->id);
	p->interrupted = true;
	program_wake(p, p->nap);
}

/* --- the network --- */

static void cut(struct fault *f)
{
	int64_t which = rng_between(&f->rng, 0, 4);

	sim_trace("h%d: nothing gets %s for %.3f s", f->host->id,
		  which == 0   ? "out"
		  : which == 1 ? "in"
			       : "through",
		  (double)f->ns / SEC);
	if (which != 1)
		f->host->cut_up_until = sim_now + lasts(f->ns);
	if (which != 0)
		f->host->cut_down_until = sim_now + lasts(f->ns);
}

static void cut_again(void *arg, uint64_t number)
{
	if (sim_now < END)
		cut(arg);
}

/* Off and on: connections are made anew, and what was sent on the old ones comes late. */
static void flap(struct fault *f)
{
	int64_t at = 0;

	for (int i = 0; i < 3; i++) {
		sim_after(at, cut_again, f, 0);
		at += f->ns + rng_between(&f->rng, 0, 2 * SEC);
	}
}

static void cut_all(struct fault *f)
{
	sim_trace("nobody reaches the store for %.3f s", (double)f->ns / SEC);
	for (int i = 0; i < sim_host_count; i++)
		sim_hosts[i].cut_up_until = sim_hosts[i].cut_down_until = sim_now + f->ns;
}

static void reset(struct fault *f)
{
	sim_trace("h%d: its connections break", f->host->id);
	net_reset(f->host);
}

/* --- the server --- */

static void stop_server(struct fault *f)
{
	sim_trace("store: stops for %.3f s", (double)f->ns / SEC);
	server_stopped_until = sim_now + f->ns;
}

static void step_clock(struct fault *f)
{
	/* In seconds. From one end to the other is less than dead_ms, for which it may count (docs/store.md), unless d0 is
	 * dropped: then exclusion is promised only while holders hear questions and their answers come in time. */
	int64_t most = faults_dropped('d', 0) ? FAR_STEP_S : host_dead_ms() / 3000;
	int64_t by = rng_between(&f->rng, -most, most) * SEC;

	sim_trace("store: its clock is wrong by %.0f s from now on", (double)by / SEC);
	server_set_clock(by);
}

static void flush(struct fault *f)
{
	sim_trace("store: FLUSHALL");
	server_flush();
}

static void flush_again(void *arg, uint64_t number)
{
	if (sim_now < END)
		flush(arg);
}

/* A host is cut off from before its store loses its memory until it has done so again. */
static void flush_twice(struct fault *f)
{
	f->ns = rng_between(&f->rng, 5 * SEC, 13 * SEC);
	cut(f);
	sim_after(rng_between(&f->rng, 0, f->ns / 2), flush_again, f, 0);
	sim_after(rng_between(&f->rng, f->ns / 2, f->ns), flush_again, f, 0);
}

static void save(void *arg, uint64_t number)
{
	sim_trace("store: takes a snapshot");
	server_save();
}

enum memory { KEEPS, FORGETS, OLD };

static void server_back(void *arg, uint64_t memory)
{
	if (memory == FORGETS)
		server_flush();
	if (memory == OLD)
		server_restore();
	server_new_identity();
	server_up = true;
	sim_trace("store: starts %s", memory == KEEPS ? "with what it had"
				      : memory == OLD ? "from an old snapshot"
						      : "empty");
}

static void restart(struct fault *f)
{
	if (!server_up)
		return;
	sim_trace("store: dies");
	server_up = false;
	net_reset_all();
	sim_after(rng_between(&f->rng, 0, f->ns), server_back, NULL,
		  (uint64_t)(rng_chance(&f->rng, 500) ? OLD : rng_between(&f->rng, KEEPS, OLD)));
}

/* --- the plan --- */

/* Faults without a weight in the second column may keep a host from renewing its leases in time. */
static const struct {
	void (*fn)(struct fault *fault);
	unsigned weight, mild_weight;
	int64_t most; /* how long it lasts */
} kinds[] = {
	{kill_keeper, 3, 1, 0},   {kill_inside, 4, 2, 0},       {stop_keeper, 3, 0, 7 * SEC}, {machine, 2, 0, 0},
	{kill_program, 2, 2, 0},  {interrupt, 2, 2, 0},         {cut, 5, 0, 8 * SEC},         {cut_all, 2, 0, 8 * SEC},
	{reset, 3, 1, 0},         {stop_server, 2, 0, 6 * SEC}, {step_clock, 2, 2, 0},        {flush, 3, 0, 0},
	{restart, 5, 0, 5 * SEC}, {flush_twice, 2, 0, 0},       {flap, 3, 0, 5 * SEC},
};
static unsigned weight_of(size_t kind) { return faults_mild ? kinds[kind].mild_weight : kinds[kind].weight; }

static void strike(void *arg, uint64_t kind)
{
	struct fault *f = arg;

	kinds[kind].fn(f);
}

static size_t choose(struct rng *rng)
{
	unsigned sum = 0;
	int64_t at;
	size_t kind = 0;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		sum += weight_of(i);
	at = rng_between(rng, 0, sum);
	while (at >= weight_of(kind))
		at -= weight_of(kind++);
	return kind;
}

static void plan_one(int id)
{
	static struct fault faults[MAX_FAULTS];
	struct fault *f = &faults[id];
	size_t kind;
	int64_t when;

	*f = (struct fault){.id = id, .rng = rng_of("fault", (uint64_t)id)};
	kind = choose(&f->rng);
	when = rng_between(&f->rng, BEGIN, END);
	f->host = &sim_hosts[rng_between(&f->rng, 0, sim_host_count)];
	f->ns = rng_between(&f->rng, 0, rng_chance(&f->rng, 500) ? kinds[kind].most : kinds[kind].most / 6);
	if (when + f->ns > END)
		f->ns = END - when;
	if (!faults_dropped('f', id))
		sim_at(when, strike, f, kind);
}

/* Of random numbers of their own, so that seeds which found something without them still mean the same (drop k0). */
static void plan_parents(int others)
{
	struct rng rng = rng_of("parents", 0);
	int count = others && rng_chance(&rng, 400) ? (int)rng_between(&rng, 1, 4) : 0;

	for (int i = 0; i < count && !faults_dropped('k', 0); i++)
		sim_at(rng_between(&rng, BEGIN, END), kill_parent, NULL,
		       (uint64_t)rng_between(&rng, 0, sim_host_count));
}

/* --- one shard alone --- */

static void flush_shard(void *arg, uint64_t shard)
{
	sim_trace("store: shard %u forgets all", (unsigned)shard);
	server_flush_shard((unsigned)shard);
}

static void stop_shard(void *arg, uint64_t shard)
{
	struct rng rng = rng_of("stopped shard", (uint64_t)sim_now);

	server_shard_stopped_until[shard] = sim_now + lasts(rng_between(&rng, 0, 8 * SEC));
	sim_trace("store: shard %u stops for %.3f s", (unsigned)shard,
		  (double)(server_shard_stopped_until[shard] - sim_now) / SEC);
}

/* Of random numbers of their own, too (drop m0: no shards). */
static void plan_shards(int others)
{
	struct rng rng = rng_of("shard", 0);
	int count = others && host_shards() > 1 ? (int)rng_between(&rng, 0, 6) : 0;

	for (int i = 0; i < count; i++)
		sim_at(rng_between(&rng, BEGIN, END), rng_chance(&rng, 400) ? flush_shard : stop_shard, NULL,
		       (uint64_t)rng_between(&rng, 0, SIM_SHARDS));
}

static void no_more(void *arg, uint64_t number)
{
	net_loss = 0;
	net_slow = false;
	for (int i = 0; i < sim_host_count; i++)
		sim_hosts[i].crashing = false;
	sim_trace("nothing breaks any more");
	/* Some machines are dead for good. But two must live, so that each asks for all that the other one has: a lease
	 * that a keeper no longer knows of is given back when another host wants it. */
	for (int i = 0, down = 0; i < sim_host_count; i++) {
		down += !sim_hosts[i].up;
		if (!sim_hosts[i].up && down > sim_host_count - 2)
			host_boot(&sim_hosts[i]);
	}
}

void faults_plan(void)
{
	struct rng rng = rng_of("faults", 0);
	int count = rng_chance(&rng, 80) ? 0 : (int)rng_between(&rng, 1, MAX_FAULTS + 1);

	net_loss = rng_chance(&rng, 700) ? 0 : rng_chance(&rng, 500) ? 50 : 500;
	hiccups = rng_chance(&rng, 600) ? 0 : rng_chance(&rng, 500) ? 1 : 4;
	faults_mild = !count || rng_chance(&rng, 250);
	net_slow = !faults_mild && rng_chance(&rng, 300) && !faults_dropped('s', 0);
	if (faults_mild)
		hiccups = 0;
	if (!count)
		net_loss = 0;
	if (faults_dropped('l', 0))
		net_loss = 0;
	if (faults_dropped('h', 0))
		hiccups = 0;
	for (int i = 0; i < count; i++)
		plan_one(i);
	for (int i = 0; i < 6 && count; i++)
		sim_at(rng_between(&rng, BEGIN, END), save, NULL, 0);
	plan_parents(count);
	if (!faults_mild)
		plan_shards(count);
	sim_at(END, no_more, NULL, 0);
}
