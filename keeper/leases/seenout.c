/* See seenout.h. */
#include "keeper/leases/seenout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "keeper/clock.h"
#include "keeper/kernel/onbehalf.h"
#include "keeper/kernel/seeout.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/queue.h"
#include "keeper/log.h"

#define SEENOUT_AGAIN_MS 20
#define SEENOUT_LATE_MS  5000
#define SEENOUT_REST_MS  1000 /* after so long, entries that nobody wants are looked at gently; doubles */
#define SEENOUT_REST_MAX 32000
#define SEENOUT_TIDY_MS  100
#define SEENOUT_OF_ALL   4 /* an ordinary user gets this part of the room, and the last part of it is root's */

static void on_seeing_again(uv_timer_t *timer);

static bool seenout_is_same(const struct underway_call *a, const struct underway_call *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

/* Not later than it would look anyway. */
static void seenout_look_again(struct keeper *k, uint64_t ms)
{
	uv_timer_t *again = &k->seenout.again;

	if (!uv_is_active((uv_handle_t *)again) || uv_timer_get_due_in(again) > ms) /* mutant: seenout-sooner */
		uv_timer_start(again, on_seeing_again, ms, 0);
}

/* Has the entry not ended since? */
static bool seenout_is_there(const struct keeper *k, const struct seenout_wanted *w)
{
	struct underway_call there;
	size_t next = w->at;

	/* Where it was, unless it has ended and was noted anew. */
	if (underway_next(&k->table->underway, &next, &there) && seenout_is_same(&there, &w->call))
		return true;
	for (next = 0; underway_next(&k->table->underway, &next, &there);)
		if (seenout_is_same(&there, &w->call))
			return true;
	return false;
}

/* Forgets entries that have ended since: a thread whose debugger stays makes call after call, and is never seen out. A free place, or
 * SEENOUT_WANTED. */
static size_t seenout_forget(struct keeper *k)
{
	size_t free_at = SEENOUT_WANTED;

	for (size_t i = 0; i < SEENOUT_WANTED; i++) {
		struct seenout_wanted *w = &k->seenout.wanted[i];

		if (w->wanted && !w->running && !seenout_is_there(k, w)) /* mutant: seenout-forget */
			w->wanted = false;
		if (!w->wanted && !w->running)
			free_at = i;
	}
	return free_at;
}

static enum seeout_how seenout_how(const struct keeper *k, const struct seenout_wanted *w)
{
	if (w->gently)
		return SEEOUT_GENTLY;
	return calledback_lately(&k->seenout.called_back, &w->call, clock_now_ns()) ? SEEOUT_PATIENTLY : SEEOUT_AT_ONCE;
}

/* Begins what can be begun. The rest, and what was refused, is tried again, each in its turn. */
static void seenout_run(struct keeper *k)
{
	struct seenout *s = &k->seenout;
	size_t first = s->first;
	bool left = false, urgent = false;

	for (size_t n = 0; n < SEENOUT_WANTED; n++) {
		size_t i = (first + n) % SEENOUT_WANTED;
		struct seenout_wanted *w = &s->wanted[i];

		if (!w->wanted)
			continue;
		urgent |= !w->gently;
		if (w->running)
			continue;
		w->asked_gently = w->gently;
		w->running = seeout_start(s->seeouts, w->call.thread, w->call.started, seenout_how(k, w), w->call.uid,
					  i) == 0;
		if (w->running)
			s->first = i + 1;
		left |= !w->running;
	}
	s->left = left;
	if (left)
		seenout_look_again(k, SEENOUT_AGAIN_MS);
	else if (urgent) /* the kernel may keep it for long */
		seenout_look_again(k, SEENOUT_LATE_MS);
}

/* People see a lease that another host waits for, and no holder. */
static void seenout_say_late(struct keeper *k)
{
	const int64_t before_ns = clock_now_ns() - SEENOUT_LATE_MS * NS_PER_MS;

	for (size_t i = 0; i < SEENOUT_WANTED; i++) {
		const struct seenout_wanted *w = &k->seenout.wanted[i];
		struct file *file;

		if (!w->wanted || w->gently || w->since_ns > before_ns)
			continue;
		file = file_find(k, w->call.dev, w->call.ino);
		log_about(
			LINE_CALL_UNDER_WAY, &(struct log_about){.lock = file ? file->name : NULL, .pid = w->call.pid},
			"%s: another host waits, and pid %d (thread %d) has not been seen out of its lock call for %d s: does a "
			"debugger trace it, or does it hang in the kernel? The lock stays here until it has left the call",
			file ? file->path : "a file", (int)w->call.pid, (int)w->call.thread, SEENOUT_LATE_MS / 1000);
	}
}

static void on_seeing_again(uv_timer_t *timer)
{
	struct keeper *k = timer->data;

	seenout_forget(k);
	seenout_say_late(k);
	seenout_run(k);
	queue_settle(k);
}

/* From where the last one was found on: mostly the next one is free. There are no more entries than places, and of those that have ended,
 * SEEOUT_MAX run. */
static size_t seenout_free_place(struct keeper *k)
{
	struct seenout *s = &k->seenout;

	for (size_t n = 0; n < SEENOUT_WANTED; n++) {
		const size_t i = (s->last_place + n) % SEENOUT_WANTED;

		if (!s->wanted[i].wanted && !s->wanted[i].running) {
			s->last_place = i;
			return i;
		}
	}
	return seenout_forget(k);
}

/* at: where the entry is. */
static void seenout_want(struct keeper *k, const struct underway_call *call, size_t at, bool gently)
{
	struct seenout *s = &k->seenout;
	struct seenout_wanted *w = &s->wanted[s->places[at]];
	size_t free_at;

	if (w->wanted && seenout_is_same(&w->call, call)) {
		if (w->gently && !gently)
			w->since_ns = clock_now_ns();
		w->gently &= gently;
		return;
	}
	free_at = seenout_free_place(k);
	if (free_at == SEENOUT_WANTED)
		return;
	s->places[at] = (uint16_t)free_at;
	s->wanted[free_at] = (struct seenout_wanted){
		.call = *call, .at = at, .wanted = true, .gently = gently, .since_ns = clock_now_ns()};
}

/* The leases of the entry's lock may go on. */
static void seenout_unpinned(struct keeper *k, const struct underway_call *call)
{
	struct file *file = file_find(k, call->dev, call->ino), *next;

	if (call->space < WIRE_SPACES) {
		if (file)
			k->seenout.unpinned(&file->locks[call->space]);
		return;
	}
	HASH_ITER (hh, k->files, file, next) /* torn: of any lock */
		for (int i = 0; i < WIRE_SPACES; i++)
			k->seenout.unpinned(&file->locks[i]);
}

static void on_seeing_answer(void *arg, size_t tag, enum seeout_answer answer)
{
	struct keeper *k = arg;
	struct seenout_wanted *w = &k->seenout.wanted[tag];
	const struct underway_call call = w->call;
	bool at_once = k->seenout.left; /* mutant: seenout-free */

	w->running = false;
	if (answer == SEEOUT_CALLED_BACK)
		calledback_note(&k->seenout.called_back, &call, clock_now_ns());
	if (answer != SEEOUT_REFUSED) {
		k->seenout.seen++;
		w->wanted = false;
		underway_end(&k->table->underway, &call); /* mutant: seenout-end */
		seenout_unpinned(k, &call);
	} else if (w->gently || !w->wanted) {
		w->wanted = false;
	} else if (w->asked_gently) { /* more is wanted meanwhile */
		at_once = true;
	} else {
		k->seenout.refused += !calledback_lately(&k->seenout.called_back, &call, clock_now_ns());
		seenout_look_again(k, SEENOUT_AGAIN_MS);
	}
	if (at_once) /* once for all answers that have come */
		seenout_look_again(k, 0);
	queue_settle(k);
}

static void seenout_tidy(struct keeper *k);

/* A thread that has left its call long ago must not be stopped, or end, as if it were in it. */
static void on_seeing_rest(uv_timer_t *timer)
{
	struct keeper *k = timer->data;
	struct seenout *s = &k->seenout;

	seenout_tidy(k);
	s->rest_ms = s->rest_ms < SEENOUT_REST_MAX ? 2 * s->rest_ms : SEENOUT_REST_MAX;
	if (seenout_under_way(k))
		uv_timer_start(timer, on_seeing_rest, s->rest_ms, 0);
	queue_settle(k);
}

/* An entry is there, of this keeper or an earlier one. */
static void seenout_rest(struct keeper *k)
{
	k->seenout.rest_ms = SEENOUT_REST_MS;
	if (!uv_is_active((uv_handle_t *)&k->seenout.rest))
		uv_timer_start(&k->seenout.rest, on_seeing_rest, SEENOUT_REST_MS, 0);
}

int seenout_start(struct keeper *k, void (*unpinned)(struct lock *lock))
{
	k->seenout.unpinned = unpinned;
	k->seenout.seeouts = seeouts_new(k->loop, on_seeing_answer, k);
	if (!k->seenout.seeouts)
		return -errno;
	uv_timer_init(k->loop, &k->seenout.again);
	uv_timer_init(k->loop, &k->seenout.rest);
	k->seenout.again.data = k->seenout.rest.data = k;
	seenout_rest(k);
	return 0;
}

void seenout_stop(struct keeper *k)
{
	if (!k->seenout.seeouts)
		return;
	uv_close((uv_handle_t *)&k->seenout.again, NULL);
	uv_close((uv_handle_t *)&k->seenout.rest, NULL);
	seeouts_free(k->seenout.seeouts);
	k->seenout.seeouts = NULL;
}

/* The entry ends: its thread is in a later call, where it should not be interrupted, since it would lose its place in the store's queue. */
static void seenout_drop(struct keeper *k, const struct underway_call *call, size_t at)
{
	const size_t place = k->seenout.places[at];
	struct seenout_wanted *w = &k->seenout.wanted[place];

	if (!w->wanted || !seenout_is_same(&w->call, call))
		return;
	w->wanted = false;
	if (w->running)
		seeout_cancel(k->seenout.seeouts, place);
}

bool seenout_begin(struct keeper *k, const struct onbehalf *who, uint64_t number, bool *again)
{
	static struct underway_call ended[UNDERWAY_CALLS];
	static size_t places[UNDERWAY_CALLS];
	struct underway_call call;
	size_t count = 0;

	*again = false;
	for (size_t next = 0; underway_next_of(&k->table->underway, who->thread, &next, &call);)
		if (call.started == who->started && call.number == number) {
			*again = true;
		} else {
			places[count] = next - 1;
			ended[count++] = call;
		}
	if (!underway_begin(&k->table->underway, who->thread, who->started, number))
		return false;
	for (size_t i = 0; i < count; i++) {
		seenout_drop(k, &ended[i], places[i]); /* mutant: seenout-drop */
		seenout_unpinned(k, &ended[i]);
	}
	return true;
}

size_t seenout_under_way(const struct keeper *k)
{
	size_t of_user;

	return underway_count(&k->table->underway, 0, &of_user);
}

/* Before there is no room left: most of these threads have been out of their calls for long. */
static void seenout_tidy(struct keeper *k)
{
	struct underway_call call;

	for (size_t next = 0; underway_next(&k->table->underway, &next, &call);)
		seenout_want(k, &call, next - 1, true);
	seenout_run(k);
}

/* Each question may find too many entries, and a look at all of them takes longer than the question. */
static void seenout_tidy_soon(struct keeper *k)
{
	const int64_t now_ns = clock_now_ns();

	if (now_ns < k->seenout.tidy_ns)
		return;
	k->seenout.tidy_ns = now_ns + SEENOUT_TIDY_MS * NS_PER_MS;
	seenout_tidy(k);
}

static struct underway_call seenout_call(const struct lock *lock, const struct store_range *range,
					 const struct onbehalf *who, uint64_t number)
{
	return (struct underway_call){.thread = who->thread,
				      .pid = who->pid,
				      .started = who->started,
				      .number = number,
				      .dev = lock->file->key.dev,
				      .ino = lock->file->key.ino,
				      .space = lock->space,
				      .uid = who->uid,
				      .from = range->from,
				      .to = range->to};
}

bool seenout_called_back(const struct lock *lock, const struct store_range *range, const struct onbehalf *who)
{
	const struct underway_call call = seenout_call(lock, range, who, 0);

	return calledback_asks(&lock->file->keeper->seenout.called_back, &call);
}

int seenout_note(struct lock *lock, const struct store_range *range, const struct onbehalf *who, uint64_t number)
{
	struct keeper *k = lock->file->keeper;
	const struct underway_call call = seenout_call(lock, range, who, number);
	const uid_t uid = who->uid;
	size_t of_user, count = underway_count(&k->table->underway, uid, &of_user);

	if (count > UNDERWAY_CALLS / 2 || of_user > UNDERWAY_CALLS / SEENOUT_OF_ALL / 2)
		seenout_tidy_soon(k);
	if (uid != 0 && k->system && of_user >= UNDERWAY_CALLS / SEENOUT_OF_ALL)
		return -EDQUOT;
	if (uid != 0 && k->system && count >= UNDERWAY_CALLS - UNDERWAY_CALLS / SEENOUT_OF_ALL)
		return -ENOSPC;
	seenout_rest(k);
	return underway_note(&k->table->underway, &call);
}

bool seenout_next_keeping(const struct lease *lease, size_t *next, struct underway_call *out)
{
	const struct file *file = lease->lock->file;
	const struct store_range *r = &lease->range;

	if (lease->state != LEASE_DRAINING && lease->state != LEASE_BREAKING) /* mutant: keeping */
		return false;
	while (underway_next(&file->keeper->table->underway, next, out))
		if (underway_is_on(out, file->key.dev, file->key.ino, r->space, r->from, r->to))
			return true;
	return false;
}

bool seenout_is_wanted(const struct lock *lock, const struct store_range *range, bool gently)
{
	struct keeper *k = lock->file->keeper;
	const struct file_key *key = &lock->file->key;
	struct underway_call call;
	bool found = false;

	for (size_t next = 0; underway_next(&k->table->underway, &next, &call);) {
		if (!underway_is_on(&call, key->dev, key->ino, lock->space, range->from, range->to))
			continue;
		found = true;
		seenout_want(k, &call, next - 1, gently);
	}
	if (found)
		seenout_run(k);
	return found;
}
