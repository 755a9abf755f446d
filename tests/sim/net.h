/* The network between link.c, the client's end, and net.c, which has the packets and the server's end. */
#ifndef DFLOCK_TESTS_SIM_NET_H
#define DFLOCK_TESTS_SIM_NET_H

#include <hiredis/hiredis.h>

#include "store/redis/link.h"
#include "tests/sim/sim.h"

struct packet {
	struct packet *prev, *next;
	int64_t ready;
	bool fin;
	int argc; /* up */
	char **argv;
	redisReply *reply; /* down: an answer, or ... */
	char *text;        /* ... a message */
	size_t len;
};

struct backlog {
	struct packet *first;
	int64_t ready; /* of the last one */
};

struct conn {
	struct conn *next;
	struct host *host;
	struct link *link; /* NULL: closed by the client */
	struct rng rng;
	bool gone;      /* the server knows nothing of it (any more) */
	unsigned shard; /* of the keys in its requests, as soon as one has some */
	char *channel;
	struct backlog up, down;
};

/* --- net.c --- */

/* A connection on its way to the server; it lives as long as the process. */
struct conn *conn_open(struct host *host, struct link *link);
/* One request; dropped if the server knows nothing of the connection. */
void conn_send(struct conn *conn, int argc, const char *const *argv);
/* The client has closed it; what was sent may still arrive, much later. */
void conn_close(struct conn *conn);
void packet_free(struct packet *packet);

/* --- link.c: what comes from the server, as items of the host's loop --- */

void link_connected(struct link *link);
void link_arrived(struct link *link, struct packet *packet);
void link_broke(struct link *link); /* NULL: the client has closed it */

#endif
