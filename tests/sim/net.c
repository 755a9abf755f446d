/*
 * store/link.h without sockets: two queues of packets for each connection, one each way. Packets of one connection stay
 * in order, as TCP keeps them; nothing else does. Packets that were sent before the client closed may still arrive,
 * much later.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "store/link.h"
#include "tests/sim/sim.h"

/* How long a packet may take: in most runs always less than connect_ms, so that an answer is there in time. */
#define SLOW      (400 * MS)
#define VERY_SLOW (1100 * MS)

enum link_state { LINK_CONNECTING, LINK_OPEN, LINK_BROKEN, LINK_CLOSED };

struct pending {
	struct pending *next;
	link_reply_cb *cb;
	void *arg;
	int64_t sent;
};

struct link {
	struct host *host;
	unsigned life;
	enum link_state state;
	int64_t limit, started;
	struct link_events events;
	void *arg;
	struct pending *first, **last;
	struct conn *conn;
	struct packet *delivering; /* its callback runs */
};

struct packet {
	struct packet *next;
	int64_t ready;
	bool fin;
	int argc; /* up */
	char **argv;
	redisReply *reply, *owned; /* down: an answer, or ... */
	char *text;                /* ... a message */
	size_t len;
};

struct backlog {
	struct packet *first, **last;
	int64_t ready; /* of the last one */
};

struct conn {
	struct conn *next;
	struct host *host;
	struct link *link; /* NULL: closed by the client */
	struct rng rng;
	bool gone; /* the server knows nothing of it (any more) */
	char *channel;
	struct backlog up, down;
};
static struct conn *conns;
static unsigned conn_count;
unsigned net_loss;
bool net_slow;

static void pump_up(void *arg, uint64_t number);
static void pump_down(void *arg, uint64_t number);

/* --- packets --- */

static struct packet *put(struct conn *conn, struct backlog *queue, sim_fn *pump)
{
	struct packet *p = calloc(1, sizeof(*p));

	if (!p)
		abort();
	if (net_slow && rng_chance(&conn->rng, 60))
		p->ready = sim_now + rng_between(&conn->rng, 0, VERY_SLOW);
	else
		p->ready = sim_now + rng_delay(&conn->rng, SLOW);
	if (p->ready < queue->ready)
		p->ready = queue->ready;
	queue->ready = p->ready;
	*queue->last = p;
	queue->last = &p->next;
	sim_at(p->ready, pump, conn, 0);
	return p;
}

static void packet_free(struct packet *p)
{
	for (int i = 0; i < p->argc; i++)
		free(p->argv[i]);
	free(p->argv);
	freeReplyObject(p->owned);
	free(p->text);
	free(p);
}

static struct packet *take(struct backlog *queue)
{
	struct packet *p = queue->first;

	if (!p || p->ready > sim_now)
		return NULL;
	queue->first = p->next;
	if (!queue->first)
		queue->last = &queue->first;
	return p;
}

static void drop(struct backlog *queue)
{
	struct packet *p;

	while ((p = queue->first)) {
		queue->first = p->next;
		packet_free(p);
	}
	queue->last = &queue->first;
}

/* --- the client's end --- */

static void break_item(void *arg, uint64_t number)
{
	struct link *link = arg;

	(void)number;
	if (link->state >= LINK_BROKEN)
		return;
	link->state = LINK_BROKEN;
	link->events.broken(link->arg, "the connection broke");
}

static void break_link(struct link *link)
{
	if (link && link->host->keeper && link->host->life == link->life)
		host_post(link->host, break_item, link, 0);
}

static void deliver_item(void *arg, uint64_t number)
{
	struct packet *p = arg;
	struct link *link = (struct link *)(uintptr_t)number;

	if (link->state == LINK_OPEN && p->text && link->events.message) {
		link->events.message(link->arg, p->text, p->len);
	} else if (link->state == LINK_OPEN && p->reply) {
		struct pending *pending = link->first;

		if (!pending)
			sim_fail("an answer to no question: a defect of the simulator");
		link->first = pending->next;
		if (!link->first)
			link->last = &link->first;
		link->delivering = p;
		pending->cb(pending->arg, p->reply);
		free(pending);
	}
	packet_free(p);
}

static void limit_item(void *arg, uint64_t number)
{
	struct link *link = arg;
	int64_t since = link->state == LINK_OPEN ? (link->first ? link->first->sent : INT64_MAX) : link->started;

	if (link->state < LINK_BROKEN && since != INT64_MAX && host_clock(link->host) - since >= link->limit)
		break_item(link, number);
}

static void limit_due(void *arg, uint64_t number)
{
	struct link *link = arg;

	if (link->host->keeper && link->host->life == link->life)
		host_post(link->host, limit_item, link, number);
}

static void connected_item(void *arg, uint64_t number)
{
	struct link *link = arg;

	(void)number;
	if (link->state != LINK_CONNECTING)
		return;
	link->state = LINK_OPEN;
	link->events.connected(link->arg);
}

/* --- the server's end --- */

static bool cut(int64_t until, sim_fn *pump, struct conn *conn)
{
	if (sim_now >= until)
		return false;
	sim_at(until + rng_delay(&conn->rng, SLOW), pump, conn, 0);
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
	p->owned = calloc(1, sizeof(*p->owned));
	p->owned->type = REDIS_REPLY_ARRAY;
	p->owned->elements = 3;
	p->owned->element = calloc(3, sizeof(*p->owned->element));
	for (size_t i = 0; i < 3; i++) {
		p->owned->element[i] = calloc(1, sizeof(redisReply));
		p->owned->element[i]->type = REDIS_REPLY_STRING;
		p->owned->element[i]->str = strdup(words[i]);
		p->owned->element[i]->len = strlen(words[i]);
	}
	p->reply = p->owned;
}

static void execute(struct conn *conn, struct packet *up)
{
	redisReply *reply, *owned;
	struct packet *p;

	if (strcmp(up->argv[0], "SUBSCRIBE") == 0) {
		subscribe(conn, up->argv[1]);
		return;
	}
	reply = server_execute(up->argc, up->argv, NULL, &owned);
	if (conn->gone) { /* this killed the keeper */
		freeReplyObject(owned);
		return;
	}
	p = put(conn, &conn->down, pump_down);
	p->reply = reply;
	p->owned = owned;
}

static void accept_conn(struct conn *conn)
{
	if (!conn->link || conn->link->host->life != conn->link->life || !conn->link->host->keeper)
		return;
	host_post(conn->host, connected_item, conn->link, 0);
}

/* The first packet is an empty one: the connection's own. */
static void pump_up(void *arg, uint64_t number)
{
	struct conn *conn = arg;
	struct packet *p;

	(void)number;
	if (conn->gone || !conn->up.first || cut(conn->host->cut_up_until, pump_up, conn) ||
	    cut(server_stopped_until, pump_up, conn))
		return;
	while (!conn->gone && (p = take(&conn->up))) {
		if (!server_up) {
			conn_gone(conn);
			if (sim_now >= conn->host->cut_down_until)
				break_link(conn->link);
		} else if (p->fin) {
			conn_gone(conn);
		} else if (p->argc) {
			execute(conn, p);
		} else {
			accept_conn(conn);
		}
		packet_free(p);
	}
}

static void pump_down(void *arg, uint64_t number)
{
	struct conn *conn = arg;
	struct packet *p;

	(void)number;
	if (conn->gone || !conn->down.first || cut(conn->host->cut_down_until, pump_down, conn))
		return;
	while (!conn->gone && (p = take(&conn->down))) {
		if (conn->link && conn->host->keeper && conn->link->life == conn->host->life)
			host_post(conn->host, deliver_item, p, (uintptr_t)conn->link);
		else
			packet_free(p);
	}
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

/* --- store/link.h --- */

struct link *link_open(uv_loop_t *loop, const struct channel_target *target, uint64_t limit_ms,
		       const struct link_events *events, void *arg, char *why, size_t why_size)
{
	struct host *host = task_host(task_now);
	struct link *link = calloc(1, sizeof(*link));
	struct conn *conn = calloc(1, sizeof(*conn));

	(void)loop, (void)target, (void)why, (void)why_size;
	if (!link || !conn)
		abort();
	*link = (struct link){.host = host,
			      .life = host->life,
			      .limit = (int64_t)limit_ms * MS,
			      .events = *events,
			      .arg = arg,
			      .started = host_clock(host),
			      .conn = conn};
	link->last = &link->first;
	*conn = (struct conn){.next = conns, .host = host, .link = link, .rng = rng_of("connection", conn_count++)};
	conn->up.last = &conn->up.first;
	conn->down.last = &conn->down.first;
	conns = conn;
	put(conn, &conn->up, pump_up);
	sim_at(host_after(host, link->limit + MS), limit_due, link, 0);
	return link;
}

int link_send(struct link *link, int argc, const char *const *argv, link_reply_cb *cb, void *arg)
{
	struct pending *pending;
	struct packet *p;

	host_write_point(link->host);
	if (link->state != LINK_OPEN)
		return -ENOTCONN;
	pending = calloc(1, sizeof(*pending));
	if (!pending)
		abort();
	*pending = (struct pending){.cb = cb, .arg = arg, .sent = host_clock(link->host)};
	*link->last = pending;
	link->last = &pending->next;
	sim_at(host_after(link->host, link->limit + MS), limit_due, link, 0);
	if (link->conn->gone)
		return 0; /* it will be told */
	p = put(link->conn, &link->conn->up, pump_up);
	p->argv = calloc((size_t)argc, sizeof(*p->argv));
	p->argc = argc;
	for (int i = 0; i < argc; i++)
		p->argv[i] = strdup(argv[i]);
	return 0;
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

redisReply *link_keep_reply(struct link *link);

/* An answer of a script stands in a list with what was published (server.c). */
redisReply *link_keep_reply(struct link *link)
{
	struct packet *p = link->delivering;
	redisReply *reply = p->reply;

	if (p->owned == reply)
		p->owned = NULL;
	else
		p->owned->element[0] = NULL;
	return reply;
}

static void close_conn(struct conn *conn)
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

void link_close(struct link *link)
{
	struct pending *pending, *next;

	if (link->state == LINK_CLOSED)
		return;
	link->state = LINK_CLOSED;
	close_conn(link->conn);
	for (pending = link->first; pending; pending = next) {
		next = pending->next;
		pending->cb(pending->arg, NULL);
		free(pending);
	}
	link->first = NULL;
	link->last = &link->first;
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
			close_conn(conn);
}

static void reset(struct conn *conn)
{
	if (conn->gone)
		return;
	conn_gone(conn);
	if (sim_now >= conn->host->cut_down_until)
		break_link(conn->link);
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
		sim_after(rng_delay(&conn->rng, SLOW), pump_up, conn, 0);
		sim_after(rng_delay(&conn->rng, SLOW), pump_down, conn, 0);
	}
}
