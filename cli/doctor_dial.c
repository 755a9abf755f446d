/* A connection of `dflock doctor` to a server or a sentinel: doctor.h. Blocks, for about connect_ms for the connection and for each
 * answer; looking a name up takes what it takes. */
#include "cli/doctor.h"

#include <errno.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tls/tls_stream.h"

static int dial_fail(struct dial *d, const char *why)
{
	snprintf(d->why, sizeof(d->why), "%s", why);
	return -1;
}

static int dial_fail_errno(struct dial *d)
{
	const bool late = errno == EAGAIN || errno == EINPROGRESS || errno == ETIMEDOUT;

	return dial_fail(d, late ? "no answer in time (connect_ms)" : strerror(errno));
}

static int dial_send(struct dial *d, const char *bytes, size_t len)
{
	while (len > 0) {
		ssize_t n = send(d->fd, bytes, len, MSG_NOSIGNAL);

		if (n < 0 && errno != EINTR)
			return dial_fail_errno(d);
		bytes += n > 0 ? n : 0;
		len -= n > 0 ? (size_t)n : 0;
	}
	return 0;
}

/* What TLS has for the server. */
static int dial_flush(struct dial *d)
{
	char bytes[16384];
	size_t n;

	while ((n = tls_stream_take(d->tls, bytes, sizeof(bytes))) > 0)
		if (dial_send(d, bytes, n))
			return -1;
	return 0;
}

/* Waits for bytes. */
static int dial_receive(struct dial *d)
{
	char bytes[16384];
	ssize_t n;

	if (cli_now_ms() > d->until_ms) {
		errno = ETIMEDOUT;
		return dial_fail_errno(d);
	}
	do
		n = recv(d->fd, bytes, sizeof(bytes), 0);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return n ? dial_fail_errno(d) : dial_fail(d, "the server closed the connection");
	if (!d->tls)
		return redisReaderFeed(d->reader, bytes, (size_t)n) == REDIS_OK ? 0 : dial_fail(d, d->reader->errstr);
	if (tls_stream_feed(d->tls, bytes, (size_t)n))
		return dial_fail(d, tls_stream_why(d->tls));
	return 0;
}

/* What has come in plain text. */
static int dial_decrypt(struct dial *d)
{
	char bytes[16384];
	ssize_t n;

	while ((n = tls_stream_read(d->tls, bytes, sizeof(bytes))) > 0)
		if (redisReaderFeed(d->reader, bytes, (size_t)n) != REDIS_OK)
			return dial_fail(d, d->reader->errstr);
	return n == -EPROTO ? dial_fail(d, tls_stream_why(d->tls)) : 0;
}

redisReply *dial_ask(struct dial *d, const char *format, ...)
{
	redisReply *reply = NULL;
	char *command = NULL;
	va_list args;
	int len, ret;

	if (d->fd < 0)
		return NULL;
	d->until_ms = cli_now_ms() + d->limit_ms;
	va_start(args, format);
	len = redisvFormatCommand(&command, format, args);
	va_end(args);
	if (len < 0)
		return dial_fail(d, "out of memory"), NULL;
	if (!d->tls)
		ret = dial_send(d, command, (size_t)len);
	else if (tls_stream_write(d->tls, command, (size_t)len))
		ret = dial_fail(d, tls_stream_why(d->tls));
	else
		ret = dial_flush(d);
	redisFreeCommand(command);
	while (!ret && !reply) {
		if (redisReaderGetReply(d->reader, (void **)&reply) != REDIS_OK)
			ret = dial_fail(d, d->reader->errstr);
		else if (!reply)
			ret = dial_receive(d) || (d->tls && dial_decrypt(d));
	}
	if (!reply || reply->type != REDIS_REPLY_ERROR)
		return reply;
	dial_fail(d, reply->str);
	freeReplyObject(reply);
	return NULL;
}

static int dial_connect(struct dial *d, const struct sockaddr *address, socklen_t len, int64_t limit_ms)
{
	const struct timeval limit = {.tv_sec = limit_ms / 1000, .tv_usec = limit_ms % 1000 * 1000};

	if (d->fd >= 0)
		close(d->fd);
	d->fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (d->fd < 0 || setsockopt(d->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) ||
	    setsockopt(d->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) || connect(d->fd, address, len))
		return dial_fail_errno(d);
	return 0;
}

/* To the first of the name's addresses that accepts. */
static int dial_connect_host(struct dial *d, const char *host, int port, int64_t limit_ms)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	struct addrinfo *list = NULL;
	char service[16];
	int ret;

	snprintf(service, sizeof(service), "%d", port);
	ret = getaddrinfo(host, service, &hints, &list);
	if (ret)
		return dial_fail(d, gai_strerror(ret));
	ret = -1;
	for (const struct addrinfo *a = list; a && ret; a = a->ai_next)
		ret = dial_connect(d, a->ai_addr, a->ai_addrlen, limit_ms);
	freeaddrinfo(list);
	return ret;
}

static int dial_shake(struct dial *d)
{
	int done;

	d->until_ms = cli_now_ms() + d->limit_ms;
	while ((done = tls_stream_shake(d->tls)) == 0)
		if (dial_flush(d) || dial_receive(d))
			return -1;
	if (done < 0)
		dial_fail(d, tls_stream_why(d->tls));
	return dial_flush(d) || done < 0 ? -1 : 0;
}

void dial_close(struct dial *d)
{
	if (d->tls && d->fd >= 0) {
		tls_stream_end(d->tls);
		dial_flush(d);
	}
	tls_stream_free(d->tls);
	if (d->reader)
		redisReaderFree(d->reader);
	if (d->fd >= 0)
		close(d->fd);
	*d = (struct dial){.fd = -1};
}

void dial_open(struct dial *d, const struct config_store *store, const char *host, int port, struct tls_context *tls,
	       const char *user, const char *password)
{
	struct sockaddr_un local = {.sun_family = AF_UNIX};
	int ret;

	*d = (struct dial){.fd = -1, .limit_ms = store->connect_ms, .reader = redisReaderCreate()};
	if (tls)
		d->tls = tls_stream_new(tls, store->tls.server_name ? store->tls.server_name : host);
	if (!d->reader || (tls && !d->tls)) {
		dial_fail(d, "out of memory");
		return;
	}
	snprintf(local.sun_path, sizeof(local.sun_path), "%s", store->socket ? store->socket : "");
	ret = host ? dial_connect_host(d, host, port, store->connect_ms)
		   : dial_connect(d, (struct sockaddr *)&local, sizeof(local), store->connect_ms);
	if (!ret && d->tls)
		ret = dial_shake(d);
	if (!ret && password) {
		redisReply *reply = user ? dial_ask(d, "AUTH %s %s", user, password) : dial_ask(d, "AUTH %s", password);

		ret = reply ? 0 : -1;
		freeReplyObject(reply);
	}
	if (ret && d->fd >= 0) {
		close(d->fd);
		d->fd = -1;
	}
}
