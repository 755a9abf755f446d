/* A proxy that holds, cuts and loses what it passes on: a process of its own, which is told its words by a socket pair. */
#ifndef DFLOCK_TESTS_UNIT_PROXY_H
#define DFLOCK_TESTS_UNIT_PROXY_H

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "tests/unit/suite.h"

enum proxy_way {
	PROXY_PASS,
	PROXY_HOLD,  /* passes nothing on, closes nothing */
	PROXY_DEAF,  /* what the server says is lost, and then the connection */
	PROXY_CUT,   /* closes all connections, takes no new ones */
	PROXY_COUNT, /* holds from the nth piece of the server on */
	PROXY_COUNT_CUT,
};

struct proxy_word {
	enum proxy_way way;
	int n;
};

struct proxy {
	union {
		struct sockaddr any;
		struct sockaddr_un local;
		struct sockaddr_in ip;
	} at, to; /* where it listens, and where it passes on to: whoever starts it sets them */
	pid_t pid;
	int fd;
};

#define PROXY_PAIRS 16
static inline socklen_t proxy_len(const struct sockaddr *any)
{
	return any->sa_family == AF_UNIX ? sizeof(struct sockaddr_un) : sizeof(struct sockaddr_in);
}

static inline int proxy_connect(const struct proxy *proxy)
{
	int fd = socket(proxy->to.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (connect(fd, &proxy->to.any, proxy_len(&proxy->to.any)) == 0)
		return fd;
	close(fd);
	return -1;
}

static inline void proxy_close(int pair[2])
{
	close(pair[0]);
	close(pair[1]);
	pair[0] = pair[1] = -1;
}

static inline void proxy_obey(struct proxy_word *word, int pairs[PROXY_PAIRS][2])
{
	for (int i = 0; i < PROXY_PAIRS; i++)
		if (word->way == PROXY_CUT && pairs[i][0] >= 0)
			proxy_close(pairs[i]);
}

/* Side 0 is the client's. */
static inline void proxy_pass(struct proxy_word *word, int pair[2], int side)
{
	char bytes[65536];
	ssize_t n = read(pair[side], bytes, sizeof(bytes));

	if (n <= 0) {
		proxy_close(pair);
		return;
	}
	if (side == 1 && word->way == PROXY_DEAF)
		return;
	if (side == 1 && (word->way == PROXY_COUNT || word->way == PROXY_COUNT_CUT) && word->n-- == 0)
		word->way = word->way == PROXY_COUNT ? PROXY_HOLD : PROXY_PASS;
	if (side == 1 && word->n < 0 && word->way == PROXY_PASS) {
		word->n = 0;
		proxy_close(pair);
		return;
	}
	for (ssize_t sent = 0, m; sent < n; sent += m)
		if ((m = write(pair[!side], bytes + sent, (size_t)(n - sent))) <= 0) {
			proxy_close(pair);
			return;
		}
}

static inline void proxy_accept(int listener, const struct proxy *proxy, const struct proxy_word *word,
				int pairs[PROXY_PAIRS][2])
{
	int fd = accept(listener, NULL, NULL), there = word->way == PROXY_CUT ? -1 : proxy_connect(proxy);

	for (int i = 0; i < PROXY_PAIRS; i++)
		if (there >= 0 && pairs[i][0] < 0) {
			pairs[i][0] = fd;
			pairs[i][1] = there;
			return;
		}
	close(fd);
	close(there);
}

_Noreturn static inline void proxy_run(const struct proxy *proxy, int listener, int words)
{
	int pairs[PROXY_PAIRS][2];
	struct proxy_word word = {PROXY_PASS, 0};

	signal(SIGPIPE, SIG_IGN);
	memset(pairs, -1, sizeof(pairs));
	suite_ready();
	for (;;) {
		struct pollfd fds[2 + 2 * PROXY_PAIRS] = {{words, POLLIN, 0}, {listener, POLLIN, 0}};
		for (int i = 0; i < 2 * PROXY_PAIRS; i++)
			fds[2 + i] = (struct pollfd){word.way == PROXY_HOLD ? -1 : pairs[i / 2][i % 2], POLLIN, 0};
		poll(fds, 2 + 2 * PROXY_PAIRS, -1);
		if (fds[0].revents) {
			if (read(words, &word, sizeof(word)) != sizeof(word))
				_exit(0);
			proxy_obey(&word, pairs);
			(void)!write(words, "k", 1);
			continue;
		}
		if (fds[1].revents)
			proxy_accept(listener, proxy, &word, pairs);
		for (int i = 0; i < 2 * PROXY_PAIRS; i++)
			if (fds[2 + i].revents && pairs[i / 2][0] >= 0 && word.way != PROXY_HOLD)
				proxy_pass(&word, pairs[i / 2], i % 2);
	}
}

static inline void proxy_tell(const struct proxy *proxy, enum proxy_way way, int n)
{
	struct proxy_word word = {way, n};
	char byte;

	ck_assert_int_eq(write(proxy->fd, &word, sizeof(word)), sizeof(word));
	ck_assert_int_eq(read(proxy->fd, &byte, 1), 1);
}

/* With port 0 it takes a free one, and proxy->at has it. */
static inline void proxy_start(struct proxy *proxy)
{
	int fds[2], listener = socket(proxy->at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t len = proxy_len(&proxy->at.any);

	ck_assert(bind(listener, &proxy->at.any, len) == 0 && listen(listener, 16) == 0);
	ck_assert_int_eq(getsockname(listener, &proxy->at.any, &len), 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	proxy->fd = fds[0];
	proxy->pid = suite_fork();
	if (proxy->pid == 0) {
		close(fds[0]);
		proxy_run(proxy, listener, fds[1]);
	}
	close(fds[1]);
	close(listener);
}

static inline void proxy_end(const struct proxy *proxy)
{
	close(proxy->fd);
	waitpid(proxy->pid, NULL, 0);
}

#endif
