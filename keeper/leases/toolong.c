/* See toolong.h. */
#include "keeper/leases/toolong.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/array.h"
#include "keeper/clock.h"
#include "keeper/guard/deeds.h"
#include "keeper/guard/table.h"
#include "keeper/kernel/command.h"
#include "keeper/kernel/holders.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/event.h"
#include "keeper/leases/survey.h"
#include "keeper/log.h"

#define TOOLONG_TICK_MS  200
#define TOOLONG_SHARE    20 /* a look that took so much processor time is followed by a pause of so many times that */
#define TOOLONG_LOCKS    64 /* in one look */
#define TOOLONG_MISSES   3  /* looks, one after the other: then the lock has ended */
#define TOOLONG_LINES    1024
#define TOOLONG_WHAT     (LOCK_NAME_BYTES + PATH_MAX)
#define TOOLONG_TRIES    3              /* then the holders of a lock are left alone */
#define TOOLONG_FULL     (AGES_MAX / 2) /* a look then drops the grants of locks that have ended */
#define TOOLONG_AGAIN_NS (10000 * NS_PER_MS)
#define TOOLONG_SAY_NS   (60000 * NS_PER_MS) /* between two lines of the log about one file */

/* A lock that a look has found: of one process, on one descriptor. */
struct toolong_line {
	size_t lock;       /* of those that were looked at */
	pid_t pid, locker; /* of the process that took it; 0: the kernel does not show which one */
	uint64_t start_ticks;
	char command[COMMAND_BYTES];
};

struct toolong_look {
	struct survey survey; /* the first member; a claim's tag: the index of the lock */
	struct keeper *keeper;
	int64_t begun_ns; /* running clock */
	struct {
		struct file_key key;
		enum wire_space space;
	} locks[TOOLONG_LOCKS];
	size_t count;
	struct toolong_line *lines;
	size_t line_count;
	bool partial; /* not all that there is */
};

/* --- in a worker --- */

static int toolong_on_holder(struct survey *survey, const struct holder *h)
{
	struct toolong_look *look = (struct toolong_look *)survey;
	const struct claim *claim;
	struct toolong_line *line;
	size_t next = SIZE_MAX;

	claim = h->how == HOLDER_SHOWN ? survey_claim(survey, h, &next) : NULL;
	if (!claim)
		return 0;
	if (look->line_count == TOOLONG_LINES) {
		look->partial = true;
		return 0;
	}
	line = &look->lines[look->line_count++];
	*line = (struct toolong_line){.lock = claim->tag,
				      .pid = h->pid,
				      .locker = h->locker > 0 ? h->locker : 0,
				      .start_ticks = h->start_ticks};
	snprintf(line->command, sizeof(line->command), "%s", h->command);
	return 0;
}

/* --- warnings --- */

static void toolong_mark(struct age *h, const struct toolong_line *line)
{
	h->state = AGE_WARNED;
	h->said = false;
	h->holder = line->pid;
	free(h->command);
	h->command = strdup(line->command);
}

/* Which lock, and since when it is held. */
static void toolong_describe(const struct lock *lock, const struct age *h, char what[TOOLONG_WHAT], char since[32])
{
	struct tm tm;

	lock_describe(lock, what, TOOLONG_WHAT);
	if (!localtime_r(&h->since, &tm) || !strftime(since, 32, "%F %T", &tm))
		strcpy(since, "?");
}

/* others: so many more processes, for which there is no event. */
static void toolong_tell_warned(const struct lock *lock, const struct age *h, unsigned others)
{
	const struct file *file = lock->file;
	char what[TOOLONG_WHAT], since[32], more[80] = "", end[80] = "";

	toolong_describe(lock, h, what, since);
	if (others)
		snprintf(more, sizeof(more), ", and %u other locks on it as long", others);
	if (file->kill_after_ms)
		snprintf(end, sizeof(end), "; after kill_after_ms = %lld its holders are ended",
			 (long long)file->kill_after_ms);
	event_raise(
		file->keeper,
		&(struct event){.kind = EVENT_HELD_TOO_LONG,
				.name = file->name,
				.path = file->path,
				.pids = &h->holder,
				.pid_count = 1,
				.command = h->command,
				.for_ms = age_ms_of(file->keeper, h)},
		"HELD TOO LONG: %s is locked by pid %d (%s) since %s, longer than warn_after_ms = %lld%s%s; `dflock status` "
		"shows all that have the lock: end the job if it hangs, else raise warn_after_ms",
		what, (int)h->holder, h->command ? h->command : "", since, (long long)file->warn_after_ms, more, end);
}

static void toolong_say(struct lock *lock)
{
	struct keeper *k = lock->file->keeper;
	struct age *h, *next, *oldest = NULL;
	unsigned others = 0;

	if (lock->warned_ns && ages_now_ns(k) - lock->warned_ns < TOOLONG_SAY_NS)
		return;
	HASH_ITER (hh, lock->ages, h, next) {
		if (h->state != AGE_WARNED || h->said)
			continue;
		others++;
		h->said = true;
		if (!oldest || h->at_ns < oldest->at_ns)
			oldest = h;
	}
	if (!oldest)
		return;
	lock->warned_ns = ages_now_ns(k) + 1;
	k->toolong.warned += others;
	toolong_tell_warned(lock, oldest, others - 1);
}

/* --- orders --- */

static void toolong_withdraw_all(const struct keeper *k)
{
	struct order *o;

	for (size_t i = 0; (o = order_at(k->table, i)); i++)
		if (order_state(order_word(o)) == ORDER_GIVEN)
			order_move(o, order_word(o), ORDER_FREE);
}

/* What has become of the orders. */
static void toolong_take_back(struct keeper *k)
{
	struct order *o;

	event_take_deeds(k); /* they name orders */
	for (size_t i = 0; (o = order_at(k->table, i)); i++) {
		uint64_t word = order_word(o);
		struct file *file = order_state(word) > ORDER_ASKED ? file_find(k, o->file.dev, o->file.ino) : NULL;
		struct age *h = file ? ages_find(&file->locks[o->space], o->locker) : NULL;

		if (h && h->state == AGE_ENDING && h->at_ns != o->at_ns) { /* granted again */
			age_begin(h);
		} else if (h && h->state == AGE_ENDING) {
			h->state = order_state(word) == ORDER_STUCK ? AGE_STUCK : AGE_WARNED;
			h->tries += order_state(word) == ORDER_DONE;
		}
		if (order_state(word) > ORDER_ASKED)
			order_move(o, word, ORDER_FREE);
	}
}

static void toolong_write_order(struct order *o, const struct lock *lock, const struct age *h)
{
	const struct keeper *k = lock->file->keeper;
	char since[32], what[TOOLONG_WHAT];

	o->file = file_searched(lock->file);
	o->space = lock->space;
	o->locker = h->pid;
	o->uid = h->uid;
	o->at_ns = h->at_ns;
	o->held_ms = age_ms_of(k, h);
	o->patience_ns = k->config->lease.freeze_margin_ms * NS_PER_MS;
	toolong_describe(lock, h, what, since);
	snprintf(o->what, sizeof(o->what), "%.*s", (int)sizeof(o->what) - 1, what);
	snprintf(o->name, sizeof(o->name), "%s", lock->file->name);
	snprintf(o->path, sizeof(o->path), "%s", lock->file->path);
	snprintf(
		o->line, sizeof(o->line),
		"%.500s: the lock is held too long, since %s: this process is ended (kill_after_ms = %lld, see dflock.conf(5))",
		lock->file->path, since, (long long)lock->file->kill_after_ms);
	log_make_one_line(o->line);
}

/* The holders are to be ended: grant->state is AGE_ENDING until the parent is done. Without room for an order: the next time. */
static void toolong_end(struct lock *lock, struct age *grant)
{
	struct keeper *k = lock->file->keeper;
	struct order *o;
	size_t i = 0;

	if (grant->tries == TOOLONG_TRIES) {
		grant->state = AGE_STUCK;
		log_about(
			LINE_NOT_ENDED, &(struct log_about){.lock = lock->file->name},
			"%s: held too long, and its holders were ended %u times: other processes have the lock since, and are left "
			"alone",
			lock->file->path, grant->tries);
		return;
	}
	while ((o = order_at(k->table, i)) && order_state(order_word(o)) != ORDER_FREE)
		i++;
	if (!o || ages_order(lock, grant->pid)) /* an earlier keeper's is still carried out */
		return;
	toolong_write_order(o, lock, grant);
	grant->state = AGE_ENDING;
	__atomic_store_n(&o->word, ++k->toolong.numbered << 8 | ORDER_GIVEN, __ATOMIC_RELEASE);
	table_notify(k->table);
}

/* --- what a look found --- */

/* The lock of this grant, in the granted process if that has it. NULL: it was not found, or another process has the granted one's
 * number by now: it was started after the grant. */
static const struct toolong_line *toolong_line_of(const struct toolong_look *look, size_t at, const struct age *h)
{
	int64_t tick_ns = 1000000000ll / sysconf(_SC_CLK_TCK);
	const struct toolong_line *found = NULL;

	for (size_t i = 0; i < look->line_count; i++) {
		const struct toolong_line *line = &look->lines[i];

		if (line->lock != at || line->locker != h->pid)
			continue;
		if (line->pid == h->pid && (int64_t)line->start_ticks * tick_ns > h->granted_ns)
			return NULL;
		if (!found || line->pid == h->pid)
			found = line;
	}
	return found;
}

static void toolong_judge(const struct toolong_look *look, size_t at, struct lock *lock, struct age *h)
{
	const struct toolong_line *line = toolong_line_of(look, at, h);
	int64_t age_ms = age_ms_of(look->keeper, h), warn_ms = lock->file->warn_after_ms,
		kill_ms = lock->file->kill_after_ms;
	bool kills = kill_ms && age_ms >= kill_ms;

	/* Its pin ended after the look had begun: the look may have missed its lock. */
	if (h->at_ns >= look->begun_ns || h->state == AGE_ENDING)
		return;
	h->missed = line || look->partial ? 0 : h->missed + 1;
	if (h->missed == TOOLONG_MISSES)
		ages_drop(lock, h);
	if (!line)
		return;
	if (h->state == AGE_QUIET && (kills || (warn_ms && age_ms >= warn_ms)))
		toolong_mark(h, line);
	if (kills && h->state != AGE_STUCK)
		toolong_end(lock, h);
}

static void on_toolong_looked(struct survey *survey)
{
	struct toolong_look *look = (struct toolong_look *)survey;
	struct keeper *k = look->keeper;
	struct age *h, *next;

	k->toolong.crowded = look->partial;
	look->partial = look->partial || survey->error;
	k->toolong.looking = false;
	k->toolong.rest_until_ns = clock_now_ns() + TOOLONG_SHARE * survey->ran_ns;
	for (size_t i = 0; k->toolong.on && !k->leaving && i < look->count; i++) {
		struct file *file = file_find(k, look->locks[i].key.dev, look->locks[i].key.ino);
		struct lock *lock = file ? &file->locks[look->locks[i].space] : NULL;

		if (!lock)
			continue;
		HASH_ITER (hh, lock->ages, h, next)
			toolong_judge(look, i, lock, h);
		toolong_say(lock);
	}
	free(look->lines);
	free(look);
}

/* --- when --- */

static bool toolong_is_due(const struct lock *lock)
{
	const struct file *file = lock->file;
	const struct age *h, *next;

	/* Do the locks that were reported go on; which grants are of locks that have ended? */
	bool again = clock_now_ns() - lock->looked_ns >= TOOLONG_AGAIN_NS;

	if (again && HASH_COUNT(lock->ages) >= TOOLONG_FULL)
		return true;
	HASH_ITER (hh, lock->ages, h, next) {
		int64_t age_ms = age_ms_of(file->keeper, h);

		if (h->state == AGE_QUIET && file->warn_after_ms && age_ms >= file->warn_after_ms)
			return true;
		if (h->state < AGE_ENDING && file->kill_after_ms && age_ms >= file->kill_after_ms)
			return true;
		if (h->missed)
			return true;
		if (again && (h->state == AGE_WARNED || h->state == AGE_STUCK))
			return true;
	}
	return false;
}

static void toolong_begin(struct keeper *k)
{
	struct toolong_look *look = calloc(1, sizeof(*look));
	const size_t most = k->toolong.crowded ? 1 : TOOLONG_LOCKS;
	struct lock *lock, *next, *last = k->ages.locks->held_prev;
	struct holders_file file;

	if (!look)
		return;
	look->keeper = k;
	look->begun_ns = ages_now_ns(k);
	look->survey.commands = true;
	look->survey.row = toolong_on_holder;
	look->survey.done = on_toolong_looked;
	for (lock = k->ages.locks; lock && look->count < most; lock = lock == last ? NULL : next) {
		next = lock->held_next;
		if (!toolong_is_due(lock))
			continue;
		file = file_searched(lock->file);
		if (claims_add(&look->survey.claims, &file, lock->space, 0, WIRE_EOF, look->count) < 0)
			look->partial = true;
		look->locks[look->count].key = lock->file->key;
		look->locks[look->count++].space = lock->space;
		lock->looked_ns = clock_now_ns();
		/* The others come first the next time. */
		DL_DELETE2(k->ages.locks, lock, held_prev, held_next);
		DL_APPEND2(k->ages.locks, lock, held_prev, held_next);
	}
	look->lines = look->count ? calloc(TOOLONG_LINES, sizeof(*look->lines)) : NULL;
	k->toolong.looking = look->lines && survey_ask(k, &look->survey) == 0;
	if (k->toolong.looking)
		return;
	claims_free(&look->survey.claims);
	free(look->lines);
	free(look);
}

static void toolong_tick(uv_timer_t *timer)
{
	struct keeper *k = timer->data;
	/* Holders are frozen, or may be in this moment. */
	bool paused = table_frozen(k->table) || host_is_unsure(k);
	struct lock *lock;

	ages_tick(k, paused);
	if (k->leaving)
		return;
	toolong_take_back(k);
	if (paused || !k->ages.locks)
		return;
	DL_FOREACH2 (k->ages.locks, lock, held_next)
		toolong_say(lock);
	if (!k->toolong.looking && clock_now_ns() >= k->toolong.rest_until_ns)
		toolong_begin(k);
}

/* --- start and end --- */

void toolong_start(struct keeper *k)
{
	k->toolong.on = true;
	k->toolong.numbered = (uint64_t)clock_now_ns(); /* no number of an earlier keeper's */
	toolong_withdraw_all(k);
	ages_tick(k, false);
	uv_timer_init(k->loop, &k->toolong.timer);
	k->toolong.timer.data = k;
	uv_timer_start(&k->toolong.timer, toolong_tick, TOOLONG_TICK_MS, TOOLONG_TICK_MS);
}

void toolong_stop(struct keeper *k)
{
	if (!k->toolong.on)
		return;
	k->toolong.on = false;
	toolong_withdraw_all(k);
	uv_close((uv_handle_t *)&k->toolong.timer, NULL);
}
