/* See dial.h. */
#include "cli/dial.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "cli/cli.h"
#include "tls/tls_stream.h"

#define READ_BYTES 16384

struct dial {
	int fd;
	int64_t limit_ms, until_ms;
	struct tls_stream *tls;
	redisReader *reader;
};

/* ---- waiting ---- */

/* 0 or -errno; -ETIMEDOUT: the limit has passed. */
static int dial_wait(const struct dial *d, short events)
{
	struct pollfd poller = {.fd = d->fd, .events = events};
	int ret;

	do {
		int64_t left = d->until_ms - cli_now_ms();

		ret = poll(&poller, 1, left > 0 ? (int)left : 0);
	} while (ret < 0 && errno == EINTR);
	return ret < 0 ? -errno : ret == 0 ? -ETIMEDOUT : 0;
}

static int dial_fail(char why[DIAL_WHY_BYTES], const char *what)
{
	snprintf(why, DIAL_WHY_BYTES, "%s", what);
	return -1;
}

/* ---- bytes: 0 or -1 with why ---- */

static int dial_send_bytes(struct dial *d, const char *bytes, size_t len, char why[DIAL_WHY_BYTES])
{
	while (len > 0) {
		ssize_t n = send(d->fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);
		int ret = n < 0 ? -errno : 0;

		if (ret == -EAGAIN)
			ret = dial_wait(d, POLLOUT);
		if (ret < 0 && ret != -EINTR)
			return dial_fail(why, strerror(-ret));
		bytes += n > 0 ? n : 0;
		len -= n > 0 ? (size_t)n : 0;
	}
	return 0;
}

static int dial_flush(struct dial *d, char why[DIAL_WHY_BYTES])
{
	char bytes[READ_BYTES];
	size_t n;

	while ((n = tls_stream_take(d->tls, bytes, sizeof(bytes))) > 0)
		if (dial_send_bytes(d, bytes, n, why) < 0)
			return -1;
	return 0;
}

/* Waits for bytes: how many; -1 with why. */
static ssize_t dial_receive(struct dial *d, char bytes[READ_BYTES], char why[DIAL_WHY_BYTES])
{
	for (;;) {
		ssize_t n = recv(d->fd, bytes, READ_BYTES, MSG_DONTWAIT);
		int ret = n < 0 ? -errno : 0;

		if (n > 0)
			return n;
		if (n == 0)
			return dial_fail(why, "the server closed the connection");
		if (ret == -EAGAIN)
			ret = dial_wait(d, POLLIN);
		if (ret == -ETIMEDOUT)
			return dial_fail(why, "no answer in time (connect_ms)");
		if (ret < 0 && ret != -EINTR)
			return dial_fail(why, strerror(-ret));
	}
}

/* The plain text of what has come: 1, or 0 if there is none. */
static int dial_decrypt(struct dial *d, char why[DIAL_WHY_BYTES])
{
	char bytes[READ_BYTES];
	bool some = false;
	ssize_t n;

	while ((n = tls_stream_read(d->tls, bytes, sizeof(bytes))) > 0) {
		some = true;
		if (redisReaderFeed(d->reader, bytes, (size_t)n) != REDIS_OK)
			return dial_fail(why, d->reader->errstr);
	}
	return n < 0 && !some ? dial_fail(why, tls_stream_why(d->tls)) : some;
}

static int dial_feed(struct dial *d, char why[DIAL_WHY_BYTES])
{
	char bytes[READ_BYTES];
	int ret = d->tls ? dial_decrypt(d, why) : 0;
	ssize_t n;

	if (ret != 0)
		return ret < 0 ? -1 : 0;
	n = dial_receive(d, bytes, why);
	if (n < 0)
		return -1;
	if (!d->tls)
		return redisReaderFeed(d->reader, bytes, (size_t)n) == REDIS_OK ? 0 : dial_fail(why, d->reader->errstr);
	if (tls_stream_feed(d->tls, bytes, (size_t)n) < 0)
		return dial_fail(why, tls_stream_why(d->tls));
	return dial_decrypt(d, why) < 0 ? -1 : 0;
}

static int dial_shake(struct dial *d, char why[DIAL_WHY_BYTES])
{
	int done;

	while ((done = tls_stream_shake(d->tls)) == 0) {
		if (dial_flush(d, why) < 0 || dial_feed(d, why) < 0)
			return -1;
	}
	if (done < 0)
		dial_fail(why, tls_stream_why(d->tls));
	return dial_flush(d, why) < 0 || done < 0 ? -1 : 0;
}

/* ---- questions ---- */

static redisReply *dial_answer(struct dial *d, char why[DIAL_WHY_BYTES])
{
	void *reply = NULL;

	while (!reply) {
		if (redisReaderGetReply(d->reader, &reply) != REDIS_OK) {
			dial_fail(why, d->reader->errstr);
			return NULL;
		}
		if (!reply && dial_feed(d, why) < 0)
			return NULL;
	}
	if (((redisReply *)reply)->type != REDIS_REPLY_ERROR)
		return reply;
	snprintf(why, DIAL_WHY_BYTES, "%.200s", ((redisReply *)reply)->str);
	freeReplyObject(reply);
	return NULL;
}

redisReply *dial_ask(struct dial *d, char why[DIAL_WHY_BYTES], const char *format, ...)
{
	char *command = NULL;
	int ret = -1, len;
	va_list args;

	va_start(args, format);
	len = redisvFormatCommand(&command, format, args);
	va_end(args);
	if (len < 0) {
		dial_fail(why, "out of memory");
		return NULL;
	}
	d->until_ms = cli_now_ms() + d->limit_ms;
	if (!d->tls)
		ret = dial_send_bytes(d, command, (size_t)len, why);
	else if (tls_stream_write(d->tls, command, (size_t)len) < 0)
		dial_fail(why, tls_stream_why(d->tls));
	else
		ret = dial_flush(d, why);
	redisFreeCommand(command);
	return ret < 0 ? NULL : dial_answer(d, why);
}

/* ---- connecting ---- */

static int dial_connect(struct dial *d, const struct sockaddr *address, socklen_t len)
{
	int error = 0, ret;
	socklen_t size = sizeof(error);

	d->fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (d->fd < 0)
		return -errno;
	if (connect(d->fd, address, len) == 0)
		return 0;
	ret = errno == EINPROGRESS ? dial_wait(d, POLLOUT) : -errno;
	if (ret == 0 && getsockopt(d->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
		ret = -errno;
	return ret < 0 ? ret : -error;
}

static int dial_connect_path(struct dial *d, const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	return dial_connect(d, (struct sockaddr *)&address, sizeof(address));
}

/* To the first of the name's addresses that accepts. */
static int dial_connect_host(struct dial *d, const char *host, int port, char why[DIAL_WHY_BYTES])
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	struct addrinfo *list = NULL;
	char service[16];
	int ret;

	snprintf(service, sizeof(service), "%d", port);
	ret = getaddrinfo(host, service, &hints, &list);
	if (ret != 0)
		return dial_fail(why, gai_strerror(ret));
	d->until_ms = cli_now_ms() + d->limit_ms;
	for (const struct addrinfo *a = list; a; a = a->ai_next) {
		if (d->fd >= 0)
			close(d->fd);
		ret = dial_connect(d, a->ai_addr, a->ai_addrlen);
		if (ret == 0)
			break;
	}
	freeaddrinfo(list);
	return ret < 0 ? dial_fail(why, strerror(-ret)) : 0;
}

struct dial *dial_open(const struct config_store *store, const char *host, int port, struct tls_context *tls,
		       char why[DIAL_WHY_BYTES])
{
	struct dial *d = calloc(1, sizeof(*d));
	int ret;

	dial_fail(why, "out of memory");
	if (!d)
		return NULL;
	*d = (struct dial){.fd = -1, .limit_ms = store->connect_ms, .reader = redisReaderCreate()};
	d->until_ms = cli_now_ms() + d->limit_ms;
	if (tls)
		d->tls = tls_stream_new(tls, store->tls.server_name ? store->tls.server_name : host);
	if (!d->reader || (tls && !d->tls))
		goto failed;
	if (host) {
		ret = dial_connect_host(d, host, port, why);
	} else {
		ret = dial_connect_path(d, store->socket);
		if (ret < 0)
			dial_fail(why, strerror(-ret));
	}
	if (ret < 0 || (d->tls && dial_shake(d, why) < 0))
		goto failed;
	return d;
failed:
	dial_close(d);
	return NULL;
}

const struct tls_stream *dial_tls(const struct dial *d)
{
	return d->tls;
}

void dial_close(struct dial *d)
{
	char ignored[DIAL_WHY_BYTES];

	if (!d)
		return;
	if (d->tls) {
		tls_stream_end(d->tls);
		dial_flush(d, ignored);
	}
	tls_stream_free(d->tls);
	if (d->reader)
		redisReaderFree(d->reader);
	if (d->fd >= 0)
		close(d->fd);
	free(d);
}
