/*
 * See breaking.h. One timer looks at all that is under way, so nothing here depends on who hears of a change of state.
 *
 * Why no second holder. Until ENDING nothing was given up: the lease is an ordinary one that is closed. In ENDING the
 * slot says "lost", and the parent ends every process that has a kernel lock in the lease's range. No process can come
 * to rely on the lock after the parent has looked: the page does not show the lease, no caller was granted since
 * BREAKING, and the pins from before are over. The release is sent when the parent has freed the slot (lost.c): it frees it
 * after it has sent SIGKILL to all of them while they were stopped.
 *
 * Whose processes. A user of a system keeper may end what is its own: every process that would be killed must be its own, so also
 * those that a holder started. A process that changes its user meanwhile (a setuid program) is one that this user started.
 * The owner of /proc/PID is the effective user, or root for a process that is not dumpable.
 *
 *   the keeper dies in BREAKING   the table says "held": the next keeper takes the lease up as any other
 *   ... in ENDING                 the parent, or the next one, ends the holders. The next keeper does not know the
 *                                 token, and releases it when another host, or an operator, wants the lease (host.c,
 *                                 control_break.c), but not before the parent is done
 *   the parent dies in ENDING     the next parent finds the slot, and ends the holders
 *   the store goes away           before DOOMED the lease stays; after it, the release is sent until it is done
 */
#include "keeper/leases/breaking.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/clock.h"
#include "keeper/kernel/family.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/lost.h"
#include "keeper/leases/queue.h"
#include "keeper/leases/survey.h"
#include "keeper/leases/waiters.h"
#include "keeper/log.h"

#define BREAKING_LOOK_MS 5

struct breaking {
	struct survey survey; /* the first member: which processes hold the lock */
	struct keeper *keeper;
	struct member *member; /* of the lease, and of whoever asks */
	uint64_t fence, limit;
	struct breaking_asker asker;
	char token[STORE_TOKEN_BYTES];
	bool looking, looked; /* a worker finds the holders; has found them */
	bool trusted;         /* the asker is root or the keeper's user: any user's processes may end */
	bool allowed;         /* trusted, or a first look has shown that all that would end is the asker's own */
	pid_t self;           /* the keeper */
	struct family family; /* what would end */
	pid_t unstoppable,
		theirs; /* one of them that this keeper cannot end; that is another user's; -1: not known which one */
	int64_t until_ns;
	struct breaking *prev, *next;
};

/* --- the end --- */

static void breaking_tell(struct member *m, const struct breaking_asker *asker, enum store_broken how, pid_t pid)
{
	const struct store_message message = {
		.kind = STORE_MSG_BROKEN, .question = asker->question, .broken = how, .pid = pid > 0 ? pid : 0};

	if (*asker->host)
		store_tell(m->store, asker->host, &message);
	else
		m->keeper->queue.news->broken(m->keeper, &message);
}

static void breaking_free(struct breaking *b)
{
	DL_DELETE(b->keeper->breakings.all, b);
	b->keeper->breakings.count--;
	family_free(&b->family);
	free(b);
}

static void breaking_end(struct breaking *b, enum store_broken how, pid_t pid)
{
	breaking_tell(b->member, &b->asker, how, pid);
	breaking_free(b);
}

/* The lease stays as it was before, unless it is lost for another reason. */
static void breaking_spare(struct breaking *b, struct lease *lease, enum store_broken how, pid_t pid)
{
	if (lease->state == LEASE_BREAKING && !lease->key_lost)
		queue_raise(lease, LEASE_CUE_SPARED);
	breaking_end(b, how, pid);
}

/* --- which processes would end: in a worker --- */

static void breaking_judge_process(struct breaking *b, pid_t pid)
{
	char path[32];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	if (pid == b->self || stat(path, &st) != 0)
		return;
	if (kill(pid, 0) != 0 && errno == EPERM)
		b->unstoppable = pid;
	else if (!b->trusted && st.st_uid != b->asker.uid)
		b->theirs = pid;
}

/* Only the locks in the lease's range count: the census shows all on the file. */
static int breaking_on_lock(struct survey *survey, const struct holder *h)
{
	struct breaking *b = (struct breaking *)survey;
	size_t next = SIZE_MAX;

	if (h->how == HOLDER_MAPPER || !survey_claim(survey, h, &next))
		return 0;
	if (h->how == HOLDER_SHOWN || h->sight != SIGHT_BEYOND)
		return family_add(&b->family, h->pid);
	b->unstoppable = h->pid ? h->pid : -1;
	return 0;
}

static int breaking_judge_all(struct survey *survey)
{
	struct breaking *b = (struct breaking *)survey;
	int ret;

	if (!family_count(&b->family) && !b->trusted)
		b->theirs = -1;
	ret = family_add_descendants(&b->family, b->self);
	for (size_t i = 0; !ret && i < family_count(&b->family); i++)
		breaking_judge_process(b, family_at(&b->family, i));
	return ret;
}

static void breaking_done(struct survey *survey)
{
	struct breaking *b = (struct breaking *)survey;

	b->looking = false;
	b->looked = true;
	if (!b->keeper->breakings.open)
		breaking_free(b);
}

static void breaking_look(struct breaking *b, const struct lease *lease)
{
	const struct holders_file file = file_searched(lease->lock->file);

	b->survey = (struct survey){
		.patient = true, .row = breaking_on_lock, .end = breaking_judge_all, .done = breaking_done};
	family_free(&b->family);
	b->unstoppable = b->theirs = 0;
	b->looking =
		claims_add(&b->survey.claims, &file, lease->range.space, lease->range.from, lease->range.to, 0) == 0 &&
		survey_ask(b->keeper, &b->survey) == 0;
	if (!b->looking) /* the next time */
		claims_free(&b->survey.claims);
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

static void breaking_closes(struct breaking *b, struct lease *lease)
{
	if (lease_is_part(lease) || lease->split.running || lease->state == LEASE_SHRINKING)
		return;  /* that ends soon */
	if (!b->allowed) /* a user must not even close another one's lease */
		breaking_look(b, lease);
	else if (lease->state != LEASE_BREAKING)
		queue_raise(lease, LEASE_CUE_BREAK);
	/* mutant: break-pins */
	else if (!waiters_are_pinned(lease->lock, &lease->range))
		breaking_look(b, lease);
}

static void breaking_judge(struct keeper *k, struct breaking *b, struct lease *lease)
{
	b->looked = false;
	if (b->survey.error) {
		log_about(LINE_SEARCH_FAILED, &(struct log_about){.lock = lease->lock->file->name},
			  "%s is not taken away: not all of its holders were found: %s", lease->lock->file->name,
			  b->survey.error == -ETIME ? "a process has too many descriptors or locks"
						    : strerror(-b->survey.error));
		return breaking_spare(b, lease, STORE_BROKEN_FAILED, 0);
	}
	if (b->unstoppable)
		return breaking_spare(b, lease, STORE_BROKEN_UNSTOPPABLE, b->unstoppable);
	if (b->theirs)
		return breaking_spare(b, lease, STORE_BROKEN_NOT_YOURS, b->theirs);
	if (!b->allowed || lease->state != LEASE_BREAKING) {
		b->allowed = true;
		return;
	}
	if (breaking_has_younger(b, lease)) /* mutant: break-younger */
		return breaking_spare(b, lease, STORE_BROKEN_YOUNGER, 0);
	log_about(LINE_LEASE_BROKEN, &(struct log_about){.lock = lease->lock->file->name},
		  "%s (fence %llu) is taken away on request of %s%s", lease->lock->file->name,
		  (unsigned long long)lease->fence, *b->asker.host ? "host " : "an operator here", b->asker.host);
	if (!b->trusted)
		table_break_for(k->table, lease->slot, b->asker.uid);
	queue_raise(lease, LEASE_CUE_DOOMED);
}

static void breaking_step(struct keeper *k, struct breaking *b)
{
	struct lease *lease = lease_find(k, b->token);

	if (b->looking)
		return;
	if (!*b->token)
		return breaking_end(b, STORE_BROKEN_GONE, 0);
	if (!lease || lease->fence != b->fence || lease->state == LEASE_ENDED)
		return breaking_end(b, STORE_BROKEN_DONE, 0); /* the kernel may have said that no process has it */
	if (clock_now_ns() > b->until_ns)
		return breaking_spare(b, lease, STORE_BROKEN_LATE, 0);
	if (lease->state == LEASE_ENDING || lease->state == LEASE_RELEASING) /* by this request or another one */
		return;
	if (lease_is_unsure(lease->state) || !store_is_up(b->member->store))
		return breaking_spare(b, lease, STORE_BROKEN_UNSURE, 0);
	if (b->looked)
		breaking_judge(k, b, lease);
	else
		breaking_closes(b, lease);
}

static void breaking_on_timer(uv_timer_t *timer)
{
	struct keeper *k = timer->data;
	struct breaking *b, *next;

	DL_FOREACH_SAFE (k->breakings.all, b, next) {
		breaking_step(k, b);
		queue_settle(k); /* each is an input of its own: two may be about one lease */
	}
	if (k->breakings.all && !k->leaving)
		uv_timer_start(timer, breaking_on_timer, BREAKING_LOOK_MS, 0);
}

/* --- from outside --- */

static struct lease *breaking_find(const struct member *m, const char *name, uint64_t fence)
{
	struct lease *lease, *next;

	HASH_ITER (hh, m->keeper->leases, lease, next)
		if (fence && lease->fence == fence && lease->state != LEASE_ENDED && lease_member(lease) == m &&
		    strcmp(lease->lock->file->name, name) == 0)
			return lease;
	return NULL;
}

bool breaking_knows(const struct member *m, const char *name, uint64_t fence)
{
	return breaking_find(m, name, fence) != NULL;
}

static bool breaking_has_room(const struct keeper *k, const struct breaking_asker *asker, bool trusted)
{
	const struct breaking *b;
	unsigned own = 0;

	if (trusted)
		return k->breakings.count < BREAKING_MAX;
	DL_FOREACH (k->breakings.all, b)
		own += b->asker.uid == asker->uid;
	return k->breakings.count < BREAKING_MAX / 2 && own < BREAKING_EACH;
}

bool breaking_start(struct member *m, const char *name, uint64_t fence, uint64_t limit,
		    const struct breaking_asker *asker)
{
	struct keeper *k = m->keeper;
	const struct lease *lease = breaking_find(m, name, fence);
	bool trusted = asker->uid == 0 || asker->uid == geteuid();
	struct breaking *b = breaking_has_room(k, asker, trusted) ? calloc(1, sizeof(*b)) : NULL;

	if (!b)
		return false;
	*b = (struct breaking){.keeper = k,
			       .member = m,
			       .fence = fence,
			       .limit = limit,
			       .asker = *asker,
			       .trusted = trusted,
			       .allowed = trusted,
			       .self = getpid(),
			       .until_ns = clock_now_ns() + BREAKING_WAIT_MS * NS_PER_MS};
	if (lease)
		memcpy(b->token, lease->token, sizeof(b->token));
	DL_APPEND(k->breakings.all, b);
	k->breakings.count++;
	uv_timer_start(&k->breakings.timer, breaking_on_timer, 0, 0);
	return true;
}

static bool breaking_is_asked(const struct keeper *k, const struct store_message *m)
{
	const struct breaking *b;

	DL_FOREACH (k->breakings.all, b)
		if (b->asker.question == m->question && !strcmp(b->asker.host, m->asker))
			return true;
	return false;
}

/* What becomes of it without an attempt; STORE_BROKENS: there must be one. */
static enum store_broken breaking_refuse(struct member *m, const struct store_message *message)
{
	const struct keeper *k = m->keeper;
	const struct lease *lease = lease_find(m->keeper, message->token);

	if (lease && (lease_member(lease) != m || strcmp(lease->lock->file->name, message->name) != 0 ||
		      lease->fence != message->fence))
		return STORE_BROKEN_GONE;
	if (!lease) /* a keeper before this one had it */
		return lost_give_back(m, message->name, message->token, true) ? STORE_BROKEN_DONE : STORE_BROKEN_UNSURE;
	if (k->config->allow_break) /* mutant: allow-break */
		return STORE_BROKENS;
	log_about(LINE_BREAK_REFUSED, &(struct log_about){.lock = message->name},
		  "host %s wants to take %s away, which allow_break does not allow", message->asker, message->name);
	return STORE_BROKEN_FORBIDDEN;
}

void breaking_asked(struct member *m, const struct store_message *message)
{
	struct breaking_asker asker = {.question = message->question};
	enum store_broken how;

	if (breaking_is_asked(m->keeper, message))
		return; /* the question was repeated */
	how = breaking_refuse(m, message);
	memcpy(asker.host, message->asker, sizeof(asker.host));
	if (how == STORE_BROKENS && !breaking_start(m, message->name, message->fence, message->limit, &asker))
		how = STORE_BROKEN_FAILED;
	if (how != STORE_BROKENS)
		breaking_tell(m, &asker, how, 0);
}

void breaking_open(struct keeper *k)
{
	uv_timer_init(k->loop, &k->breakings.timer);
	k->breakings.timer.data = k;
	k->breakings.open = true;
	k->breakings.last = (uint64_t)clock_now_ns(); /* so that answers to an earlier keeper are not taken for ours */
}

void breaking_close(struct keeper *k)
{
	struct breaking *b, *next;

	uv_close((uv_handle_t *)&k->breakings.timer, NULL);
	k->breakings.open = false;
	DL_FOREACH_SAFE (k->breakings.all, b, next)
		if (!b->looking)
			breaking_free(b);
}
