/* store/redis/link.h without sockets: the client's end of the connections of net.c. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "tests/sim/net.h"

enum link_state { LINK_CONNECTING, LINK_OPEN, LINK_BROKEN, LINK_CLOSED };

struct pending {
	struct pending *prev, *next;
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
	struct pending *first;
	struct conn *conn;
	struct packet *delivering; /* its callback runs */
};

static void break_item(void *arg, uint64_t number)
{
	struct link *link = arg;

	if (link->state >= LINK_BROKEN)
		return;
	link->state = LINK_BROKEN;
	link->events.broken(link->arg, "the connection broke");
}

/* Is there still the process that has it? */
static bool lives(const struct link *link) { return link && host_lives(link->host, link->life); }

void link_broke(struct link *link)
{
	if (lives(link))
		host_post(link->host, break_item, link, 0);
}

static void deliver_item(void *arg, uint64_t number)
{
	struct packet *p = arg;
	struct link *link = (struct link *)(uintptr_t)number;

	if (link->state == LINK_OPEN && p->text && link->events.message) {
		link->events.message(link->arg, "host", p->text, p->len);
	} else if (link->state == LINK_OPEN && p->reply) {
		struct pending *pending = link->first;

		if (!pending)
			sim_fail("an answer to no question: a defect of the simulator");
		DL_DELETE(link->first, pending);
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

	if (lives(link))
		host_post(link->host, limit_item, link, number);
}

static void connected_item(void *arg, uint64_t number)
{
	struct link *link = arg;

	if (link->state != LINK_CONNECTING)
		return;
	link->state = LINK_OPEN;
	link->events.connected(link->arg);
}

void link_connected(struct link *link)
{
	if (lives(link))
		host_post(link->host, connected_item, link, 0);
}

void link_arrived(struct link *link, struct packet *packet)
{
	if (lives(link))
		host_post(link->host, deliver_item, packet, (uintptr_t)link);
	else
		packet_free(packet);
}

/* --- store/redis/link.h --- */

struct link *link_open(uv_loop_t *loop, struct channel_target *target, uint64_t limit_ms,
		       const struct link_events *events, void *arg)
{
	struct host *host = task_host(task_now);
	struct link *link = sim_new(sizeof(*link));

	*link = (struct link){.host = host,
			      .life = host->life,
			      .limit = (int64_t)limit_ms * MS,
			      .events = *events,
			      .arg = arg,
			      .started = host_clock(host)};
	link->conn = conn_open(host, link);
	sim_at(host_after(host, link->limit + MS), limit_due, link, 0);
	return link;
}

static void await(struct link *link, link_reply_cb *cb, void *arg)
{
	struct pending *pending = sim_new(sizeof(*pending));

	*pending = (struct pending){.cb = cb, .arg = arg, .sent = host_clock(link->host)};
	DL_APPEND(link->first, pending);
}

int link_send(struct link *link, int argc, const char *const *argv, link_reply_cb *cb, void *arg)
{
	host_write_point(link->host);
	if (link->state != LINK_OPEN)
		return -ENOTCONN;
	await(link, cb, arg);
	sim_at(host_after(link->host, link->limit + MS), limit_due, link, 0);
	conn_send(link->conn, argc, argv);
	return 0;
}

/* --- firing: by a probe, while the keeper's task is anywhere --- */

struct link_shot {
	int argc;
	char **argv;
	link_reply_cb *cb;
	void *arg;
};

void link_gate_init(struct link_gate *gate) { gate->link = NULL; }
void link_gate_open(struct link_gate *gate, struct link *link) { gate->link = link; }
void link_gate_close(struct link_gate *gate) { gate->link = NULL; }
void link_gate_destroy(struct link_gate *gate) {}

struct link_shot *link_shot_new(int argc, const char *const *argv, link_reply_cb *cb, void *arg)
{
	struct link_shot *shot = sim_new(sizeof(*shot));

	shot->argv = sim_new((size_t)argc * sizeof(*shot->argv));
	shot->argc = argc;
	shot->cb = cb;
	shot->arg = arg;
	for (int i = 0; i < argc; i++)
		shot->argv[i] = strdup(argv[i]);
	return shot;
}

int link_shot_fire(struct link_shot *shot, struct link_gate *gate)
{
	struct link *link = gate->link;

	if (!lives(link) || link->state != LINK_OPEN)
		return -ENOTCONN;
	if (rng_chance(&link->host->rng, 20)) /* no room in the socket */
		return -EAGAIN;
	if (host_dies_here(link->host))
		return -EPIPE;
	await(link, shot->cb, shot->arg);
	conn_send(link->conn, shot->argc, (const char *const *)shot->argv);
	host_dies_here(link->host);
	return 0;
}

void link_shot_free(struct link_shot *shot)
{
	for (int i = 0; i < shot->argc; i++)
		free(shot->argv[i]);
	free(shot->argv);
	free(shot);
}

redisReply *link_keep_reply(struct link *link);

redisReply *link_keep_reply(struct link *link)
{
	struct packet *p = link->delivering;
	redisReply *reply = p->reply;

	p->reply = NULL;
	return reply;
}

void link_close(struct link *link)
{
	struct pending *pending, *next;

	if (link->state == LINK_CLOSED)
		return;
	link->state = LINK_CLOSED;
	conn_close(link->conn);
	DL_FOREACH_SAFE (link->first, pending, next) {
		pending->cb(pending->arg, NULL);
		free(pending);
	}
	link->first = NULL;
}
