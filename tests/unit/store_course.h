/* store.h in the ordinary course, whatever server it is: two hosts, locks, messages, what people see. */
#ifndef DFLOCK_TESTS_UNIT_STORE_COURSE_H
#define DFLOCK_TESTS_UNIT_STORE_COURSE_H

#include "tests/unit/store_hosts.h"

TEST(a_lease_changes_hands)
{
	uint64_t fence = start_with_lock();
	ck_assert_int_eq(answer.reply.mode, WIRE_EXCLUSIVE);
	ck_assert_int_eq(acquire(&b, 2, WIRE_SHARED, w.range.from = 5, w.range.to = 7), STORE_WAIT);
	ck_assert_uint_eq(answer.reply.blocker_count, 1);
	ck_assert_str_eq(answer.reply.blockers[0].host, "host-a");
	ck_assert(!answer.reply.blockers[0].waiter);
	ck_assert_uint_gt(answer.reply.blockers[0].beat, 1600000000000);
	ck_assert_int_lt(answer.reply.blockers[0].age_ms, LIMIT_MS);
	wait_until(a.messages == 1);
	ck_assert_int_eq(a.message.kind, STORE_MSG_RECALL);
	ck_assert_str_eq(a.message.name, NAME);
	ck_assert_str_eq(a.message.token, token(1));
	ck_assert_str_eq(a.message.asker, "host-b");
	ck_assert_str_eq(a.message.asker_token, token(2));
	ck_assert_int_eq(a.message.range.mode, WIRE_SHARED);
	ck_assert_int_eq(a.message.range.space, WIRE_FLOCK);
	ck_assert_int_eq(a.message.range.from, 5);
	ck_assert_int_eq(a.message.range.to, 7);
	ck_assert(!a.message.ask);
	ck_assert_int_eq(release(&a, 1), STORE_OK);
	wait_until(b.messages == 1);
	ck_assert_int_eq(b.message.kind, STORE_MSG_GRANTED);
	ck_assert_str_eq(b.message.token, token(2));
	ck_assert_uint_gt(b.message.fence, fence); /* a server may leave numbers out */
	assert_ok(store_confirm(b.store, NAME, token(2), b.message.fence, on_answer, &answer));
	ck_assert_uint_eq(answer.reply.fence, b.message.fence);
	ck_assert_int_eq(answer.reply.mode, WIRE_SHARED);
	ck_assert_int_eq(ask(store_confirm(b.store, NAME, token(2), fence, on_answer, &answer)), STORE_GONE);
	ck_assert_int_eq(ask(store_shrink(a.store, NAME, token(1), on_answer, &answer)), STORE_GONE);
}

TEST(a_question)
{
	start_with_lock();
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE, w.ask = true), STORE_WAIT);
	wait_until(a.messages == 1);
	ck_assert(a.message.ask);
	ck_assert_int_eq(acquire(&b, 4, WIRE_EXCLUSIVE, w.file = "1:4"), STORE_WAIT);
	ck_assert_uint_gt(answer.reply.arrival, 1);
	ck_assert_int_eq(acquire(&b, 3, WIRE_EXCLUSIVE, w.ask = true, w.file = "1:3"), STORE_BUSY);
	ck_assert_uint_eq(answer.reply.blocker_count, 2);
	ck_assert(answer.reply.blockers[1].waiter);
	wait_until(a.messages == 2);
	a.message.kind = STORE_MSG_IN_USE;
	memcpy(a.message.token, a.message.asker_token, sizeof(a.message.token));
	store_tell(a.store, a.message.asker, &a.message);
	wait_until(b.messages == 1);
	ck_assert_int_eq(b.message.kind, STORE_MSG_IN_USE);
	ck_assert_str_eq(b.message.token, token(4));
	ck_assert_str_eq(b.message.name, NAME);
	ck_assert_str_eq(b.message.holder, "host-a");
}

TEST(a_dead_host)
{
	struct store_blocker seen;

	start_with_lock();
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE), STORE_WAIT);
	seen = answer.reply.blockers[0];
	ck_assert_int_eq(beat(&a), STORE_OK);
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE, w.dead = &seen, w.dead_count = 1), STORE_WAIT);
	ck_assert_uint_gt(answer.reply.blockers[0].beat, seen.beat);
	seen = answer.reply.blockers[0];
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE, w.dead = &seen, w.dead_count = 1), STORE_OK);
	assert_ok(store_leave(b.store, on_answer, &answer));
}

#define RECORD_FROM(a, b) w.range.space = WIRE_RECORD, w.range.from = a, w.range.to = b

TEST(offsets_and_arguments)
{
	start_both();
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE, RECORD_FROM(WIRE_EOF - 1, WIRE_EOF)), STORE_OK);
	ck_assert_int_eq(acquire(&b, 2, WIRE_SHARED, RECORD_FROM(0, WIRE_EOF - 1)), STORE_OK);
	ck_assert_int_eq(acquire(&b, 3, WIRE_SHARED, RECORD_FROM(0, WIRE_EOF)), STORE_WAIT);
	wait_until(a.messages == 1);
	ck_assert_int_eq(a.message.range.to, WIRE_EOF);
	ck_assert_int_eq(acquire(&a, 4, WIRE_SHARED, w.range.to = 0), STORE_ERROR);
	ck_assert_int_eq(acquire(&a, 4, WIRE_SHARED, w.token = "short"), STORE_ERROR);
	ck_assert_int_eq(acquire(&a, 4, WIRE_SHARED, w.name = ""), STORE_ERROR);
	ck_assert_int_eq(acquire(&a, 4, WIRE_SHARED, w.file = "a b"), STORE_ERROR);
	ck_assert_ptr_nonnull(strstr(answer.error, "file"));
}

/* ---- sweeping and dumping ---- */

TEST(sweeping)
{
	char name[32];

	start_both();
	for (unsigned i = 0; i < 40; i++) {
		snprintf(name, sizeof(name), "lock %u", i);
		ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE, w.name = name), STORE_OK);
	}
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE, w.name = "lock 7"), STORE_WAIT);
	assert_ok(store_hosts(b.store, on_hosts, &answer));
	ck_assert_uint_eq(host_rows, 2);
	struct store_blocker silent = host_row[strcmp(host_row[0].host, "host-a") != 0];
	ck_assert_int_eq(beat(&a), STORE_OK);
	ck_assert_int_eq(ask(store_sweep(b.store, &silent, on_answer, &answer)), STORE_GONE);
	assert_ok(store_hosts(b.store, on_hosts, &answer));
	silent = host_row[strcmp(host_row[0].host, "host-a") != 0];
	assert_ok(store_sweep(b.store, &silent, on_answer, &answer));
	wait_until(b.messages == 1); /* granted */
	assert_ok(store_hosts(b.store, on_hosts, &answer));
	ck_assert_uint_eq(host_rows, 1);
	for (unsigned i = 0; i < 40; i++) {
		snprintf(name, sizeof(name), "lock %u", i);
		ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE, w.name = name), STORE_OK);
	}
}

TEST(dumping)
{
	const char *name, *mode, *host;
	json_int_t fence, beat;
	int open;

	start_both();
	assert_ok(store_dump(a.store, &on_dump, &answer));
	ck_assert_uint_eq(json_array_size(json_object_get(dumped, "locks")), 0);
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE, w.name = "\xe4 name"), STORE_OK);
	uint64_t granted = answer.reply.fence;
	ck_assert_int_eq(acquire(&b, 2, WIRE_SHARED, w.name = "\xe4 name"), STORE_WAIT);
	assert_ok(store_dump(a.store, &on_dump, &answer));
	ck_assert_int_eq(json_unpack(dumped, "{s:b, s:{s:{s:I}}, s:[{s:s, s:[{s:I, s:s}], s:[{s:s}]}]}", "open", &open,
				     "hosts", "host-b", "beat", &beat, "locks", "name", &name, "leases", "fence",
				     &fence, "mode", &mode, "waiters", "host", &host),
			 0);
	ck_assert(open);
	ck_assert_str_eq(name, "\\xe4 name");
	ck_assert_uint_eq((uint64_t)fence, granted);
	ck_assert_str_eq(mode, "exclusive");
	ck_assert_str_eq(host, "host-b");
	json_decref(dumped);
	dumped = NULL;
}

#endif
