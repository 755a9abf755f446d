/*
 * See breaking.h. One timer looks at all that is under way, so nothing here depends on who hears of a change of state.
 *
 * Why no second holder. Until ENDING nothing was given up: the lease is an ordinary one that is closed. In ENDING the
 * slot says "lost", and the parent ends every process that has a kernel lock in the lease's range. No process can come
 * to rely on the lock after the parent has looked: the page does not show the lease, no caller was granted since
 * BREAKING, and the pins from before are over. The release is sent when the parent has freed the slot: it frees it
 * after it has sent SIGKILL to all of them while they were stopped.
 *
 *   the keeper dies in BREAKING   the table says "held": the next keeper takes the lease up as any other
 *   ... in ENDING                 the parent, or the next one, ends the holders. The next keeper does not know the
 *                                 token, and releases it when another host, or an operator, wants the lease (host.c,
 *                                 breaking_far.c), but not before the parent is done
 *   the parent dies in ENDING     the next parent finds the slot, and ends the holders
 *   the store goes away           before DOOMED the lease stays; after it, the release is sent until it is done
 */
#include "keeper/leases/breaking.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/clock.h"
#include "keeper/leases/breaking_look.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/queue.h"
#include "keeper/leases/waiters.h"
#include "keeper/log.h"

#define BREAKING_LOOK_MS 5

enum breaking_phase {
	BREAKING_CLOSES, /* until the lease is closed and has no pin */
	BREAKING_LOOKS,  /* a worker finds the holders */
	BREAKING_LOOKED,
	BREAKING_ENDS,    /* the parent ends them */
	BREAKING_RETURNS, /* the release is on its way */
};

struct breaking {
	uint64_t number, fence, limit;
	struct breaking_asker asker;
	char token[STORE_TOKEN_BYTES];
	enum breaking_phase phase;
	struct breaking_found found;
	bool answered;
	bool allowed; /* the asker is root or the keeper's user, or a first look has shown that all that would end is its own */
	uint32_t slot; /* in the table, with its generation: BREAKING_ENDS */
	uint64_t generation;
	int64_t until_ns;
	struct breaking *prev, *next;
};

static bool breaking_is_trusted(const struct breaking_asker *asker)
{
	return asker->uid == 0 || asker->uid == geteuid();
}

/* --- the end --- */

static void breaking_tell(struct keeper *k, const struct breaking_asker *asker, enum store_broken how, pid_t pid)
{
	store_tell(k->store, asker->host,
		   &(struct store_message){
			   .kind = STORE_MSG_BROKEN, .question = asker->question, .broken = how, .pid = pid});
}

static void breaking_answer(struct keeper *k, struct breaking *b, enum store_broken how, pid_t pid)
{
	if (b->answered)
		return;
	b->answered = true;
	if (*b->asker.host)
		breaking_tell(k, &b->asker, how, pid);
	else
		k->queue.news->broken(k, b->number, how, pid);
}

static void breaking_free(struct keeper *k, struct breaking *b)
{
	DL_DELETE(k->breakings.all, b);
	k->breakings.count--;
	free(b);
}

static void breaking_end(struct keeper *k, struct breaking *b, enum store_broken how, pid_t pid)
{
	breaking_answer(k, b, how, pid);
	breaking_free(k, b);
}

/* The lease stays as it was before. */
static void breaking_spare(struct keeper *k, struct breaking *b, struct lease *lease, enum store_broken how, pid_t pid)
{
	if (lease && lease->state == LEASE_BREAKING)
		queue_raise(lease, LEASE_EV_SPARED);
	breaking_end(k, b, how, pid);
}

/* --- the steps --- */

/* A lease that is open, and came after the operator had looked: its holders have kernel locks in the same range. */
static bool breaking_has_younger(const struct breaking *b, const struct lease *lease)
{
	const struct lease *other;

	DL_FOREACH (lease->lock->leases, other)
		if (other != lease && lease_is_ours(other->state) && other->fence > b->limit &&
		    range_overlaps(&other->range, &lease->range))
			return true;
	return false;
}

static void breaking_looked(struct keeper *k, uint64_t number, const struct breaking_found *found)
{
	struct breaking *b;

	DL_FOREACH (k->breakings.all, b)
		if (b->number == number && b->phase == BREAKING_LOOKS) {
			b->found = *found;
			b->phase = BREAKING_LOOKED;
		}
}

static void breaking_closes(struct breaking *b, struct lease *lease)
{
	if (lease_is_part(lease) || lease->split.running || lease->state == LEASE_SHRINKING)
		return;    /* that ends soon */
	if (!b->allowed) { /* a user must not even close another one's lease */
		if (breaking_look_start(lease, b->number, b->asker.uid, breaking_looked) == 0)
			b->phase = BREAKING_LOOKS;
		return;
	}
	if (lease->state != LEASE_BREAKING)
		queue_raise(lease, LEASE_EV_BREAK);
	/* mutant: break-pins */
	else if (!waiters_are_pinned(lease->lock, &lease->range) &&
		 breaking_look_start(lease, b->number, b->asker.uid, breaking_looked) == 0)
		b->phase = BREAKING_LOOKS;
}

static void breaking_judge(struct keeper *k, struct breaking *b, struct lease *lease)
{
	if (b->found.error)
		return breaking_spare(k, b, lease, STORE_BROKEN_FAILED, 0);
	if (b->found.unstoppable)
		return breaking_spare(k, b, lease, STORE_BROKEN_UNSTOPPABLE, b->found.pid);
	if (b->found.not_yours)
		return breaking_spare(k, b, lease, STORE_BROKEN_NOT_YOURS, b->found.pid);
	if (!b->allowed || lease->state != LEASE_BREAKING) {
		b->allowed = true;
		b->phase = BREAKING_CLOSES;
		return;
	}
	if (breaking_has_younger(b, lease)) /* mutant: break-younger */
		return breaking_spare(k, b, lease, STORE_BROKEN_YOUNGER, 0);
	log_about(LINE_LEASE_BROKEN, &(struct log_about){.lock = lease->lock->file->name},
		  "%s (fence %llu) is taken away on request of %s%s", lease->lock->file->name,
		  (unsigned long long)lease->fence, *b->asker.host ? "host " : "an operator here", b->asker.host);
	b->slot = lease->slot;
	if (!breaking_is_trusted(&b->asker))
		table_break_for(k->table, b->slot, b->asker.uid);
	b->generation = table_generation(k->table, lease->slot);
	b->phase = BREAKING_ENDS;
	queue_raise(lease, LEASE_EV_DOOMED);
}

/* The lease still exists, and no worker looks. */
static void breaking_step(struct keeper *k, struct breaking *b, struct lease *lease)
{
	if (lease_is_unsure(lease->state) || !store_is_up(k->store))
		return breaking_spare(k, b, lease, STORE_BROKEN_UNSURE, 0);
	if (clock_now_ns() > b->until_ns)
		return breaking_spare(k, b, lease, STORE_BROKEN_LATE, 0);
	if (b->phase == BREAKING_CLOSES)
		return breaking_closes(b, lease);
	breaking_judge(k, b, lease);
}

/* The lease is doomed. */
static void breaking_finish(struct keeper *k, struct breaking *b, struct lease *lease)
{
	if (clock_now_ns() > b->until_ns)
		breaking_answer(k, b, STORE_BROKEN_LATE, 0);
	/* mutant: break-order */
	if (b->phase == BREAKING_ENDS && !table_is_ending(k->table, b->slot, b->generation)) {
		b->phase = BREAKING_RETURNS;
		if (lease)
			queue_raise(lease, LEASE_EV_BEREFT);
		return;
	}
	if (b->phase == BREAKING_RETURNS && (!lease || lease->state == LEASE_ENDED))
		breaking_end(k, b, STORE_BROKEN_DONE, 0);
}

static void breaking_look_at(struct keeper *k, struct breaking *b)
{
	struct lease *lease = lease_find(k, b->token);

	if (lease && lease->fence != b->fence)
		lease = NULL;
	if (b->phase == BREAKING_LOOKS)
		return;
	if (b->phase > BREAKING_LOOKED)
		return breaking_finish(k, b, lease);
	if (!*b->token)
		return breaking_end(k, b, STORE_BROKEN_GONE, 0);
	if (!lease ||
	    lease->state == LEASE_ENDED) /* by another request, or the kernel has said that no process has it */
		return breaking_end(k, b, STORE_BROKEN_DONE, 0);
	if (lease->state != LEASE_ENDING && lease->state != LEASE_RELEASING)
		return breaking_step(k, b, lease);
	if (clock_now_ns() > b->until_ns)
		breaking_end(k, b, STORE_BROKEN_LATE, 0);
}

static void breaking_on_timer(uv_timer_t *timer)
{
	struct keeper *k = timer->data;
	struct breaking *b, *next;

	DL_FOREACH_SAFE (k->breakings.all, b, next) {
		breaking_look_at(k, b);
		queue_settle(k); /* each is an input of its own: two may be about one lease */
	}
	if (k->breakings.all && !k->leaving)
		uv_timer_start(timer, breaking_on_timer, BREAKING_LOOK_MS, 0);
}

/* --- from outside --- */

static struct lease *breaking_find(const struct keeper *k, uint64_t fence)
{
	struct lease *lease, *next;

	HASH_ITER (hh, k->leases, lease, next)
		if (fence && lease->fence == fence && lease->state != LEASE_ENDED)
			return lease;
	return NULL;
}

bool breaking_knows(const struct keeper *k, uint64_t fence)
{
	return breaking_find(k, fence) != NULL;
}

static bool breaking_has_room(const struct keeper *k, const struct breaking_asker *asker)
{
	const struct breaking *b;
	unsigned own = 0;

	if (breaking_is_trusted(asker))
		return k->breakings.count < BREAKING_MAX;
	DL_FOREACH (k->breakings.all, b)
		own += b->asker.uid == asker->uid;
	return k->breakings.count < BREAKING_MAX / 2 && own < BREAKING_EACH;
}

uint64_t breaking_start(struct keeper *k, uint64_t fence, uint64_t limit, const struct breaking_asker *asker)
{
	const struct lease *lease = breaking_find(k, fence);
	bool trusted = breaking_is_trusted(asker);
	struct breaking *b = breaking_has_room(k, asker) ? calloc(1, sizeof(*b)) : NULL;

	if (!b)
		return 0;
	b->number = ++k->breakings.last;
	b->fence = fence;
	b->limit = limit;
	b->asker = *asker;
	b->allowed = trusted;
	b->until_ns = clock_now_ns() + BREAKING_WAIT_MS * NS_PER_MS;
	if (lease)
		memcpy(b->token, lease->token, sizeof(b->token));
	DL_APPEND(k->breakings.all, b);
	k->breakings.count++;
	uv_timer_start(&k->breakings.timer, breaking_on_timer, 0, 0);
	return b->number;
}

static bool breaking_is_asked(const struct keeper *k, const struct store_message *m)
{
	const struct breaking *b;

	DL_FOREACH (k->breakings.all, b)
		if (b->asker.question == m->question && !strcmp(b->asker.host, m->asker))
			return true;
	return false;
}

static void breaking_released(void *arg, const struct store_reply *reply)
{
	(void)arg, (void)reply; /* if it is still there, the next recall brings it again */
}

/* What becomes of it without an attempt; STORE_BROKENS: there must be one. */
static enum store_broken breaking_refuse(struct keeper *k, const struct store_message *m)
{
	const struct lease *lease = lease_find(k, m->token);

	if (lease && (strcmp(lease->lock->file->name, m->name) != 0 || lease->fence != m->fence))
		return STORE_BROKEN_GONE;
	if (!lease && k->lost.losing) /* perhaps its holders still have to end */
		return STORE_BROKEN_UNSURE;
	if (!lease) { /* a keeper before this one had it */
		store_release(k->store, m->name, m->token, true, breaking_released, k);
		return STORE_BROKEN_DONE;
	}
	if (k->config->allow_break) /* mutant: allow-break */
		return STORE_BROKENS;
	log_about(LINE_BREAK_REFUSED, &(struct log_about){.lock = m->name},
		  "host %s wants to take %s away, which allow_break does not allow", m->asker, m->name);
	return STORE_BROKEN_FORBIDDEN;
}

void breaking_asked(struct keeper *k, const struct store_message *m)
{
	struct breaking_asker asker = {.question = m->question};
	enum store_broken how;

	if (breaking_is_asked(k, m))
		return; /* the question was repeated */
	how = breaking_refuse(k, m);
	memcpy(asker.host, m->asker, sizeof(asker.host));
	if (how == STORE_BROKENS && !breaking_start(k, m->fence, m->limit, &asker))
		how = STORE_BROKEN_FAILED;
	if (how != STORE_BROKENS)
		breaking_tell(k, &asker, how, 0);
}

void breaking_open(struct keeper *k)
{
	uv_timer_init(k->loop, &k->breakings.timer);
	k->breakings.timer.data = k;
	k->breakings.last = (uint64_t)clock_now_ns(); /* so that answers to an earlier keeper are not taken for ours */
}

void breaking_close(struct keeper *k)
{
	uv_close((uv_handle_t *)&k->breakings.timer, NULL);
	while (k->breakings.all)
		breaking_free(k, k->breakings.all);
}
