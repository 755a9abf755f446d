/* See zookeeper.h. The client's own handle is for one server and one session: which server is next is decided here, since the client
 * resolves names whenever it looks at its socket. A session is nothing but a connection: nothing in the tree ends with it. */
#include "store/zookeeper/zookeeper.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define AT_ONCE 64 /* answers, before other things of the loop have their turn */

const struct zk_up *zk_up;

struct zk_lookup {
	uv_getaddrinfo_t request;
	struct zookeeper *zk; /* NULL: given up */
	unsigned turn;        /* of several addresses this one, and so round */
	char name[256], port[16];
};

static void zk_next_server(struct zookeeper *zk);

/* ---- the end of a session ---- */

static void zk_on_closed(uv_handle_t *handle)
{
	struct zk_session *session = handle->data;

	if (--session->handles)
		return;
	if (session->fd >= 0) {
		shutdown(session->fd, SHUT_RDWR); /* zookeeper_close() would wait until it can say good-bye */
		close(session->fd);
	}
	zookeeper_close(session->handle); /* what is under way ends, and finds no zk */
	free(session);
}

/* From the loop only: not from inside of the client. */
static void zk_drop(struct zookeeper *zk)
{
	struct zk_session *session = zk->session;

	zk->session = NULL;
	zk->up = false;
	if (!session)
		return;
	session->zk = NULL;
	uv_close((uv_handle_t *)&session->turn, zk_on_closed);
	if (session->fd >= 0)
		uv_close((uv_handle_t *)&session->poll, zk_on_closed);
}

void zk_disconnect(struct zookeeper *zk)
{
	if (zk->lookup) {
		zk->lookup->zk = NULL;
		uv_cancel((uv_req_t *)&zk->lookup->request); /* unless a thread has begun it */
	}
	zk->lookup = NULL;
	zk_drop(zk);
}

static void zk_session_failed(struct zk_session *session, int rc, int error)
{
	struct zookeeper *zk = session->zk;
	const char *why = rc == ZCONNECTIONLOSS && error && error != EAGAIN ? strerror(error) : zerror(rc);

	if (rc == ZCONNECTIONLOSS && error == EHOSTDOWN) /* the client's word for it */
		why = "the server closed the connection";
	if (session->connected) {
		store_fail(zk->store, "%s: %s", session->address, why);
		return;
	}
	zk_drop(zk);
	snprintf(zk->why, sizeof(zk->why), "cannot connect to %s: %s", session->address, why);
	zk_next_server(zk);
}

void zk_wait(struct zookeeper *zk)
{
	uv_timer_start(&zk->limit, zk->limit.timer_cb, (uint64_t)zk->store->config->connect_ms, 0);
}

void zk_half(struct zookeeper *zk)
{
	store_reject(
		zk->store,
		"of its tree %s a part is missing: remove the rest (zkCli.sh deleteall %s); then it begins anew, with grace",
		zk->root, zk->root);
}

void zk_failed(struct zookeeper *zk, int rc, const char *path)
{
	if (rc == ZNOAUTH)
		store_reject(
			zk->store,
			"the ACL of %s forbids what dflock needs: give this host create, read, write and delete there",
			path);
	else if (rc == ZINVALIDACL || rc == ZUNIMPLEMENTED || rc == ZBADARGUMENTS)
		store_reject(zk->store, "it refuses %s: %s", path, zerror(rc));
	else if (rc == ZNONODE)
		zk_half(zk);
	else
		store_fail(zk->store, "%s: %s", zk->session ? zk->session->address : path, zerror(rc));
}

/* ---- the loop ---- */

static void zk_on_poll(uv_poll_t *poll, int status, int events);

/* Asks the client what it waits for. */
static void zk_turn(struct zk_session *session)
{
	struct timeval wait = {.tv_sec = 0};
	int fd = -1, interest = 0, rc;

	errno = 0;
	rc = session->failed ? session->failed : zookeeper_interest(session->handle, &fd, &interest, &wait);
	if (!session->zk) /* a call that ended with it has said so */
		return;
	if (rc != ZOK || fd < 0) {
		zk_session_failed(session, rc ? rc : ZCONNECTIONLOSS, errno);
		return;
	}
	if (session->fd < 0) {
		session->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
		if (session->fd < 0 || uv_poll_init(session->turn.loop, &session->poll, session->fd) != 0)
			store_need(NULL);
		fcntl(fd, F_SETFD, FD_CLOEXEC);
		session->poll.data = session;
		session->handles++;
	}
	uv_poll_start(&session->poll,
		      (interest & ZOOKEEPER_READ ? UV_READABLE : 0) | (interest & ZOOKEEPER_WRITE ? UV_WRITABLE : 0),
		      zk_on_poll);
	uv_timer_start(&session->turn, session->turn.timer_cb,
		       (uint64_t)wait.tv_sec * 1000 + (uint64_t)wait.tv_usec / 1000 + 1, 0);
}

static void zk_on_turn(uv_timer_t *timer)
{
	zk_turn(timer->data);
}

void zk_soon(struct zk_session *session)
{
	uv_timer_start(&session->turn, zk_on_turn, 0, 0);
}

static void zk_on_poll(uv_poll_t *poll, int status, int events)
{
	struct zk_session *session = poll->data;
	int flags = status < 0 || events & UV_READABLE ? ZOOKEEPER_READ : 0, rc = ZOK;

	if (status < 0 || events & UV_WRITABLE)
		flags |= ZOOKEEPER_WRITE;
	errno = 0;
	for (int i = 0; i < AT_ONCE && rc == ZOK && session->zk; i++) {
		rc = zookeeper_process(session->handle, flags);
		flags = ZOOKEEPER_READ;
	}
	if (!session->zk)
		return;
	if (rc != ZOK && rc != ZNOTHING)
		zk_session_failed(session, rc, errno);
	else
		zk_turn(session);
}

static void zk_on_event(zhandle_t *handle, int type, int state, const char *path, void *context)
{
	struct zk_session *session = context;

	(void)handle;
	(void)path;
	if (type != ZOO_SESSION_EVENT || !session->zk)
		return;
	if (state == ZOO_CONNECTED_STATE && !session->connected) {
		session->connected = true;
		snprintf(session->zk->store->server, SERVER_BYTES, "zookeeper %s%s", session->address,
			 session->zk->root);
		uv_timer_stop(&session->zk->store->retry);
		zk_up->connected(session->zk);
	} else if (state == ZOO_EXPIRED_SESSION_STATE || state == ZOO_AUTH_FAILED_STATE) {
		session->failed = state == ZOO_AUTH_FAILED_STATE ? ZAUTHFAILED : ZSESSIONEXPIRED;
		zk_soon(session);
	}
}

/* ---- connecting ---- */

static void zk_on_connect_limit(uv_timer_t *timer)
{
	struct store *s = timer->data;
	struct zookeeper *zk = s->at;

	snprintf(zk->why, sizeof(zk->why), "no connection to %s in time",
		 zk->session ? zk->session->address : "one of its servers");
	zk_disconnect(zk);
	zk_next_server(zk);
}

/* "digest": a server that does not know it, or has another one, says so where an ACL asks for it. */
static void zk_sign(const struct zookeeper *zk, const struct zk_session *session)
{
	const struct config_store *config = zk->store->config;
	char *words;

	if (!config->password)
		return;
	if (asprintf(&words, "%s:%s", config->user ? config->user : "dflock", config->password) < 0)
		store_need(NULL);
	zoo_add_auth(session->handle, "digest", words, (int)strlen(words), NULL, NULL);
	explicit_bzero(words, strlen(words));
	free(words);
}

/* `address`: ADDRESS:PORT, where the client looks for the last colon. */
static void zk_open_session(struct zookeeper *zk, const char *address)
{
	struct zk_session *session = store_need(calloc(1, sizeof(*session)));

	zoo_set_debug_level(0);
	*session = (struct zk_session){.zk = zk, .fd = -1, .handles = 1};
	snprintf(session->address, sizeof(session->address), "%s", address);
	session->handle = zookeeper_init(address, zk_on_event, (int)zk->store->config->connect_ms, NULL, session, 0);
	if (!session->handle) {
		snprintf(zk->why, sizeof(zk->why), "cannot connect to %.150s: %s", address, strerror(errno));
		free(session);
		zk_next_server(zk);
		return;
	}
	zoo_set_servers_resolution_delay(session->handle, -1);
	zk_sign(zk, session);
	uv_timer_init(zk->store->loop, &session->turn);
	session->turn.data = session;
	zk->session = session;
	zk_soon(session);
}

static void zk_on_looked_up(uv_getaddrinfo_t *request, int status, struct addrinfo *found)
{
	struct zk_lookup *lookup = request->data;
	struct zookeeper *zk = lookup->zk;
	char numeric[128] = "", address[160];
	const struct addrinfo *one;

	if (zk) {
		zk->lookup = NULL;
		one = status == 0 ? store_address(found, lookup->turn) : NULL;
		if (one)
			getnameinfo(one->ai_addr, one->ai_addrlen, numeric, sizeof(numeric), NULL, 0, NI_NUMERICHOST);
		snprintf(address, sizeof(address), "%s:%s", numeric, lookup->port);
		if (*numeric) {
			zk_open_session(zk, address);
		} else {
			snprintf(zk->why, sizeof(zk->why), "%s cannot be looked up: %s", lookup->name,
				 status ? uv_strerror(status) : "it has no address");
			zk_next_server(zk);
		}
	}
	uv_freeaddrinfo(found);
	free(lookup);
}

/* The n-th of "h1:2181,[::1]:2181,h3", as name and port. How many there are. */
static unsigned zk_pick(const char *servers, unsigned n, char name[256], char port[16])
{
	unsigned count = 0;
	const char *at = servers;

	for (; *at; at += strcspn(at, ","), at += *at == ',') {
		size_t len = strcspn(at, ",");
		const char *colon = memrchr(at, ':', len), *bracket = memrchr(at, ']', len);

		if (count++ != n)
			continue;
		if (!colon || (bracket && bracket > colon))
			colon = at + len;
		snprintf(port, 16, "%.*s", colon < at + len ? (int)(at + len - colon - 1) : 4,
			 colon < at + len ? colon + 1 : "2181");
		if (*at == '[' && bracket)
			snprintf(name, 256, "%.*s", (int)(bracket - at - 1), at + 1);
		else
			snprintf(name, 256, "%.*s", (int)(colon - at), at);
	}
	return count;
}

/* Each server of the list once, in turn; each has its share of the time. */
static void zk_next_server(struct zookeeper *zk)
{
	const struct config_store *config = zk->store->config;
	struct zk_lookup *lookup = store_need(calloc(1, sizeof(*lookup)));
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	unsigned count = zk_pick(zk->servers, UINT32_MAX, lookup->name, lookup->port);

	if (!count || zk->tried == count) {
		free(lookup);
		store_fail(zk->store, "%s", zk->why);
		return;
	}
	zk_pick(zk->servers, zk->server++ % count, lookup->name, lookup->port);
	zk->tried++;
	uv_timer_start(&zk->store->retry, zk_on_connect_limit, (uint64_t)config->connect_ms / count + 1, 0);
	lookup->request.data = lookup;
	lookup->zk = zk;
	lookup->turn = zk->server / count;
	zk->lookup = lookup;
	if (uv_getaddrinfo(zk->store->loop, &lookup->request, zk_on_looked_up, lookup->name, lookup->port, &hints) != 0)
		store_need(NULL);
}

void zk_connect(struct zookeeper *zk)
{
	zk->tried = 0;
	strcpy(zk->why, "it names no server");
	zk_next_server(zk);
}

/* ---- time ---- */

/*
 * A node's mtime is the clock of the leader, when it took the change up. From then on this host's own clock counts; so the
 * time is behind the leader's by what the answer took, and never ahead. What the rules need of it:
 *   a beat    is only compared with itself, by hosts that watch it by their own clocks; it grows by 1 where the time does not
 *   grace     is watched by the hosts' own clocks, too
 *   a rest    begins before its grant is committed, and ends late by as much as the reader is behind
 * A host that was suspended is behind by that time, until it has written something. If its session is over, nothing that it asked in it
 * comes about; so it is behind by no more than a session lasts (connect_ms, or what the servers make of it), and a rest ends late.
 * A leader with another clock is a clock that was set: the rules expect that.
 */
void zk_saw(struct zookeeper *zk, const struct Stat *stat)
{
	zk->clock = (struct zk_clock){.ms = stat->mtime, .got_ns = uv_hrtime()};
}

void zk_see_memory(const struct zookeeper *zk, const char *memory)
{
	char known[64 + STORE_HOST_BYTES];

	snprintf(known, sizeof(known), "%s %s", memory, zk->store->host);
	store_see_memory(zk->store, known);
}

int64_t zk_now_us(const struct zookeeper *zk)
{
	return zk->clock.ms * 1000 + (int64_t)(uv_hrtime() - zk->clock.got_ns) / 1000;
}
