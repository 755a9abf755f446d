/* keeper/leases/queue.c: the order of events and news, no recursion, and when ended leases are freed. */
#include "keeper/leases/queue.h"

#include <utlist.h>

#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/waiters.h"
#include "tests/unit/said.h"
#include "tests/unit/suite.h"

#define LEASES  3
#define WAITERS 3

static struct keeper k;
static struct file file;
static struct lock *lock;
static struct lease leases[LEASES];
static struct waiter waiters[WAITERS];

static int depth;
static unsigned to_free;
static void (*in_step)(struct lease *lease, enum lease_cue event);
static void (*when_told)(struct waiter *waiter, unsigned news);

static void say_of(const char *before, const struct lease *lease, const char *behind)
{
	char word[64];
	snprintf(word, sizeof(word), "%s%c%s", before, (char)('a' + (lease - leases)), behind);
	say(word);
}

static void on_step(struct lease *lease, enum lease_cue event)
{
	ck_assert_int_eq(depth++, 0);
	say_of("", lease, ":");
	strcat(said, lease_cue_name(event));
	if (in_step)
		in_step(lease, event);
	queue_settle(&k); /* an input inside of another one */
	depth--;
}

static void on_send(struct keeper *keeper)
{
	ck_assert_ptr_eq(keeper, &k);
	ck_assert_ptr_null(k.queue.events);
}

static void on_obey(struct lease *lease) { say_of("obey ", lease, ""); }

static unsigned on_reap(struct keeper *keeper)
{
	unsigned freed = to_free;
	ck_assert_ptr_eq(keeper, &k);
	ck_assert(!k.queue.events && !k.queue.told && !k.queue.in_use && !k.queue.obeying && !k.queue.store);
	to_free = 0;
	return freed;
}

static void on_told(struct waiter *waiter, unsigned news, const char *why)
{
	char word[64];

	ck_assert_int_eq(depth++, 0);
	ck_assert_ptr_null(k.queue.events);
	snprintf(word, sizeof(word), "told %d %u%s%s", (int)(waiter - waiters), news, news & WAITER_REFUSED ? " " : "",
		 news & WAITER_REFUSED ? why : "");
	say(word);
	if (when_told)
		when_told(waiter, news);
	queue_settle(&k);
	depth--;
}

static void on_in_use(const struct lease *lease) { say_of("in use ", lease, ""); }

static void on_store(struct member *member, enum queue_store what)
{
	ck_assert_ptr_eq(member, &k.members[0]);
	say(what == QUEUE_STORE_TRIED ? "tried" : "down");
}

static void on_freed(struct keeper *keeper)
{
	ck_assert_ptr_eq(keeper, &k);
	say("freed");
}

static void prepare(void)
{
	static const struct queue_work work = {.step = on_step, .send = on_send, .obey = on_obey, .reap = on_reap};
	static const struct queue_news news = {
		.told = on_told, .in_use = on_in_use, .store = on_store, .leases_freed = on_freed};

	memset(&k, 0, sizeof(k));
	k.member_count = 1;
	k.members[0].keeper = &k;
	memset(leases, 0, sizeof(leases));
	memset(waiters, 0, sizeof(waiters));
	k.queue.work = &work;
	k.queue.news = &news;
	file = (struct file){.keeper = &k, .member = &k.members[0]};
	lock = &file.locks[WIRE_FLOCK];
	*lock = (struct lock){.file = &file, .space = WIRE_FLOCK};
	for (int i = 0; i < LEASES; i++) {
		leases[i].lock = lock;
		snprintf(leases[i].token, sizeof(leases[i].token), "%d", i);
		DL_APPEND(lock->leases, &leases[i]);
		HASH_ADD_STR(k.leases, token, &leases[i]);
	}
	for (int i = 0; i < WAITERS; i++) {
		waiters[i].lock = lock;
		DL_APPEND(lock->waiters, &waiters[i]);
	}
	said[0] = '\0';
	to_free = 0;
	in_step = NULL;
	when_told = NULL;
}

static void clean(void) { HASH_CLEAR(hh, k.leases); }
FIXTURE(prepare, clean)

TEST(events_in_the_order_in_which_they_were_raised)
{
	queue_raise(&leases[1], LEASE_CUE_FREE);
	queue_raise(&leases[0], LEASE_CUE_GRANTED);
	queue_raise(&leases[1], LEASE_CUE_EXPIRED);
	queue_raise(&leases[0], LEASE_CUE_GRANTED); /* it waits already */
	ck_assert_str_eq(said, "");
	queue_settle(&k);
	check_said("b:free, a:granted, b:expired");
	queue_raise(&leases[0], LEASE_CUE_GRANTED);
	queue_settle(&k);
	check_said("a:granted");
	queue_raise(&leases[0], LEASE_CUE_UP);
	queue_stop(&k); /* a keeper that ends does nothing */
	queue_settle(&k);
	check_said("");
}

static void supersede_the_next(struct lease *lease, enum lease_cue event)
{
	if (event == LEASE_CUE_GRANTED)
		queue_raise(lease + 1, LEASE_CUE_SUPERSEDED);
	if (event == LEASE_CUE_SUPERSEDED)
		waiters_serve(lock);
}

/* on_step() and on_told() fail if one is called inside of another. */
TEST(a_step_raises_and_does_not_recurse)
{
	in_step = supersede_the_next;
	queue_raise(&leases[0], LEASE_CUE_GRANTED);
	queue_raise(&leases[2], LEASE_CUE_UP);
	queue_settle(&k);
	ck_assert_str_eq(said, "a:granted, c:up, b:superseded, told 0 1, told 1 1, told 2 1");
}

static void give_up(struct waiter *waiter, unsigned news)
{
	if (waiter == &waiters[0])
		queue_raise(&leases[0], LEASE_CUE_UNWANTED);
}

TEST(all_events_before_the_next_caller)
{
	when_told = give_up;
	queue_tell(&waiters[0], WAITER_SERVE);
	queue_tell(&waiters[1], WAITER_SERVE);
	queue_raise_all(&k.members[0], LEASE_CUE_EXPIRED);
	queue_settle(&k);
	ck_assert_str_eq(said, "a:expired, b:expired, c:expired, told 0 1, a:unwanted, told 1 1");
}

/* All of its news at once; not a caller that left; the reason of a refusal. */
TEST(news_of_callers)
{
	queue_tell(&waiters[1], WAITER_QUEUED);
	queue_tell(&waiters[0], WAITER_SERVE);
	queue_tell(&waiters[1], WAITER_IN_USE);
	queue_tell(&waiters[2], WAITER_SERVE);
	queue_untell(&waiters[0]);
	queue_untell(&waiters[0]);
	queue_settle(&k);
	check_said("told 1 6, told 2 1");
	waiters[0].why = strdup("no room");
	queue_tell(&waiters[0], WAITER_REFUSED);
	queue_tell(&waiters[1], WAITER_REFUSED); /* no memory for it */
	queue_settle(&k);
	check_said("told 0 8 no room, told 1 8 the keeper has no memory left");
	ck_assert_ptr_null(waiters[0].why);
}

TEST(what_comes_when)
{
	to_free = 2;
	queue_obey(&leases[2]);
	queue_obey(&leases[2]);
	queue_tell(&waiters[0], WAITER_SERVE);
	queue_tell_in_use(&leases[1]);
	queue_tell_in_use(&leases[1]);
	queue_tell_store(&k.members[0], QUEUE_STORE_DOWN);
	queue_tell_store(&k.members[0], QUEUE_STORE_TRIED);
	queue_raise(&leases[0], LEASE_CUE_UP);
	queue_settle(&k);
	check_said("a:up, tried, down, in use b, told 0 1, obey c, freed");
	queue_settle(&k);
	check_said("");
	queue_obey(&leases[2]);
	queue_tell_in_use(&leases[1]);
	queue_settle(&k);
	check_said("in use b, obey c");
}
