/* A proxy that holds what it passes on, or cuts. It takes its turns in the loop of the test, by proxy_turn(). */
#ifndef DFLOCK_TESTS_UNIT_PROXY_H
#define DFLOCK_TESTS_UNIT_PROXY_H

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "tests/unit/suite.h"

enum proxy_way {
	PROXY_PASS,
	PROXY_HOLD,      /* passes nothing on, closes nothing */
	PROXY_COUNT,     /* holds from the nth piece of the server on */
	PROXY_COUNT_CUT, /* closes this connection at the nth piece */
};

#define PROXY_PAIRS 16

struct proxy {
	union {
		struct sockaddr any;
		struct sockaddr_un local;
		struct sockaddr_in ip;
	} at, to; /* where it listens, and where it passes on to: whoever starts it sets them */
	int listener, pairs[PROXY_PAIRS][2];
	enum proxy_way way;
	int pieces;
};

static inline socklen_t proxy_len(const struct sockaddr *any)
{
	return any->sa_family == AF_UNIX ? sizeof(struct sockaddr_un) : sizeof(struct sockaddr_in);
}

static inline void proxy_close(int pair[2])
{
	if (pair[0] < 0)
		return;
	close(pair[0]);
	close(pair[1]);
	pair[0] = pair[1] = -1;
}

static inline void proxy_tell(struct proxy *proxy, enum proxy_way way, int pieces)
{
	proxy->way = way;
	proxy->pieces = pieces;
}

/* Whether what the server says now is passed on. */
static inline bool proxy_passes(struct proxy *proxy)
{
	const bool cut = proxy->way == PROXY_COUNT_CUT;

	if ((proxy->way != PROXY_COUNT && !cut) || proxy->pieces-- > 0)
		return true;
	proxy->way = cut ? PROXY_PASS : PROXY_HOLD;
	return !cut;
}

/* Side 0 is the client's. */
static inline void proxy_pass(struct proxy *proxy, int pair[2], int side)
{
	char bytes[65536];
	ssize_t n = read(pair[side], bytes, sizeof(bytes));

	if (n > 0 && side == 1 && !proxy_passes(proxy))
		n = 0;
	for (ssize_t sent = 0, m; n > 0 && sent < n; sent += m)
		if ((m = write(pair[!side], bytes + sent, (size_t)(n - sent))) <= 0)
			n = -1;
	if (n <= 0)
		proxy_close(pair);
}

static inline void proxy_accept(struct proxy *proxy)
{
	int fd = accept(proxy->listener, NULL, NULL), *pair = proxy->pairs[0];
	int there = socket(proxy->to.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	while (pair[0] >= 0 && pair < proxy->pairs[PROXY_PAIRS - 1])
		pair += 2;
	ck_assert_int_lt(pair[0], 0);
	pair[0] = fd;
	pair[1] = there;
	if (connect(there, &proxy->to.any, proxy_len(&proxy->to.any)) != 0)
		proxy_close(pair);
}

/* All that can be done without waiting. */
static inline void proxy_turn(struct proxy *proxy)
{
	struct pollfd fds[1 + 2 * PROXY_PAIRS] = {{proxy->listener, POLLIN, 0}};

	for (int i = 0; i < 2 * PROXY_PAIRS; i++)
		fds[1 + i] = (struct pollfd){proxy->pairs[i / 2][i % 2], POLLIN, 0};
	if (poll(fds, 1 + 2 * PROXY_PAIRS, 0) <= 0)
		return;
	for (int i = 0; i < 2 * PROXY_PAIRS; i++)
		if (fds[1 + i].revents && proxy->pairs[i / 2][0] >= 0 && proxy->way != PROXY_HOLD)
			proxy_pass(proxy, proxy->pairs[i / 2], i % 2);
	if (fds[0].revents)
		proxy_accept(proxy);
}

/* With port 0 it takes a free one, and proxy->at has it. */
static inline void proxy_start(struct proxy *proxy)
{
	socklen_t len = proxy_len(&proxy->at.any);

	memset(proxy->pairs, -1, sizeof(proxy->pairs));
	proxy_tell(proxy, PROXY_PASS, 0);
	proxy->listener = socket(proxy->at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert(bind(proxy->listener, &proxy->at.any, len) == 0 && listen(proxy->listener, 16) == 0);
	ck_assert_int_eq(getsockname(proxy->listener, &proxy->at.any, &len), 0);
}

static inline void proxy_end(struct proxy *proxy)
{
	for (int i = 0; i < PROXY_PAIRS; i++)
		proxy_close(proxy->pairs[i]);
	close(proxy->listener);
	proxy->listener = -1;
}

#endif
