/* See seeing.h. */
#include "keeper/leases/seeing.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "keeper/kernel/onbehalf.h"
#include "keeper/kernel/seeout.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/queue.h"

#define SEEING_AGAIN_MS 20
#define SEEING_OF_ALL   4 /* an ordinary user gets this part of the room */

static void on_seeing_again(uv_timer_t *timer);

static bool seeing_is_same(const struct underway_call *a, const struct underway_call *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

/* Begins what can be begun. The rest, and what was refused, is tried again. */
static void seeing_run(struct keeper *k)
{
	struct seeing *s = &k->seeing;
	bool left = false;

	for (size_t i = 0; i < UNDERWAY_CALLS; i++) {
		struct seeing_wanted *w = &s->wanted[i];

		if (!w->wanted || w->running)
			continue;
		w->asked_gently = w->gently;
		w->running = seeout_start(s->seeouts, w->call.thread, w->call.started, w->gently, w->call.uid, i) == 0;
		left |= !w->running;
	}
	if (left && !uv_is_active((uv_handle_t *)&s->again))
		uv_timer_start(&s->again, on_seeing_again, SEEING_AGAIN_MS, 0);
}

static void on_seeing_again(uv_timer_t *timer)
{
	struct keeper *k = timer->data;

	seeing_run(k);
	queue_settle(k);
}

static void seeing_want(struct keeper *k, const struct underway_call *call, bool gently)
{
	struct seeing *s = &k->seeing;
	size_t free_at = UNDERWAY_CALLS;

	for (size_t i = 0; i < UNDERWAY_CALLS; i++) {
		if (!s->wanted[i].wanted)
			free_at = i;
		else if (seeing_is_same(&s->wanted[i].call, call)) {
			s->wanted[i].gently &= gently;
			return;
		}
	}
	if (free_at < UNDERWAY_CALLS) /* else: asked for again when one of them has ended */
		s->wanted[free_at] = (struct seeing_wanted){.call = *call, .wanted = true, .gently = gently};
}

/* The leases of the entry's lock may go on. */
static void seeing_unpinned(struct keeper *k, const struct underway_call *call)
{
	struct file *file = file_find(k, call->dev, call->ino), *next;

	if (call->space < WIRE_SPACES) {
		if (file)
			k->seeing.unpinned(&file->locks[call->space]);
		return;
	}
	HASH_ITER (hh, k->files, file, next) /* torn: of any lock */
		for (int i = 0; i < WIRE_SPACES; i++)
			k->seeing.unpinned(&file->locks[i]);
}

static void on_seeing_answer(void *arg, size_t tag, enum seeout_answer answer)
{
	struct keeper *k = arg;
	struct seeing_wanted *w = &k->seeing.wanted[tag];
	const struct underway_call call = w->call;
	bool gently = w->asked_gently;

	w->running = false;
	if (answer == SEEOUT_OUT) {
		k->seeing.seen++;
		w->wanted = false;
		underway_end(&k->table->underway, &call); /* mutant: seeing-end */
		seeing_unpinned(k, &call);
	} else if (w->gently) {
		w->wanted = false;
	} else if (gently) { /* more is wanted meanwhile */
		seeing_run(k);
	} else {
		k->seeing.refused++;
		if (!uv_is_active((uv_handle_t *)&k->seeing.again))
			uv_timer_start(&k->seeing.again, on_seeing_again, SEEING_AGAIN_MS, 0);
	}
	queue_settle(k);
}

int seeing_start(struct keeper *k, void (*unpinned)(struct lock *lock))
{
	k->seeing.unpinned = unpinned;
	k->seeing.seeouts = seeouts_new(k->loop, on_seeing_answer, k);
	if (!k->seeing.seeouts)
		return -errno;
	uv_timer_init(k->loop, &k->seeing.again);
	k->seeing.again.data = k;
	return 0;
}

void seeing_stop(struct keeper *k)
{
	if (!k->seeing.seeouts)
		return;
	uv_close((uv_handle_t *)&k->seeing.again, NULL);
	seeouts_free(k->seeing.seeouts);
	k->seeing.seeouts = NULL;
}

bool seeing_begin(struct keeper *k, const struct onbehalf *who, uint64_t number, bool *again)
{
	struct underway_call ended[UNDERWAY_CALLS / 64], call;
	size_t count = 0;

	*again = false;
	for (size_t next = 0; underway_next(&k->table->underway, &next, &call);)
		if (call.thread == who->thread && call.started == who->started && call.number == number)
			*again = true;
		else if (call.thread == who->thread && count < UNDERWAY_CALLS / 64)
			ended[count++] = call;
	if (!underway_begin(&k->table->underway, who->thread, who->started, number))
		return false;
	for (size_t i = 0; i < count; i++)
		seeing_unpinned(k, &ended[i]);
	return true;
}

/* How many entries there are: in all, and of this user. */
static size_t seeing_count(const struct keeper *k, uid_t uid, size_t *of_user)
{
	struct underway_call call;
	size_t count = 0;

	*of_user = 0;
	for (size_t next = 0; underway_next(&k->table->underway, &next, &call); count++)
		*of_user += call.uid == uid;
	return count;
}

/* Before there is no room left: most of these threads have been out of their calls for long. */
static void seeing_tidy(struct keeper *k)
{
	struct underway_call call;

	for (size_t next = 0; underway_next(&k->table->underway, &next, &call);)
		seeing_want(k, &call, true);
	seeing_run(k);
}

int seeing_note(struct lock *lock, const struct store_range *range, const struct onbehalf *who, uint64_t number,
		uid_t uid)
{
	struct keeper *k = lock->file->keeper;
	const struct underway_call call = {.thread = who->thread,
					   .pid = who->pid,
					   .started = who->started,
					   .number = number,
					   .dev = lock->file->key.dev,
					   .ino = lock->file->key.ino,
					   .space = lock->space,
					   .uid = uid,
					   .from = range->from,
					   .to = range->to};
	size_t of_user, count = seeing_count(k, uid, &of_user);

	if (count > UNDERWAY_CALLS / 2 || of_user > UNDERWAY_CALLS / SEEING_OF_ALL / 2)
		seeing_tidy(k);
	if (uid != 0 && k->system && of_user >= UNDERWAY_CALLS / SEEING_OF_ALL)
		return -EDQUOT;
	return underway_note(&k->table->underway, &call);
}

bool seeing_is_wanted(const struct lock *lock, const struct store_range *range, bool gently)
{
	struct keeper *k = lock->file->keeper;
	const struct file_key *key = &lock->file->key;
	struct underway_call call;
	bool found = false;

	for (size_t next = 0; underway_next(&k->table->underway, &next, &call);) {
		if (!underway_is_on(&call, key->dev, key->ino, lock->space, range->from, range->to))
			continue;
		found = true;
		seeing_want(k, &call, gently);
	}
	if (found)
		seeing_run(k);
	return found;
}
