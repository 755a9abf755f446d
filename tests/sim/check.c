/* What must hold after every step, whatever fails; and at the end, when no fault is active any more. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hiredis.h>
#include <utlist.h>

#include "keeper/callers/session.h"
#include "tests/sim/sim.h"

static bool clash(const struct store_range *a, const struct store_range *b)
{
	return a->space == b->space && (a->mode == WIRE_EXCLUSIVE || b->mode == WIRE_EXCLUSIVE) && a->from < b->to &&
	       b->from < a->to;
}

/* --- promise 1 and 3: no program runs that relies on a lock that another one has --- */

static void check_programs(void)
{
	for (int i = 0; i < sim_program_count; i++) {
		const struct program *a = &sim_programs[i];

		if (a->state != PROGRAM_HOLDING || a->frozen)
			continue;
		for (int j = 0; j < i; j++) {
			const struct program *b = &sim_programs[j];

			if (b->state == PROGRAM_HOLDING && !b->frozen && clash(&a->held, &b->held) &&
			    strcmp(program_file_name(a->file), program_file_name(b->file)) == 0)
				sim_fail("p%d (h%d) and p%d (h%d) both have %s and run", b->id, b->host->id, a->id,
					 a->host->id, program_file_name(a->file));
		}
	}
}

/* --- promise 2: a lease that a program relies on is not given back --- */

/* A probe has given it back, and the keeper does not know it so far (early.c). */
static bool is_returned(const struct lease *lease)
{
	return lease->slot != TABLE_NO_SLOT && table_state(lease_keeper(lease)->table, lease->slot) == TABLE_RETURNED;
}

static bool is_covered(const struct host *host, const struct program *p)
{
	const struct lease *lease, *next;
	int64_t at = p->held.from;
	bool further = true;

	while (at < p->held.to && further) {
		further = false;
		HASH_ITER (hh, host->k->leases, lease, next) {
			if (!lease_is_ours(lease->state) || is_returned(lease) || lease->range.space != p->held.space ||
			    lease->range.mode < p->held.mode || lease->range.from > at || lease->range.to <= at ||
			    strcmp(lease->lock->file->path, host->files[p->file]) != 0)
				continue;
			at = lease->range.to;
			further = true;
		}
	}
	return at >= p->held.to;
}

/* A lease that was lost is another matter: its holders are about to be killed. */
static void check_holders(void)
{
	for (int i = 0; i < sim_program_count; i++) {
		const struct program *p = &sim_programs[i];
		const struct host *host = p->host;

		if (p->state != PROGRAM_HOLDING || p->frozen || !host->k || !host->idle || host->k->lost.losing)
			continue;
		if (!is_covered(host, p))
			sim_fail("p%d has %s and runs, but h%d has no lease", i, program_file_name(p->file), host->id);
	}
}

/* --- promise 4: no two hosts are sure of leases that conflict --- */

static bool is_sure(const struct host *host, const struct lease *lease)
{
	/* A keeper that is suspended in the middle of a change is in no defined state. */
	return host->idle && !is_returned(lease) &&
	       (lease->state == LEASE_OPEN || lease->state == LEASE_DRAINING || lease->state == LEASE_PROBING ||
		lease->state == LEASE_WAITING || lease->state == LEASE_STOPPING) &&
	       !lease_member(lease)->deadline.expired && host_clock(host) < lease_member(lease)->deadline.at_ns;
}

static void check_pair(const struct host *a, const struct lease *mine, const struct host *b)
{
	const struct lease *other, *next;

	HASH_ITER (hh, b->k->leases, other, next)
		if (mine->lock->file != other->lock->file && is_sure(b, other) && clash(&mine->range, &other->range) &&
		    strcmp(mine->lock->file->name, other->lock->file->name) == 0)
			sim_fail("h%d (%.8s) and h%d (%.8s) are both sure of %s", a->id, mine->token, b->id,
				 other->token, mine->lock->file->name);
}

static void check_leases(void)
{
	const struct lease *lease, *next;

	for (int a = 0; a < sim_host_count; a++) {
		if (!sim_hosts[a].k)
			continue;
		HASH_ITER (hh, sim_hosts[a].k->leases, lease, next)
			for (int b = 0; b <= a && is_sure(&sim_hosts[a], lease); b++)
				if (sim_hosts[b].k)
					check_pair(&sim_hosts[a], lease, &sim_hosts[b]);
	}
}

void check_step(void)
{
	check_programs();
	check_holders();
	check_leases();
}

/* --- the store's own: conflicting leases, and the order of arrival --- */

struct entry {
	const char *token, *host, *file;
	struct store_range range;
	bool pass;
};

/* As server.c's epilogue shows an entry. */
static struct entry entry_of(const redisReply *row)
{
	return (struct entry){
		.token = row->element[0]->str,
		.host = row->element[1]->str,
		.file = row->element[2]->str,
		.range = {.space = strcmp(row->element[3]->str, "record") == 0,
			  .mode = strcmp(row->element[4]->str, "exclusive") == 0,
			  .from = strtoll(row->element[5]->str, NULL, 10),
			  .to = strtoll(row->element[6]->str, NULL, 10)},
		.pass = row->element[8]->str[0] == '1',
	};
}

static bool entries_clash(const struct entry *a, const struct entry *b)
{
	return (strcmp(a->host, b->host) != 0 || strcmp(a->file, b->file) != 0) && clash(&a->range, &b->range);
}

/* The waiters of each name after the previous script: their tokens, in order. */
#define MAX_WAITING 30 /* more than these few programs can need: one asks again and again */
static struct waited {
	char name[16];
	unsigned count;
	char tokens[MAX_WAITING][STORE_TOKEN_BYTES];
	bool pass[MAX_WAITING];       /* it need not wait for those that came first */
} waited[SIM_NAMES], held[SIM_NAMES]; /* and the owner */

/* The last grant of the name whose rule has at_least_ms, in each space: no other may follow before the rest is over,
 * unless no program had a lock by it, or an operator took it away. */
static struct rest {
	int64_t at;
	char token[STORE_TOKEN_BYTES]; /* empty: it is not known when the rest began */
	char host[8];
	bool used; /* a program had a lock by it */
} rests[WIRE_SPACES];

void check_forget(int shard)
{
	const struct config_store store = {.shards = host_shards()};

	for (int i = 0; i < SIM_NAMES; i++) {
		if (shard >= 0 && config_shard(&store, waited[i].name) != (unsigned)shard)
			continue;
		if (host_at_least_ms_of(waited[i].name))
			memset(rests, 0, sizeof(rests));
		waited[i].count = held[i].count = 0;
	}
}

/* The fences under which programs had locks, and the last ones of each host and range. */
#define MAX_FENCES 256
static struct fence {
	const char *name;
	int host;
	struct store_range range;
	uint64_t number;
} fences[MAX_FENCES];
static bool clock_stepped; /* so a store that lost its memory may begin with smaller fences */

void check_clock_stepped(void)
{
	memset(rests, 0, sizeof(rests));
	clock_stepped = true;
}

/* The largest fence of the host's leases that cover this lock. 0: it is not known. */
static uint64_t fence_of(const struct program *p)
{
	const struct lease *lease, *next;
	uint64_t largest = 0;

	if (!p->host->k)
		return 0;
	HASH_ITER (hh, p->host->k->leases, lease, next)
		if (lease_is_ours(lease->state) && lease->fence > largest && lease->range.space == p->held.space &&
		    lease->range.mode >= p->held.mode && lease->range.from <= p->held.from &&
		    lease->range.to >= p->held.to && strcmp(lease->lock->file->path, p->host->files[p->file]) == 0)
			largest = lease->fence;
	return largest;
}

/* A later holder has a larger fence than those that other hosts had before. */
static void check_fence(const struct program *p)
{
	const char *name = program_file_name(p->file);
	uint64_t number = fence_of(p);
	struct fence *f;

	for (f = fences; number && !clock_stepped && f < fences + MAX_FENCES && f->name; f++) {
		if (strcmp(f->name, name) != 0)
			continue;
		if (f->host != p->host->id && clash(&f->range, &p->held) && f->number >= number)
			sim_fail("p%d (h%d) has %s with fence %llu, and h%d had %llu before", p->id, p->host->id, name,
				 (unsigned long long)number, f->host, (unsigned long long)f->number);
		if (f->host == p->host->id && memcmp(&f->range, &p->held, sizeof(f->range)) == 0)
			break;
	}
	if (number && !clock_stepped && f < fences + MAX_FENCES)
		*f = (struct fence){.name = name, .host = p->host->id, .range = p->held, .number = number};
}

static void check_rest(const char *name, const struct entry *granted, bool put_back)
{
	int64_t ms = host_at_least_ms_of(name);
	struct rest *rest = &rests[granted->range.space];

	if (!ms)
		return;
	if (*rest->token && rest->used && !operator_broke(rest->token) &&
	    sim_now - rest->at < (ms - 1) * MS) /* the server counts whole ms */
		sim_fail("%s: %.8s of %s was granted %lld ms after %.8s of %s, within the rest of %lld ms", name,
			 granted->token, granted->host, (long long)((sim_now - rest->at) / MS), rest->token, rest->host,
			 (long long)ms);
	*rest = (struct rest){.at = sim_now};
	snprintf(rest->token, sizeof(rest->token), "%s", put_back ? "" : granted->token);
	snprintf(rest->host, sizeof(rest->host), "%s", granted->host);
}

void check_new_lock(const struct program *p)
{
	struct rest *rest = &rests[p->held.space];

	check_fence(p);
	if (!host_at_least_ms_of(program_file_name(p->file)) || !*rest->token)
		return;
	if (strtol(rest->host + 1, NULL, 10) != p->host->id || rest->used)
		sim_fail("p%d (h%d) has %s by no grant of its own: the last was %.8s of %s%s", p->id, p->host->id,
			 program_file_name(p->file), rest->token, rest->host, rest->used ? ", and is used" : "");
	rest->used = true;
}

static struct waited *waited_for(const char *name)
{
	for (int i = 0; i < SIM_NAMES; i++)
		if (!*waited[i].name || strcmp(waited[i].name, name) == 0) {
			snprintf(waited[i].name, sizeof(waited[i].name), "%s", name);
			return &waited[i];
		}
	sim_fail("a lock name that nobody uses: %s", name);
}

static unsigned place(const struct waited *w, const char *token)
{
	unsigned i = 0;

	while (i < w->count && strcmp(w->tokens[i], token) != 0)
		i++;
	return i;
}

/* If two requests conflict, and both waited or one still waits, the request that came first must be granted first. */
static void check_order(const struct waited *before, const struct entry *granted, const redisReply *waiters,
			const char *pass_token)
{
	unsigned mine = place(before, granted->token);

	if ((mine < before->count && before->pass[mine]) || strcmp(granted->token, pass_token) == 0)
		return;
	for (size_t i = 0; i < waiters->elements; i++) {
		struct entry w = entry_of(waiters->element[i]);
		unsigned at = place(before, w.token);

		if (at < before->count && at < mine && entries_clash(&w, granted))
			sim_fail("%s: %.8s of %s was granted before %.8s of %s, which waited first", before->name,
				 granted->token, granted->host, w.token, w.host);
	}
}

void check_lock(const char *name, const redisReply *leases, const redisReply *waiters, const char *pass_token,
		bool puts_back)
{
	struct waited *before = waited_for(name), *had = &held[before - waited];

	if (leases->elements > MAX_WAITING || waiters->elements > MAX_WAITING)
		sim_fail("%s: %zu leases, and %zu who wait", name, leases->elements, waiters->elements);
	for (size_t i = 0; i < leases->elements; i++) {
		struct entry a = entry_of(leases->element[i]);

		for (size_t j = 0; j < i; j++) {
			struct entry b = entry_of(leases->element[j]);

			if (entries_clash(&a, &b))
				sim_fail("%s: the store has leases that clash: %.8s of %s and %.8s of %s", name,
					 b.token, b.host, a.token, a.host);
		}
		if (place(had, a.token) < had->count)
			continue;
		check_order(before, &a, waiters, pass_token);
		check_rest(name, &a, puts_back);
	}
	had->count = before->count = 0;
	for (size_t i = 0; i < leases->elements; i++)
		snprintf(had->tokens[had->count++], STORE_TOKEN_BYTES, "%s", leases->element[i]->element[0]->str);
	for (size_t i = 0; i < waiters->elements; i++) {
		before->pass[before->count] = entry_of(waiters->element[i]).pass;
		snprintf(before->tokens[before->count++], STORE_TOKEN_BYTES, "%s",
			 waiters->element[i]->element[0]->str);
	}
}

/* --- at the end --- */

const char *check_range(const struct store_range *range)
{
	static char texts[2][80];
	static unsigned next;
	char *text = texts[next++ % 2];

	snprintf(text, sizeof(texts[0]), "%s %s [%lld, %lld)", range->space == WIRE_FLOCK ? "flock" : "record",
		 range->mode == WIRE_SHARED ? "shared" : "exclusive", (long long)range->from, (long long)range->to);
	return text;
}

void check_describe(void)
{
	const struct lease *lease, *next;

	for (int h = 0; h < sim_host_count; h++) {
		const struct host *host = &sim_hosts[h];

		printf("  h%d: %s, clock %.6f, deadline %.6f%s\n", h,
		       !host->up ? "down"
		       : host->k ? "up"
				 : "no keeper",
		       (double)host_clock(host) / SEC, host->k ? (double)host->k->members[0].deadline.at_ns / SEC : 0,
		       host->k && host->k->members[0].deadline.expired ? ", expired" : "");
		if (!host->k)
			continue;
		HASH_ITER (hh, host->k->leases, lease, next)
			printf("    %s %.8s %s %s recall %d requests %u%s\n", lease->lock->file->name, lease->token,
			       lease_state_name(lease->state), check_range(&lease->range), lease->recalled.level,
			       lease->requests, lease->probed.probe ? " probe" : "");
	}
	for (int i = 0; i < sim_program_count; i++) {
		const struct program *p = &sim_programs[i];
		const struct store_range *r = p->state == PROGRAM_CALLING ? &p->wants : &p->held;

		if (p->state != PROGRAM_ENDED)
			printf("  p%d: h%d %s, %s %s%s%s%s\n", i, p->host->id, program_file_name(p->file),
			       p->state == PROGRAM_HOLDING   ? "holds"
			       : p->state == PROGRAM_CALLING ? "wants"
							     : "idle",
			       check_range(r), p->frozen ? ", frozen" : "", p->waits_for_lock ? ", in the kernel" : "",
			       p->receives ? ", waits for the keeper" : "");
	}
	server_describe();
}

static void check_undisturbed(void)
{
	for (int i = 0; i < sim_host_count; i++)
		if (sim_hosts[i].frozen || sim_hosts[i].killed)
			sim_fail("h%d: it could renew its leases, but programs were frozen or killed", i);
}

void check_end(void)
{
	for (int i = 0; i < sim_host_count; i++) {
		const struct host *host = &sim_hosts[i];

		if (!host->up)
			continue;
		if (!host->k)
			sim_fail("h%d has no keeper", i);
		if (host->k->leases)
			sim_fail("h%d has leases that nobody uses", i);
		if (host->k->sessions->all)
			sim_fail("h%d has sessions of programs that have ended", i);
		if (host->k->files)
			sim_fail("h%d has files that nobody uses", i);
		for (uint32_t s = 0; s < host->table.head->used; s++)
			if (table_state(&host->table, s) != TABLE_FREE)
				sim_fail("h%d: slot %u of the table is taken by nobody", i, s);
	}
	server_expect_empty();
	if (faults_mild)
		check_undisturbed();
}
