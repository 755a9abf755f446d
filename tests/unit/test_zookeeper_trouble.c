/* store/zookeeper/: what store_trouble.h has. */
#include "tests/unit/zookeeper_server.h"
/* Behind it: tests. */
#include "tests/unit/store_trouble.h"

static void trouble_proxy(void)
{
	static char behind[64];

	proxy.at.ip = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	proxy.to.ip = proxy.at.ip;
	proxy.to.ip.sin_port = htons((uint16_t)servers[0].port);
	proxy_start(&proxy);
	snprintf(behind, sizeof(behind), "127.0.0.1:%d%s", ntohs(proxy.at.ip.sin_port), path);
	config.zookeeper = behind;
}

static void trouble_clean(void)
{
	struct zookeeper *zk = b.store->at;

	zk_clean(zk, ZK_LOCK, 0);
	wait_until(!zk->clean);
	ck_assert_uint_eq(names_in("/locks"), 0);
}

/* It has seen no more than the list so far, and the server nothing that it says from now on. That is looked at in front of each turn of the
 * proxy: a slow turn of the loop has two. */
static void hold_when_listed(void)
{
	const struct zookeeper *zk = a.store->at;

	if (zk->first && zk->first->lists[ZK_HOST].loaded)
		proxy_tell(&proxy, PROXY_HOLD, 0);
	turn_proxy();
}

/* It is not among the hosts that were listed, and the change is not for it. */
TEST(a_host_that_comes_when_the_others_are_listed_for_a_change_of_ttl)
{
	struct asked of_a = {.answers = 0};

	start_with_another_ttl();
	each_tick = hold_when_listed;
	store_open(a.store, STORE_OPEN_FORCED, "", on_other, &of_a);
	wait_until(proxy.way == PROXY_HOLD);
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE), STORE_OK);
	each_tick = turn_proxy;
	proxy_tell(&proxy, PROXY_PASS, 0);
	wait_until(of_a.answers > 0);
	ck_assert_int_ne(of_a.reply.status, STORE_OK);
	proxy_end(&proxy);
}
