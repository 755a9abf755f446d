/* See channel.h. */
#include "store/redis/channel.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tls/tls_stream.h"

#define READ_BYTES 65536
#define WHY_BYTES  TLS_LINE_BYTES

enum channel_state { CHANNEL_CONNECTING, CHANNEL_SHAKING, CHANNEL_OPEN, CHANNEL_BROKEN, CHANNEL_CLOSED };

struct channel {
	union {
		uv_handle_t handle;
		uv_stream_t stream;
		uv_tcp_t tcp;
		uv_pipe_t pipe;
	} io;
	uv_connect_t connect;
	enum channel_state state;
	bool heard; /* something came from the server */
	int fd;
	unsigned writing; /* atomic: writes that libuv has not finished */
	struct tls_stream *tls;
	struct channel_events events;
	void *arg;
	char buffer[READ_BYTES];
};

struct channel_bytes {
	uv_write_t request;
	struct channel *channel;
	void (*release)(void *bytes); /* NULL: what TLS made, in `encrypted` */
	char *bytes;
	char encrypted[];
};

/* ---- what goes wrong ---- */

__attribute__((format(printf, 2, 3))) static void channel_break(struct channel *ch, const char *format, ...)
{
	char why[WHY_BYTES];
	va_list args;

	if (ch->state >= CHANNEL_BROKEN)
		return;
	ch->state = CHANNEL_BROKEN;
	va_start(args, format);
	vsnprintf(why, sizeof(why), format, args);
	va_end(args);
	ch->events.broken(ch->arg, why);
}

/* So a Redis that waits for TLS answers clear text; other servers send an alert (channel_sounds_encrypted()). */
static bool channel_may_want_tls(const struct channel *ch, int status)
{
	return !ch->tls && !ch->heard && ch->io.handle.type == UV_TCP && (status == UV_EOF || status == UV_ECONNRESET);
}

/* The stream ended (UV_EOF), or failed. */
static void channel_ended(struct channel *ch, int status)
{
	const char *what = status == UV_EOF ? "the server closed the connection" : uv_strerror(status);

	if (ch->state == CHANNEL_SHAKING)
		channel_break(ch, "%s in the TLS handshake: %s", what,
			      ch->heard ? "its log says why" : "does it speak TLS on this port?");
	else if (channel_may_want_tls(ch, status))
		channel_break(ch, "%s before its first answer: if it wants TLS, write rediss:// before its address",
			      what);
	else
		channel_break(ch, "%s", what);
}

/* ---- writing ---- */

/*
 * With TLS the other direction says what is wrong: a server that refuses this host's certificate says so in an alert, after
 * this host has taken the handshake for done, and closes the connection. A command that meets the closed connection
 * comes back before the alert was read. A stream that cannot be written can be read to its end, so that this comes.
 */
static void channel_on_written(uv_write_t *request, int status)
{
	struct channel_bytes *write = (struct channel_bytes *)request;

	if (status < 0 && !write->channel->tls)
		channel_ended(write->channel, status);
	if (write->release)
		write->release(write->bytes);
	__atomic_sub_fetch(&write->channel->writing, 1, __ATOMIC_RELEASE);
	free(write);
}

/* Without what was sent already. */
static int channel_send(struct channel *ch, struct channel_bytes *write, size_t len, size_t sent)
{
	uv_buf_t buf = uv_buf_init(write->bytes + sent, (unsigned)(len - sent));
	int ret;

	__atomic_add_fetch(&ch->writing, 1, __ATOMIC_RELAXED);
	ret = uv_write(&write->request, &ch->io.stream, &buf, 1, channel_on_written);
	if (ret == 0)
		return 0;
	__atomic_sub_fetch(&ch->writing, 1, __ATOMIC_RELEASE);
	if (write->release)
		write->release(write->bytes);
	free(write);
	return ret;
}

/* Sends what TLS has for the server. */
static int channel_flush(struct channel *ch)
{
	size_t len = tls_stream_pending(ch->tls);
	struct channel_bytes *write;

	if (len == 0)
		return 0;
	write = malloc(sizeof(*write) + len);
	if (!write)
		return -ENOMEM;
	*write = (struct channel_bytes){.channel = ch, .bytes = write->encrypted};
	return channel_send(ch, write, tls_stream_take(ch->tls, write->encrypted, len), 0);
}

int channel_write(struct channel *ch, char *bytes, size_t len, void (*release)(void *bytes))
{
	uv_buf_t buf = uv_buf_init(bytes, (unsigned)len);
	struct channel_bytes *write;
	int ret = -ENOTCONN, sent;

	if (ch->state != CHANNEL_OPEN)
		goto failed;
	if (ch->tls) {
		ret = tls_stream_write(ch->tls, bytes, len);
		if (ret == 0)
			ret = channel_flush(ch);
		goto failed; /* or done: the bytes were copied */
	}
	/* Mostly all is taken at once. What fails, fails once more below, and is told by the loop. */
	sent = uv_try_write(&ch->io.stream, &buf, 1);
	if (sent == (int)len) {
		release(bytes);
		return 0;
	}
	ret = -ENOMEM;
	write = malloc(sizeof(*write));
	if (!write)
		goto failed;
	*write = (struct channel_bytes){.channel = ch, .bytes = bytes, .release = release};
	return channel_send(ch, write, len, sent > 0 ? (size_t)sent : 0);
failed:
	release(bytes);
	return ret;
}

int channel_send_now(struct channel *ch, const char *bytes, size_t len)
{
	ssize_t n;

	if (ch->tls || __atomic_load_n(&ch->writing, __ATOMIC_ACQUIRE))
		return -EAGAIN;
	n = send(ch->fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n == (ssize_t)len)
		return 0;
	if (n < 0)
		return -errno;
	shutdown(ch->fd, SHUT_RDWR); /* half a command must not meet the next one */
	return -EPIPE;
}

/* ---- reading ---- */

static void channel_opened(struct channel *ch)
{
	ch->state = CHANNEL_OPEN;
	uv_fileno(&ch->io.handle, &ch->fd);
	ch->events.connected(ch->arg);
}

static void channel_shake(struct channel *ch)
{
	int done = tls_stream_shake(ch->tls);
	int ret = channel_flush(ch); /* also after a failure: the alert says to the server why */

	if (done < 0)
		channel_break(ch, "%s", tls_stream_why(ch->tls));
	else if (ret < 0)
		channel_break(ch, "%s", uv_strerror(ret));
	else if (done)
		channel_opened(ch);
}

/* The plain text of what was fed. An event may close the channel. */
static void channel_decrypt(struct channel *ch)
{
	ssize_t got = 0;
	int ret;

	while (ch->state == CHANNEL_OPEN) {
		got = tls_stream_read(ch->tls, ch->buffer, sizeof(ch->buffer));
		if (got <= 0)
			break;
		ch->events.bytes(ch->arg, ch->buffer, (size_t)got);
	}
	if (ch->state != CHANNEL_OPEN)
		return;
	ret = channel_flush(ch); /* an update of keys is answered; a failure is an alert */
	if (got == -EPIPE)
		channel_ended(ch, UV_EOF);
	else if (got < 0)
		channel_break(ch, "%s", tls_stream_why(ch->tls));
	else if (ret < 0)
		channel_break(ch, "%s", uv_strerror(ret));
}

static void channel_take_encrypted(struct channel *ch, const char *bytes, size_t n)
{
	if (tls_stream_feed(ch->tls, bytes, n) < 0) {
		channel_break(ch, "%s", tls_stream_why(ch->tls));
		return;
	}
	if (ch->state == CHANNEL_SHAKING)
		channel_shake(ch);
	channel_decrypt(ch);
}

/* A TLS server that answers clear text with an alert; Redis says nothing that begins like one. */
static bool channel_sounds_encrypted(const struct channel *ch, const char *bytes, size_t n)
{
	return !ch->heard && n > 1 && (bytes[0] == 21 || bytes[0] == 22) && bytes[1] == 3;
}

static void channel_on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
	struct channel *ch = stream->data;
	bool first = !ch->heard;

	if (n == 0 || ch->state >= CHANNEL_BROKEN)
		return;
	if (n < 0) {
		channel_ended(ch, (int)n);
		return;
	}
	if (ch->tls) {
		ch->heard = true;
		channel_take_encrypted(ch, buf->base, (size_t)n);
	} else if (first && channel_sounds_encrypted(ch, buf->base, (size_t)n)) {
		channel_break(ch, "the server speaks TLS: write rediss:// before its address");
	} else {
		ch->heard = true;
		ch->events.bytes(ch->arg, buf->base, (size_t)n);
	}
}

static void channel_on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
	struct channel *ch = handle->data;

	(void)suggested;
	*buf = uv_buf_init(ch->buffer, sizeof(ch->buffer));
}

/* ---- connecting, closing ---- */

static void channel_on_connect(uv_connect_t *request, int status)
{
	struct channel *ch = request->data;

	if (ch->state != CHANNEL_CONNECTING)
		return;
	if (status == 0)
		status = uv_read_start(&ch->io.stream, channel_on_alloc, channel_on_read);
	if (status < 0) {
		channel_break(ch, "%s", uv_strerror(status));
		return;
	}
	ch->state = CHANNEL_SHAKING;
	if (ch->tls)
		channel_shake(ch);
	else
		channel_opened(ch);
}

static void channel_destroy(struct channel *ch)
{
	tls_stream_free(ch->tls);
	free(ch);
}

static void channel_on_closed(uv_handle_t *handle)
{
	channel_destroy(handle->data);
}

static int channel_connect(struct channel *ch, const struct channel_target *target)
{
	ch->connect.data = ch;
	if (target->path) {
		uv_pipe_connect(&ch->connect, &ch->io.pipe, target->path, channel_on_connect);
		return 0;
	}
	uv_tcp_nodelay(&ch->io.tcp, 1);
	return uv_tcp_connect(&ch->connect, &ch->io.tcp, (const struct sockaddr *)&target->address, channel_on_connect);
}

int channel_open(uv_loop_t *loop, const struct channel_target *target, const struct channel_events *events, void *arg,
		 struct channel **out)
{
	struct channel *ch = calloc(1, sizeof(*ch));
	int ret = UV_ENOMEM;

	if (!ch)
		return ret;
	*ch = (struct channel){.events = *events, .arg = arg};
	if (target->tls) {
		ch->tls = tls_stream_new(target->tls, target->name);
		if (!ch->tls)
			goto failed;
	}
	ret = target->path ? uv_pipe_init(loop, &ch->io.pipe, 0) : uv_tcp_init(loop, &ch->io.tcp);
	if (ret)
		goto failed;
	ch->io.handle.data = ch;
	ret = channel_connect(ch, target);
	if (ret) {
		channel_close(ch);
		return ret;
	}
	*out = ch;
	return 0;
failed:
	channel_destroy(ch);
	return ret;
}

const char *channel_awaits(const struct channel *ch)
{
	if (ch->state != CHANNEL_SHAKING)
		return "no connection";
	return ch->heard ? "no end of the TLS handshake" : "no answer to TLS (does the server speak it on this port?)";
}

/* Tells the server that nothing more will come, if it takes that at once. */
static void channel_say_goodbye(struct channel *ch)
{
	char bytes[128];
	uv_buf_t buf;
	size_t len;

	tls_stream_end(ch->tls);
	len = tls_stream_take(ch->tls, bytes, sizeof(bytes));
	buf = uv_buf_init(bytes, (unsigned)len);
	if (len > 0)
		uv_try_write(&ch->io.stream, &buf, 1);
}

void channel_close(struct channel *ch)
{
	if (ch->tls && ch->state == CHANNEL_OPEN)
		channel_say_goodbye(ch);
	ch->state = CHANNEL_CLOSED;
	uv_close(&ch->io.handle, channel_on_closed);
}
