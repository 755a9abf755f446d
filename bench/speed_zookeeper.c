/*
 * store/zookeeper/: what a lock costs beside a multi-op of a plain client, which checks one node and sets two, in turn with it (make
 * speed-zookeeper).
 */
#include "tests/unit/zookeeper_server.h"
/* Behind it: tests. */
#include "bench/speed.h"

static void time_multi(struct samples *s)
{
	static const char *const nodes[] = {"/dflock-one", "/dflock-two"};
	zoo_op_result_t results[3];
	struct Stat stats[2];
	zoo_op_t ops[3];
	static bool open;

	if (!open) { /* its session may have ended while nobody asked it anything */
		zookeeper_close(other);
		other_start();
		open = true;
	}

	zoo_check_op_init(&ops[0], path, -1);
	for (int i = 0; i < 2; i++)
		zoo_set_op_init(&ops[1 + i], nodes[i], "what a lock and a host have", 27, -1, &stats[i]);
	int64_t since = now_ns();
	int rc = other_call(zoo_amulti(other, 3, ops, results, other_on_void, NULL));
	sample(s, since);
	for (int i = 0; i < 2 && rc == ZNONODE; i++)
		other_call(zoo_acreate(other, nodes[i], "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, other_on_string, NULL));
	ck_assert(rc == ZOK || rc == ZNONODE); /* the first time */
}

TEST(a_lock_beside_a_multi_op)
{
	start_both();
	time_all("three servers in /dev/shm", "multi-op of one check and two sets", time_multi);
	other_remove("/dflock-one");
	other_remove("/dflock-two");
}
