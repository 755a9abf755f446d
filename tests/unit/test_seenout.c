/*
 * keeper/leases/seenout.c: what is tried again, and when; threads are seen out by the test. And keeper/leases/calledback.c: which call keeps
 * its place, and how long no thread is called back again.
 */
#include "keeper/leases/seenout.h"

#include "keeper/clock.h"
#include "keeper/kernel/onbehalf.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/queue.h"
#include "tests/unit/base_folder.h"

#define PLACES  2
#define SOON_MS 20
#define MS      NS_PER_MS

static uv_loop_t loop;
static struct keeper k;
static struct table table;
static struct file file = {.keeper = &k, .key = {.dev = 1, .ino = 2}};
static struct lock *lock = &file.locks[WIRE_FLOCK];
static const struct store_range all = {.space = WIRE_FLOCK, .mode = WIRE_EXCLUSIVE, .to = WIRE_EOF};
static seeout_cb *answer;
static size_t running[64]; /* the tags, as they were started */
static unsigned started, answered, unpinned, cancelled;
static int dir_fd;

struct seeouts *seeouts_new(uv_loop_t *of, seeout_cb *cb, void *arg)
{
	answer = cb;
	return (struct seeouts *)&loop;
}

void seeouts_free(struct seeouts *seeouts) {}
void seeout_cancel(struct seeouts *seeouts, size_t tag)
{
	cancelled++;
	ck_assert_uint_eq(tag, running[cancelled - 1]);
}

int seeout_start(struct seeouts *seeouts, pid_t tid, uint64_t since, enum seeout_how how, uid_t uid, size_t tag)
{
	if (started - answered == PLACES)
		return -EAGAIN;
	running[started++] = tag;
	return 0;
}

enum seeout_answer seeout_now(pid_t tid, uint64_t since, enum seeout_how how) { return SEEOUT_REFUSED; }
void queue_settle(struct keeper *of) {}

struct file *file_find(struct keeper *of, uint64_t dev, uint64_t ino)
{
	return dev == file.key.dev && ino == file.key.ino ? &file : NULL;
}

static void on_unpinned(struct lock *of) { unpinned += of == lock; }

static void setup(void)
{
	started = answered = unpinned = cancelled = 0;
	base_make();
	dir_fd = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_eq(underway_open(&table.underway, dir_fd), 0);
	memset(&k, 0, sizeof(k));
	k.table = &table;
	k.loop = &loop;
	*lock = (struct lock){.file = &file, .space = WIRE_FLOCK};
	ck_assert_int_eq(uv_loop_init(&loop), 0);
	ck_assert_int_eq(seenout_start(&k, on_unpinned), 0);
}

static void teardown(void)
{
	seenout_stop(&k);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
	underway_close(&table.underway);
	close(dir_fd);
	base_remove();
}
FIXTURE(setup, teardown)

static void note(int thread)
{
	const struct onbehalf who = {.thread = thread, .pid = thread, .started = 1};

	ck_assert_int_eq(seenout_note(lock, &all, &who, 1), 0);
}

static uint64_t next_look_ms(void)
{
	return uv_is_active((uv_handle_t *)&k.seenout.again) ? uv_timer_get_due_in(&k.seenout.again) : UINT64_MAX;
}

TEST(the_next_one_has_the_place_at_once)
{
	for (int i = 1; i <= 5; i++)
		note(i);
	ck_assert(seenout_is_wanted(lock, &all, false));
	ck_assert_uint_eq(started, PLACES);
	while (answered < 5) {
		unsigned before = started;

		answer(&k, running[answered++], SEEOUT_OUT);
		ck_assert_uint_eq(unpinned, answered);
		if (before == 5)
			continue;
		ck_assert_uint_eq(next_look_ms(), 0);
		uv_run(&loop, UV_RUN_NOWAIT);
		ck_assert_uint_eq(started, before + 1);
	}
	ck_assert(!seenout_is_wanted(lock, &all, false));
}

/* The kernel keeps the first one for long; that is looked at late. */
TEST(what_finds_no_place_does_not_wait_for_what_is_late)
{
	note(1);
	ck_assert(seenout_is_wanted(lock, &all, false));
	ck_assert_uint_gt(next_look_ms(), SOON_MS);
	note(2);
	note(3);
	ck_assert(seenout_is_wanted(lock, &all, false));
	ck_assert_uint_eq(started, PLACES);
	ck_assert_uint_le(next_look_ms(), SOON_MS);
}

/* Nobody waited when it was begun; it may only be seen out with force. */
TEST(what_is_wanted_meanwhile_is_tried_at_once)
{
	note(1);
	ck_assert(seenout_is_wanted(lock, &all, true));
	ck_assert(seenout_is_wanted(lock, &all, false));
	answer(&k, running[answered++], SEEOUT_REFUSED);
	uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_uint_eq(started, 2);
	answer(&k, running[answered++], SEEOUT_REFUSED); /* another process traces it */
	ck_assert_uint_gt(next_look_ms(), 0);
	ck_assert_uint_le(next_look_ms(), SOON_MS);
}

static void begin_next_call(int thread)
{
	const struct onbehalf who = {.thread = thread, .pid = thread, .started = 1};
	bool again;

	ck_assert(seenout_begin(&k, &who, 2, &again) && !again);
}

/* It may wait in the store's queue, and would lose its place. */
TEST(nobody_is_seen_out_of_the_next_call)
{
	for (int i = 1; i <= 3; i++)
		note(i);
	ck_assert(seenout_is_wanted(lock, &all, false));
	ck_assert_uint_eq(started, PLACES);
	begin_next_call(1);
	ck_assert_uint_eq(cancelled, 1);
	begin_next_call(3);
	ck_assert_uint_eq(cancelled, 1);
	answer(&k, running[answered++], SEEOUT_OUT);
	uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_uint_eq(started, PLACES);
	ck_assert(seenout_is_wanted(lock, &all, false)); /* by thread 2 */
	begin_next_call(2);
	ck_assert(!seenout_is_wanted(lock, &all, false));
}

/* --- calledback.c --- */

static struct calledback cb;

static void none(void) { cb = (struct calledback){0}; }
FIXTURE(none, NULL)

static const struct underway_call call = {
	.thread = 7, .started = 70, .number = 1, .dev = 1, .ino = 2, .space = 1, .to = 10};

static struct underway_call next_call(uint64_t number)
{
	struct underway_call next = call;

	next.number = number;
	return next;
}

TEST(a_call_begins_anew_once)
{
	struct underway_call next = next_call(2), other = next_call(2);

	ck_assert(!calledback_asks(&cb, &next));
	calledback_note(&cb, &call, 1000 * MS);
	other.to = 11;
	ck_assert(!calledback_asks(&cb, &other));
	other = next;
	other.started = 71;
	ck_assert(!calledback_asks(&cb, &other));
	ck_assert(calledback_asks(&cb, &next));
	ck_assert(!calledback_asks(&cb, &next));
	calledback_note(&cb, &next, 2000 * MS);
	ck_assert(calledback_asks(&cb, &next));
}

TEST(pauses_double)
{
	static const int64_t pauses[] = {20, 40, 80, 160, 320, 320};
	int64_t now = 640 * MS;

	for (size_t i = 0; i < sizeof(pauses) / sizeof(*pauses); i++) {
		const struct underway_call next = next_call(i);
		const int64_t end = now / (pauses[i] * MS) * (pauses[i] * MS) + pauses[i] * MS;

		calledback_note(&cb, &next, now);
		ck_assert(calledback_lately(&cb, &next, end - 1));
		ck_assert(!calledback_lately(&cb, &next, end));
		now = end;
	}
	now += 1000 * MS;
	calledback_note(&cb, &call, now);
	ck_assert(!calledback_lately(&cb, &call, now + 20 * MS));
}

/* For a probe both must be out at one time. */
TEST(pauses_of_all_threads_end_together)
{
	struct underway_call other = call;

	other.thread = 8;
	for (int64_t now = 637 * MS, i = 0; i < 9; i++, now += 331 * MS) {
		calledback_note(&cb, &call, now);
		calledback_note(&cb, &other, now + 7 * i * MS);
	}
	ck_assert(calledback_lately(&cb, &call, 3520 * MS - 1) && calledback_lately(&cb, &other, 3520 * MS - 1));
	ck_assert(!calledback_lately(&cb, &call, 3520 * MS) && !calledback_lately(&cb, &other, 3520 * MS));
}

TEST(the_oldest_is_forgotten)
{
	struct underway_call next = call;

	for (int i = 0; i <= CALLEDBACK_THREADS; i++) {
		next.thread = i + 1;
		calledback_note(&cb, &next, (1000 + i) * MS);
	}
	ck_assert(calledback_asks(&cb, &next));
	next.thread = 1;
	ck_assert(!calledback_asks(&cb, &next));
	next.thread = 2;
	ck_assert(calledback_asks(&cb, &next));
}
