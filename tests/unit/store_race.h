/* Hosts that want one name, or many, whatever server it is: each lock is alone, and fences rise. */
#ifndef DFLOCK_TESTS_UNIT_STORE_RACE_H
#define DFLOCK_TESTS_UNIT_STORE_RACE_H

#include "tests/unit/store_hosts.h"

#define RACERS 16
#define TURNS  25

enum racer_state {
	RACER_ASKS,
	RACER_WAITS,
	RACER_HOLDS,
	RACER_RECLAIMS,
	RACER_RELEASES,
	RACER_STILL_HAS,
};

static struct racer {
	struct host host;
	char id[16], name[16];
	unsigned turn, number, ups, changes; /* connections, and incarnations, that it has followed */
	uint64_t fence;
	enum racer_state state;
	bool again;
} racers[RACERS];
static struct {
	const struct racer *holder;
	uint64_t fence;
} race_of[RACERS];

static inline const char *race_token(const struct racer *r) { return token(r->number * 1000 + r->turn + 1); }

/* Granted: it is alone, and has the largest fence of the name. What was not answered is asked again, with the same token. */
static inline void race_on(void *arg, const struct store_reply *reply)
{
	struct racer *r = arg;
	size_t n = (size_t)atoi(r->name);

	r->state = RACER_WAITS;
	r->again = reply->status == STORE_UNREACHABLE || reply->status == STORE_GRACE ||
		   reply->status == STORE_INCARNATION;
	if (reply->status == STORE_WAIT || r->again)
		return;
	ck_assert_msg(reply->status == STORE_OK, "%d %s", reply->status, reply->error ? reply->error : "");
	ck_assert_ptr_null(race_of[n].holder);
	ck_assert_uint_gt(reply->fence, race_of[n].fence);
	race_of[n].fence = r->fence = reply->fence;
	race_of[n].holder = r;
	r->state = RACER_HOLDS;
}

static inline struct store_acquire race_want(const struct racer *r)
{
	struct store_acquire w = want(0, WIRE_EXCLUSIVE);

	w.name = r->name;
	w.token = race_token(r);
	return w;
}

static inline void race_ask(struct racer *r)
{
	struct store_acquire w = race_want(r);

	r->state = RACER_ASKS;
	r->again = false;
	r->host.messages = 0;
	r->ups = r->host.ups;
	store_acquire(r->host.store, &w, race_on, r);
}

/* It was confirmed, so it must stand. */
static inline void race_on_reclaimed(void *arg, const struct store_reply *reply)
{
	struct racer *r = arg;

	r->state = RACER_HOLDS;
	if (reply->status == STORE_OK)
		return;
	ck_assert_msg(reply->status == STORE_UNREACHABLE || reply->status == STORE_INCARNATION, "%d", reply->status);
	r->changes = 0;
}

static inline void race_reclaim(struct racer *r)
{
	struct store_acquire w = race_want(r);

	r->state = RACER_RECLAIMS;
	r->changes = r->host.changes;
	store_reclaim(r->host.store, w.name, w.file, w.token, r->fence, &w.range, NULL, race_on_reclaimed, r);
}

static inline void race_on_released(void *arg, const struct store_reply *reply)
{
	struct racer *r = arg;

	if (reply->status == STORE_UNREACHABLE || reply->status == STORE_INCARNATION) {
		r->state = RACER_STILL_HAS;
		return;
	}
	ck_assert_int_eq(reply->status, STORE_OK);
	if (++r->turn < TURNS)
		race_ask(r);
}

static inline void race_go_on(struct racer *r)
{
	size_t n = (size_t)atoi(r->name);

	if (r->turn == TURNS || !store_is_up(r->host.store))
		return;
	if (r->state == RACER_HOLDS && r->changes != r->host.changes) {
		race_reclaim(r);
	} else if (r->state == RACER_WAITS &&
		   (r->host.messages || r->again || r->ups != r->host.ups)) { /* granted, perhaps */
		race_ask(r);
	} else if (r->state == RACER_HOLDS || r->state == RACER_STILL_HAS) {
		if (r->state == RACER_HOLDS)
			race_of[n].holder = NULL;
		r->state = RACER_RELEASES;
		store_release(r->host.store, r->name, race_token(r), false, race_on_released, r);
	} else if (r->state == RACER_WAITS || r->state == RACER_ASKS) {
		r->changes = r->host.changes;
	}
}

static inline unsigned race_turns(void)
{
	unsigned turns = 0;

	for (struct racer *r = racers; r < racers + RACERS; r++) {
		race_go_on(r);
		turns += r->turn;
	}
	return turns;
}

static inline void race_begin(unsigned names)
{
	for (unsigned i = 0; i < RACERS; i++) {
		struct racer *r = &racers[i];

		*r = (struct racer){.number = i};
		snprintf(r->id, sizeof(r->id), "racer-%u", i);
		snprintf(r->name, sizeof(r->name), "%u", i % names);
		start(&r->host, r->id);
	}
	for (struct racer *r = racers; r < racers + RACERS; r++) {
		wait_until(r->host.ups == 1);
		r->changes = r->host.changes;
	}
	assert_ok(store_open(racers[0].host.store, STORE_OPEN_FORCED, "", on_answer, &answer));
	memset(race_of, 0, sizeof(race_of));
	for (unsigned i = 0; i < RACERS; i++)
		race_ask(&racers[i]);
}

static inline void race_end(void)
{
	for (unsigned i = 0; i < RACERS; i++)
		stop(&racers[i].host);
}

/* `names`: names for so many; each has as many hosts. hurt(n), n from 0 to hurts - 1, is called in the course of it, and ends when the
 * server is well again or is about to be. Returns how many times a host was down in all. */
static inline unsigned race(unsigned names, unsigned hurts, void (*hurt)(unsigned n))
{
	int64_t last = server_clock_ms() + 50000;
	unsigned hurt_so_far = 0, turns = 0, downs = 0;

	race_begin(names);
	while ((turns = race_turns()) < RACERS * TURNS) {
		ck_assert_msg(server_clock_ms() < last, "only %u turns", turns);
		uv_run(&loop, UV_RUN_ONCE);
		if (hurt_so_far < hurts && turns > RACERS * TURNS / (hurts + 1) * (hurt_so_far + 1))
			hurt(hurt_so_far++);
	}
	for (unsigned i = 0; i < RACERS; i++) {
		downs += racers[i].host.downs;
		ck_assert_uint_eq(racers[i].host.changes, 1); /* the same memory all the time */
	}
	race_end();
	ck_assert(!hurts || hurt_so_far);
	return downs;
}

#endif
