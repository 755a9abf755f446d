/*
 * store/redis/channel.c with TLS over a real TCP connection: the server is a thread with OpenSSL's blocking calls, which updates keys,
 * sends much and little, and ends in good and bad ways. Without TLS: a server that reads late.
 */
#include "tests/unit/suite.h"
#include "tests/unit/tls_server.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/socket.h>

#include "store/redis/channel.h"

#define HOST        "redis.example"
#define BIG_BYTES   1000000
#define LATE_BYTES  (8u << 20) /* more than the kernel takes for a server that does not read */
#define LATE_WRITES 3
#define LIMIT_S     20

static uv_loop_t loop;
static struct tls_identity ca, leaf;
static struct tls_context *context;
static struct channel *channel;
static int listener;
static void (*serve)(int fd, SSL *ssl);
static bool plain;
static sem_t all_written;
static unsigned released;

/* ---- the server ---- */

static void *run_server(void *arg)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
	int fd = accept(listener, NULL, NULL);
	SSL *ssl;

	SSL_CTX_use_certificate(ctx, leaf.certificate);
	SSL_CTX_use_PrivateKey(ctx, leaf.key);
	ssl = SSL_new(ctx);
	SSL_set_fd(ssl, fd);
	serve(fd, ssl);
	SSL_free(ssl);
	SSL_CTX_free(ctx);
	close(fd);
	return NULL;
}

/* Sends back what comes, with a request for new keys before each answer, until the client ends. */
static void echo_with_new_keys(int fd, SSL *ssl)
{
	char bytes[4096];
	int n;

	SSL_accept(ssl);
	while ((n = SSL_read(ssl, bytes, sizeof(bytes))) > 0) {
		SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED);
		SSL_write(ssl, bytes, n);
	}
	/* The client said that it ends, and did not just go. */
	ck_assert_int_eq(SSL_get_error(ssl, n), SSL_ERROR_ZERO_RETURN);
}

static void send_much(int fd, SSL *ssl)
{
	char *bytes = malloc(BIG_BYTES);
	for (size_t i = 0; i < BIG_BYTES; i++)
		bytes[i] = (char)(i % 251);
	SSL_accept(ssl);
	SSL_write(ssl, bytes, 1);
	SSL_write(ssl, bytes + 1, BIG_BYTES - 1);
	SSL_shutdown(ssl);
	free(bytes);
}

static void end_in_the_handshake(int fd, SSL *ssl) { (void)!read(fd, (char[1]){0}, 1); }

static void end_without_a_word(int fd, SSL *ssl)
{
	SSL_accept(ssl);
	SSL_write(ssl, "x", 1);
	shutdown(fd, SHUT_RDWR);
}

static void stay_silent(int fd, SSL *ssl)
{
	char byte;
	while (read(fd, &byte, 1) > 0)
		;
}

static char late_byte(size_t at) { return (char)(at % 251); }

/* Reads nothing before the client has written all; says then whether it all came, in order. */
static void read_late(int fd, SSL *ssl)
{
	size_t at = 0, all = (size_t)LATE_WRITES * LATE_BYTES;
	static char bytes[65536];
	bool good = true;
	ssize_t n;

	sem_wait(&all_written);
	while (at < all && (n = read(fd, bytes, sizeof(bytes))) > 0)
		for (ssize_t i = 0; i < n; i++)
			good = good && bytes[i] == late_byte(at++);
	(void)!write(fd, good && at == all ? "y" : "n", 1);
}

/* ---- the client ---- */

static struct {
	bool connected;
	char why[TLS_LINE_BYTES];
	char *bytes;
	size_t len;
} heard;

static void on_connected(void *arg) { heard.connected = true; }

static void on_bytes(void *arg, const char *bytes, size_t len)
{
	ck_assert_uint_le(len, 65536);
	heard.bytes = realloc(heard.bytes, heard.len + len);
	memcpy(heard.bytes + heard.len, bytes, len);
	heard.len += len;
}

static void on_broken(void *arg, const char *why)
{
	ck_assert_str_eq(heard.why, "");
	snprintf(heard.why, sizeof(heard.why), "%s", why);
}

static void on_tick(uv_timer_t *timer) {}

#define wait_until(condition)                                                                                          \
	do {                                                                                                           \
		time_t limit = time(NULL) + LIMIT_S;                                                                   \
		while (!(condition)) {                                                                                 \
			ck_assert_msg(time(NULL) < limit, "waited in vain for %s (%s)", #condition, heard.why);        \
			uv_run(&loop, UV_RUN_ONCE);                                                                    \
		}                                                                                                      \
	} while (0)

static pthread_t start(void (*how)(int fd, SSL *ssl), const char *name)
{
	const struct channel_events events = {.connected = on_connected, .bytes = on_bytes, .broken = on_broken};
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct channel_target target = {.tls = plain ? NULL : context, .name = name};
	socklen_t len = sizeof(at);
	pthread_t thread;

	memset(&heard, 0, sizeof(heard));
	listener = socket(AF_INET, SOCK_STREAM, 0);
	ck_assert_int_eq(bind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
	ck_assert_int_eq(listen(listener, 1), 0);
	ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&at, &len), 0);
	memcpy(&target.address, &at, sizeof(at));
	serve = how;
	ck_assert_int_eq(pthread_create(&thread, NULL, run_server, NULL), 0);
	ck_assert_int_eq(channel_open(&loop, &target, &events, NULL, &channel), 0);
	return thread;
}

static void stop(pthread_t thread)
{
	channel_close(channel);
	for (int i = 0; i < 3; i++)
		uv_run(&loop, UV_RUN_NOWAIT);
	pthread_join(thread, NULL);
	close(listener);
	free(heard.bytes);
}

static uv_timer_t tick;

static void identify(void)
{
	signal(SIGPIPE, SIG_IGN);
	ca = tls_identify(NULL, "The test's authority", NULL, -DAY_S, DAY_S);
	leaf = tls_identify(&ca, HOST, "DNS:" HOST, -DAY_S, DAY_S);
}

static void forget(void)
{
	tls_forget(&ca);
	tls_forget(&leaf);
}
FIXTURE_ONCE(identify, forget)

static void setup(void)
{
	plain = false;
	context = tls_client(&ca, NULL);
	uv_loop_init(&loop);
	uv_timer_init(&loop, &tick);
	uv_timer_start(&tick, on_tick, 20, 20);
}

static void teardown(void)
{
	uv_close((uv_handle_t *)&tick, NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0); /* no handle is left */
	tls_context_free(context);
}
FIXTURE(setup, teardown)

static void send_text(const char *text)
{
	ck_assert_int_eq(channel_write(channel, strdup(text), strlen(text), free), 0);
}

/* Each request for new keys is answered, and what is written later is under them. */
TEST(keys_are_updated)
{
	pthread_t server = start(echo_with_new_keys, HOST);

	ck_assert_int_eq(channel_write(channel, strdup("early"), 5, free), -ENOTCONN);
	wait_until(heard.connected);
	for (size_t i = 1; i <= 10; i++) { /* each takes a delayed ACK */
		send_text("question");
		wait_until(heard.len == 8 * i);
		ck_assert_mem_eq(heard.bytes + heard.len - 8, "question", 8);
	}
	ck_assert_str_eq(heard.why, "");
	stop(server);
}

TEST(much_and_the_end)
{
	pthread_t server = start(send_much, HOST);

	wait_until(*heard.why);
	ck_assert_str_eq(heard.why, "the server closed the connection");
	ck_assert_uint_eq(heard.len, BIG_BYTES);
	for (size_t i = 0; i < BIG_BYTES; i++)
		if ((unsigned char)heard.bytes[i] != i % 251)
			ck_abort_msg("byte %zu is wrong", i);
	ck_assert_int_eq(channel_write(channel, strdup("late"), 4, free), -ENOTCONN);
	stop(server);
}

static const struct {
	void (*serve)(int fd, SSL *ssl);
	const char *name, *why;
	bool connected;
	size_t bytes;
} other_ends[] = {
	{end_in_the_handshake, HOST, " in the TLS handshake: does it speak TLS on this port?", false, 0},
	{end_without_a_word, HOST, "the server closed the connection", true, 1},
	{send_much, "other.example", "is for redis.example, not for other.example", false, 0},
};

TEST_EACH(how_it_ends, ROWS(other_ends))
{
	pthread_t server = start(other_ends[_i].serve, other_ends[_i].name);
	wait_until(*heard.why);
	ck_assert_ptr_nonnull(strstr(heard.why, other_ends[_i].why));
	ck_assert_int_eq(heard.connected, other_ends[_i].connected);
	ck_assert_uint_eq(heard.len, other_ends[_i].bytes);
	stop(server);
}

/* The owner's time limit would end this. */
TEST(a_silent_server)
{
	pthread_t server = start(stay_silent, HOST);
	for (int i = 0; i < 5; i++)
		uv_run(&loop, UV_RUN_ONCE);
	ck_assert(!heard.connected);
	ck_assert_str_eq(heard.why, "");
	ck_assert_ptr_nonnull(strstr(channel_awaits(channel), "no answer to TLS"));
	stop(server);
}

static void count_release(void *bytes)
{
	released++;
	free(bytes);
}

/* The kernel takes a part of the first write at once, and nothing of the others: they wait in their order. */
TEST(server_reads_late)
{
	pthread_t server;

	plain = true;
	released = 0;
	sem_init(&all_written, 0, 0);
	server = start(read_late, NULL);
	wait_until(heard.connected);
	for (size_t i = 0; i < LATE_WRITES; i++) {
		char *bytes = malloc(LATE_BYTES);

		for (size_t at = 0; at < LATE_BYTES; at++)
			bytes[at] = late_byte(i * LATE_BYTES + at);
		ck_assert_int_eq(channel_write(channel, bytes, LATE_BYTES, count_release), 0);
	}
	ck_assert_uint_eq(released, 0);
	sem_post(&all_written);
	wait_until(heard.len == 1);
	ck_assert_int_eq(heard.bytes[0], 'y');
	ck_assert_uint_eq(released, LATE_WRITES);
	stop(server);
}
