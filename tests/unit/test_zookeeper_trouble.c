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

/* All of an ensemble has no room. */
static const char *trouble_disk(void)
{
	for (int i = 0; i < SERVERS; i++)
		kill_server(i);
	ck_assert_int_eq(mount("none", dir, "tmpfs", 0, "size=8m"), 0);
	for (int i = 0; i < SERVERS; i++) {
		configure(i);
		start_server(i);
	}
	wait_for_all();
	return dir;
}

/* A server ends when it cannot write its log. */
static void trouble_mend(void)
{
	for (int i = 0; i < SERVERS; i++)
		if (!runs(servers[i].pid)) {
			waitpid(servers[i].pid, NULL, 0);
			start_server(i);
		}
	wait_for_all();
}

static void trouble_disk_end(void)
{
	for (int i = 0; i < SERVERS; i++)
		kill_server(i);
}
