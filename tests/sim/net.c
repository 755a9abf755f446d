/*
 * The network: two queues of packets for each connection, one each way, and the server's end. Packets of one connection stay in
 * order, as TCP keeps them; nothing else does. Packets that were sent before the client closed may still arrive, much later.
 */
#include "tests/sim/net.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/* How long a packet may take: in most runs always less than connect_ms, so that an answer is there in time. */
#define SLOW      (400 * MS)
#define VERY_SLOW (1100 * MS)

static struct conn *conns;
static unsigned conn_count;
unsigned net_loss;
bool net_slow;

/* Where no fault keeps a host from renewing, these must not, either: a keeper that dies just before a beat has a second left when the next one
 * begins, and renews by the answer to its third request. */
static int64_t slowest(void) { return faults_mild ? SLOW / 3 : SLOW; }

static void pump_up(void *arg, uint64_t number);
static void pump_down(void *arg, uint64_t number);

/* --- packets --- */

static struct packet *put(struct conn *conn, struct backlog *queue, sim_fn *pump)
{
	struct packet *p = sim_new(sizeof(*p));

	if (net_slow && rng_chance(&conn->rng, 60))
		p->ready = sim_now + rng_between(&conn->rng, 0, VERY_SLOW);
	else
		p->ready = sim_now + rng_delay(&conn->rng, slowest());
	if (p->ready < queue->ready)
		p->ready = queue->ready;
	queue->ready = p->ready;
	DL_APPEND(queue->first, p);
	sim_at(p->ready, pump, conn, 0);
	return p;
}

void packet_free(struct packet *p)
{
	for (int i = 0; i < p->argc; i++)
		free(p->argv[i]);
	free(p->argv);
	freeReplyObject(p->reply);
	free(p->text);
	free(p);
}

static struct packet *take(struct backlog *queue)
{
	struct packet *p = queue->first;

	if (!p || p->ready > sim_now)
		return NULL;
	DL_DELETE(queue->first, p);
	return p;
}

static void drop(struct backlog *queue)
{
	struct packet *p;

	while ((p = queue->first)) {
		DL_DELETE(queue->first, p);
		packet_free(p);
	}
}

/* --- the server's end --- */

static bool cut(int64_t until, sim_fn *pump, struct conn *conn)
{
	if (sim_now >= until)
		return false;
	sim_at(until + rng_delay(&conn->rng, slowest()), pump, conn, 0);
	return true;
}

static void conn_gone(struct conn *conn)
{
	conn->gone = true;
	free(conn->channel);
	conn->channel = NULL;
	drop(&conn->up);
	drop(&conn->down);
}

static void subscribe(struct conn *conn, const char *channel)
{
	struct packet *p = put(conn, &conn->down, pump_down);
	const char *words[] = {"subscribe", channel, "1"};

	conn->channel = strdup(channel);
	p->reply = calloc(1, sizeof(*p->reply));
	p->reply->type = REDIS_REPLY_ARRAY;
	p->reply->elements = 3;
	p->reply->element = calloc(3, sizeof(*p->reply->element));
	for (size_t i = 0; i < 3; i++) {
		p->reply->element[i] = calloc(1, sizeof(redisReply));
		p->reply->element[i]->type = REDIS_REPLY_STRING;
		p->reply->element[i]->str = strdup(words[i]);
		p->reply->element[i]->len = strlen(words[i]);
	}
}

static void execute(struct conn *conn, struct packet *up)
{
	redisReply *reply;
	struct packet *p;

	if (strcmp(up->argv[0], "SUBSCRIBE") == 0) {
		subscribe(conn, up->argv[1]);
		return;
	}
	reply = server_execute(up->argc, up->argv);
	if (conn->gone) { /* this killed the keeper */
		freeReplyObject(reply);
		return;
	}
	p = put(conn, &conn->down, pump_down);
	p->reply = reply;
}

/* Is its shard stopped? */
static bool shard_waits(struct conn *conn)
{
	const struct packet *p = conn->up.first;

	for (int i = 0; p && i < p->argc; i++)
		if (strncmp(p->argv[i], "dflock:{", 8) == 0)
			conn->shard = (unsigned)(p->argv[i][8] - '0') % SIM_SHARDS;
	return cut(server_shard_stopped_until[conn->shard], pump_up, conn);
}

/* The first packet is an empty one: the connection's own. */
static void pump_up(void *arg, uint64_t number)
{
	struct conn *conn = arg;
	struct packet *p;

	if (conn->gone || !conn->up.first || cut(conn->host->cut_up_until, pump_up, conn) ||
	    cut(server_stopped_until, pump_up, conn))
		return;
	while (!conn->gone && !shard_waits(conn) && (p = take(&conn->up))) {
		if (!server_up) {
			conn_gone(conn);
			if (sim_now >= conn->host->cut_down_until)
				link_broke(conn->link);
		} else if (p->fin) {
			conn_gone(conn);
		} else if (p->argc) {
			execute(conn, p);
		} else {
			link_connected(conn->link);
		}
		packet_free(p);
	}
}

static void pump_down(void *arg, uint64_t number)
{
	struct conn *conn = arg;
	struct packet *p;

	if (conn->gone || !conn->down.first || cut(conn->host->cut_down_until, pump_down, conn))
		return;
	while (!conn->gone && (p = take(&conn->down)))
		link_arrived(conn->link, p);
}

void net_publish(const char *channel, size_t channel_len, const char *text, size_t len)
{
	for (struct conn *conn = conns; conn; conn = conn->next) {
		if (conn->gone || !conn->channel || strlen(conn->channel) != channel_len ||
		    memcmp(conn->channel, channel, channel_len) != 0)
			continue;
		if (rng_chance(&conn->rng, net_loss)) {
			sim_trace("h%d: a message is lost: %.60s", conn->host->id, text);
			continue;
		}
		struct packet *p = put(conn, &conn->down, pump_down);

		p->text = malloc(len + 1);
		memcpy(p->text, text, len);
		p->text[len] = '\0';
		p->len = len;
	}
}

/* --- for the client's end --- */

struct conn *conn_open(struct host *host, struct link *link)
{
	struct conn *conn = sim_new(sizeof(*conn));

	*conn = (struct conn){.host = host, .link = link, .rng = rng_of("connection", conn_count++)};
	LL_PREPEND(conns, conn);
	put(conn, &conn->up, pump_up);
	return conn;
}

void conn_send(struct conn *conn, int argc, const char *const *argv)
{
	struct packet *p;

	if (conn->gone)
		return; /* the client will be told */
	p = put(conn, &conn->up, pump_up);
	p->argv = calloc((size_t)argc, sizeof(*p->argv));
	p->argc = argc;
	for (int i = 0; i < argc; i++)
		p->argv[i] = strdup(argv[i]);
}

/* The kernel goes on trying to send what is left, at growing intervals. */
static void linger(struct conn *conn)
{
	int64_t more = rng_between(&conn->rng, 0, NET_LATEST - SEC);

	for (struct packet *p = conn->up.first; p; p = p->next) {
		p->ready += more;
		sim_at(p->ready, pump_up, conn, 0);
	}
	conn->up.ready += more;
}

void conn_close(struct conn *conn)
{
	if (!conn->link)
		return;
	conn->link = NULL;
	if (conn->gone)
		return;
	if (rng_chance(&conn->rng, 300))
		linger(conn);
	put(conn, &conn->up, pump_up)->fin = true;
}

/* --- faults --- */

void net_silence(struct host *host)
{
	for (struct conn *conn = conns; conn; conn = conn->next)
		if (conn->host == host)
			conn->link = NULL;
}

void net_drop(struct host *host)
{
	for (struct conn *conn = conns; conn; conn = conn->next)
		if (conn->host == host)
			conn_close(conn);
}

static void reset(struct conn *conn)
{
	if (conn->gone)
		return;
	conn_gone(conn);
	if (sim_now >= conn->host->cut_down_until)
		link_broke(conn->link);
}

void net_reset(struct host *host)
{
	host_disturb(host);
	for (struct conn *conn = conns; conn; conn = conn->next)
		if (conn->host == host)
			reset(conn);
}

void net_reset_all(void)
{
	for (struct conn *conn = conns; conn; conn = conn->next)
		reset(conn);
}

void net_look(void)
{
	for (struct conn *conn = conns; conn; conn = conn->next) {
		sim_after(rng_delay(&conn->rng, slowest()), pump_up, conn, 0);
		sim_after(rng_delay(&conn->rng, slowest()), pump_down, conn, 0);
	}
}
