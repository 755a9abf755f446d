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
