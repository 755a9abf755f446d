/* store.h against a server that talks nonsense. */
#include "tests/unit/proxy.h"
#include "tests/unit/store_hosts.h"

TEST(nonsense_in_messages)
{
	start_both();
	command("PUBLISH dflock:{0}:host:host-a hello");
	command("PUBLISH dflock:{0}:host:host-a %s", "recall 1 2 3");
	command("PUBLISH dflock:{0}:host:host-a %b",
		"inuse 00000000000000000000000000000001 flock shared 0 1 host-b x\0y", (size_t)59);
	command("PUBLISH dflock:{0}:host:host-a %s", "granted 00000000000000000000000000000001 5 0-0 name");
	command("PUBLISH dflock:{0}:host:host-a %s",
		"inuse 00000000000000000000000000000001 flock shared 0 1 host-b name");
	wait_until(a.messages == 1);
	ck_assert_int_eq(a.message.kind, STORE_MSG_IN_USE);
	ck_assert_str_eq(a.message.name, "name");
	ck_assert_uint_eq(a.notes, 1);
	ck_assert_ptr_nonnull(strstr(a.note, "malformed"));
}

/* A server in the same loop that answers everything with the same bytes; or says something at once. */
static uv_pipe_t fake, fake_client[64];
static unsigned fake_clients;
static const char *fake_says, *fake_greets;

static void fake_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
	static char bytes[65536];

	*buf = uv_buf_init(bytes, sizeof(bytes));
}

static void fake_write(uv_stream_t *stream, const char *text)
{
	uv_buf_t out = uv_buf_init((char *)text, (unsigned)strlen(text));
	int n = uv_try_write(stream, &out, 1);

	ck_assert(n == (int)out.len || n == UV_EPIPE); /* it may have had enough */
}

static void fake_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
	if (n < 0)
		uv_close((uv_handle_t *)stream, NULL);
	else if (n > 0 && fake_says)
		fake_write(stream, fake_says);
}

static void fake_accept(uv_stream_t *stream, int status)
{
	ck_assert_int_eq(status, 0);
	ck_assert_uint_lt(fake_clients, 64);
	uv_pipe_t *client = &fake_client[fake_clients++];
	uv_pipe_init(&loop, client, 0);
	ck_assert_int_eq(uv_accept(stream, (uv_stream_t *)client), 0);
	uv_read_start((uv_stream_t *)client, fake_alloc, fake_read);
	if (fake_greets)
		fake_write((uv_stream_t *)client, fake_greets);
}

/* Where another server listens. */
static char *other_socket(void)
{
	static char path[96];

	snprintf(path, sizeof(path), "%s/other.sock", server.dir);
	unlink(path);
	return path;
}

static void start_fake(void)
{
	config.socket = other_socket();
	config.connect_ms = 200;
	uv_pipe_init(&loop, &fake, 0);
	ck_assert_int_eq(uv_pipe_bind(&fake, config.socket), 0);
	ck_assert_int_eq(uv_listen((uv_stream_t *)&fake, 16, fake_accept), 0);
	fake_says = fake_greets = NULL;
	fake_clients = 0;
}

TEST(garbage)
{
	static const struct {
		const char *says, *line;
	} cases[] = {
		{"HTTP/1.1 400 Bad Request\r\n\r\n", "is not Redis's protocol"},
		{"+OK\r\n", "INFO does not show"},
		{"*2147483647\r\n", "is not Redis's protocol"},
		{"$99999999999999999999\r\n", "is not Redis's protocol"},
		{"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n", "is not Redis's protocol"},
		{"+OK\r\n+OK\r\n+OK\r\n+OK\r\n", ""},
		{"-ERR max number of clients reached\r\n", "maxclients"},
		{"$51\r\nredis_version:7.0.15\r\nmaxmemory_policy:noeviction\r\n\r\n", "INFO does not show run_id"},
		{"$38\r\nredis_version:5.0.7\r\nrun_id:0123456789\r\n", "needs Redis 6.2"},
		{"*0\r\n", "INFO does not show"},
		{"$-1\r\n", "INFO does not show"},
		{"$5\r\nhell", "no answer within"},
	};

	start_fake();
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		fake_says = cases[i].says;
		refused(&a, cases[i].line);
	}
	uv_close((uv_handle_t *)&fake, NULL);
}

/* As much of it as there is room for. */
static void fake_go_on(void)
{
	static char row[65536];
	static size_t at;
	size_t len = sizeof(row) - 1;

	if (!*row)
		sprintf(row, "$%zu\r\n%0*d\r\n", len - 10, (int)len - 10, 0);
	for (int n = 1; fake_clients && n > 0; at = (at + (size_t)(n > 0 ? n : 0)) % len)
		n = uv_try_write((uv_stream_t *)&fake_client[0], &(uv_buf_t){.base = row + at, .len = len - at}, 1);
}

/* Each part of it is small. */
TEST(an_answer_without_end)
{
	start_fake();
	config.connect_ms = LIMIT_MS;
	fake_says = "*1000000\r\n";
	each_tick = fake_go_on;
	refused(&a, "an answer of more than 67108864 bytes");
	each_tick = NULL;
	uv_close((uv_handle_t *)&fake, NULL);
}

static struct proxy proxy;
static struct redis_server second;

/* One connection after the other reaches another server. */
static void turn_proxy(void)
{
	unsigned open = 0;

	while (proxy.pairs[open][0] >= 0)
		open++;
	snprintf(proxy.to.local.sun_path, sizeof(proxy.to.local.sun_path), "%s",
		 open % 2 ? second.socket : server.socket);
	proxy_turn(&proxy);
}

TEST(two_servers_behind_one_address)
{
	redis_server_prepare(&second);
	redis_server_start(&second);
	proxy.at.local = proxy.to.local = (struct sockaddr_un){.sun_family = AF_UNIX};
	config.socket = strcpy(proxy.at.local.sun_path, other_socket());
	proxy_start(&proxy);
	each_tick = turn_proxy;
	refused(&a, "reached two servers");
	proxy_end(&proxy);
	redis_server_remove(&second);
}

static char link_why[256];

static void on_link_connected(void *arg) {}
static void on_link_broken(void *arg, const char *why) { snprintf(link_why, sizeof(link_why), "%s", why); }

TEST(an_answer_that_nobody_asked_for)
{
	const struct link_events events = {.connected = on_link_connected, .broken = on_link_broken};

	start_fake();
	fake_greets = "+OK\r\n";
	struct channel_target target = {.path = config.socket};
	struct link *link = link_open(&loop, &target, LIMIT_MS, &events, NULL);
	ck_assert_ptr_nonnull(link);
	wait_until(*link_why);
	ck_assert_ptr_nonnull(strstr(link_why, "to no question"));
	link_close(link);
	uv_close((uv_handle_t *)&fake, NULL);
}
