/*
 * onestore SOCKET PID HOSTS BUSY SECONDS [PORT SHARDS]: what HOSTS hosts cost one server (its socket, and its pid). Each host is a store of
 * store.h, with its two connections, as a keeper has it. First all of them beat, at the pace of ttl_ms = 30000, and do
 * nothing else; then BUSY of them lock and unlock a name of their own, one lock after the other; then some hosts hold
 * LEASES leases. Prints one line: hosts, seconds until all were connected, the server's memory for all of them and its processor
 * time while they beat (in thousandths of a processor), locks per second, the server's processor time for one lock and
 * unlock in µs, and its memory for one lease. Memory is in bytes.
 *
 * With PORT and SHARDS it is a Redis Cluster, of which 127.0.0.1:PORT is a node, SOCKET any other, and PID all pids, with commas between them.
 * Host i has shard i modulo SHARDS, as a host that locks one name. Printed are hosts, locks per second, processor time of all servers for one, and
 * the share of all that the busiest server has had.
 */
#include <hiredis.h>
#include <signal.h>
#include <uv.h>

#include "bench/bench.h"
#include "store/store.h"

#define TTL_MS     30000
#define LEASES     10000
#define HOLDING    10 /* hosts that have these leases: connections that were idle would need memory, too */
#define LIMIT_S    300
#define AT_ONCE    256 /* hosts that are connecting */
#define NAME_BYTES 64

struct bench_host {
	struct store *store;
	unsigned number, locks;
	uv_timer_t beat;
};

static uv_loop_t loop;
static redisContext *control;
static struct bench_host *hosts;
static unsigned host_count, started, up, asked;
static bool locking;
static unsigned long locks;
static double over_ns;
static const char *server_pid;

static struct config_store config = {.connect_ms = 60000, .shards = 1};

/* The processor time of all servers so far, in seconds; *busiest: of the one with most, since it started. */
static double servers_seconds(double *busiest)
{
	double all = 0;
	char *pids = strdup(server_pid), *rest = pids, *pid;

	*busiest = 0;
	while (pids && (pid = strsep(&rest, ","))) {
		unsigned long user, system;
		char path[64];

		snprintf(path, sizeof(path), "/proc/%s/stat", pid);
		FILE *f = fopen(path, "re");
		if (!f || fscanf(f, "%*d %*s %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
			bench_die(path);
		fclose(f);
		double seconds = (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
		all += seconds;
		*busiest = seconds > *busiest ? seconds : *busiest;
	}
	free(pids);
	return all;
}

static double server_seconds(void)
{
	return servers_seconds(&(double){0});
}

/* A field of INFO memory, in bytes. */
static double server_memory(const char *field)
{
	redisReply *reply = redisCommand(control, "INFO memory");
	const char *at = reply ? strstr(reply->str, field) : NULL;

	if (!at)
		bench_die("INFO memory");
	double bytes = atof(at + strlen(field));
	freeReplyObject(reply);
	return bytes;
}

/* ---- what a host does ---- */

static void on_down(void *arg, const char *why)
{
	(void)arg;
	errno = 0;
	if (started == up)
		bench_die(why);
}

static void start_host(void);

static void on_up(void *arg)
{
	(void)arg;
	up++;
	start_host();
}

static void on_incarnation(void *arg, const char *old, const char *now)
{
	(void)arg, (void)old, (void)now;
}

static void on_message(void *arg, const struct store_message *message)
{
	(void)arg, (void)message;
}

static void on_reply(void *arg, const struct store_reply *reply)
{
	(void)arg;
	errno = 0;
	if (reply->status != STORE_OK)
		bench_die(reply->error ? reply->error : "the store refused");
	asked--;
}

static void on_beat(uv_timer_t *timer)
{
	struct bench_host *host = timer->data;

	asked++;
	store_beat(host->store, 0, 0, on_reply, host);
}

static void start_host(void)
{
	static const struct store_callbacks callbacks = {
		.on_up = on_up, .on_down = on_down, .on_incarnation = on_incarnation, .on_message = on_message};
	static char id[STORE_HOST_BYTES];

	if (started == host_count)
		return;
	struct bench_host *host = &hosts[started];
	host->number = started++;
	snprintf(id, sizeof(id), "host-%016x", host->number);
	host->store = store_new(&loop, &config, TTL_MS, id, &callbacks, host);
	if (!host->store)
		bench_die("store_new");
	if (host->number % config.shards) {
		store_be_shard(host->store, host->number % config.shards);
		store_reach(host->store);
		store_admit(host->store);
	}
	uv_timer_init(&loop, &host->beat);
	host->beat.data = host;
}

static void ask_acquire(const struct bench_host *host, unsigned lock, store_reply_cb *cb)
{
	char name[NAME_BYTES], token[STORE_TOKEN_BYTES];
	struct store_acquire a = {.name = name,
				  .file = "1:2",
				  .token = token,
				  .job = "",
				  .grow = true,
				  .beat = true,
				  .range = {.to = WIRE_EOF}};

	snprintf(name, sizeof(name), "/var/lock/job-%u-%u.lock", host->number, lock);
	snprintf(token, sizeof(token), "%016x%016x", host->number, lock);
	a.range.space = WIRE_FLOCK;
	a.range.mode = WIRE_EXCLUSIVE;
	asked++;
	store_acquire(host->store, &a, cb, (void *)host);
}

static void on_released(void *arg, const struct store_reply *reply);

static void on_locked(void *arg, const struct store_reply *reply)
{
	const struct bench_host *host = arg;
	char name[NAME_BYTES], token[STORE_TOKEN_BYTES];

	on_reply(arg, reply);
	snprintf(name, sizeof(name), "/var/lock/job-%u-%u.lock", host->number, 0u);
	snprintf(token, sizeof(token), "%016x%016x", host->number, 0u);
	asked++;
	store_release(host->store, name, token, false, on_released, arg);
}

static void on_released(void *arg, const struct store_reply *reply)
{
	on_reply(arg, reply);
	locks++;
	if (locking)
		ask_acquire(arg, 0, on_locked);
}

/* ---- the phases ---- */

static void on_over(uv_timer_t *timer)
{
	(void)timer;
	uv_stop(&loop);
}

static void run_for(double seconds)
{
	uv_timer_t timer;

	uv_timer_init(&loop, &timer);
	uv_timer_start(&timer, on_over, (uint64_t)(seconds * 1000), 0);
	uv_run(&loop, UV_RUN_DEFAULT);
	uv_close((uv_handle_t *)&timer, NULL);
	uv_run(&loop, UV_RUN_NOWAIT);
}

static void run_until(const unsigned *count, unsigned wanted)
{
	errno = 0;
	while (*count != wanted) {
		if (bench_now_ns() > over_ns)
			bench_die("it takes too long");
		uv_run(&loop, UV_RUN_ONCE);
	}
}

/* Of a processor, while all hosts beat. */
static double measure_beats(void)
{
	double beats;

	for (unsigned i = 0; i < host_count; i++) /* spread over the time between two beats */
		uv_timer_start(&hosts[i].beat, on_beat, (uint64_t)i * (TTL_MS / 3) / host_count, TTL_MS / 3);
	run_for(TTL_MS / 3000.0);
	beats = server_seconds();
	run_for(TTL_MS / 3000.0);
	return (server_seconds() - beats) / (TTL_MS / 3000.0);
}

static void use_cluster(const char *port, const char *shards)
{
	config.cluster = true;
	config.sentinels[config.sentinel_count++] =
		(struct config_address){.host = strdup("127.0.0.1"), .port = (int)bench_number(port)};
	config.shards = (unsigned)bench_number(shards);
}

/* Opens each shard, by the first host that has it. */
static void open_all(void)
{
	for (unsigned i = 0; i < config.shards && i < host_count; i++) {
		asked++;
		store_open(hosts[i].store, STORE_OPEN_FORCED, "", on_reply, &hosts[i]);
		run_until(&asked, 0);
	}
}

int main(int argc, char **argv)
{
	if (argc != 6 && argc != 8)
		bench_die("onestore SOCKET PID HOSTS BUSY SECONDS [PORT SHARDS]");
	signal(SIGPIPE, SIG_IGN);
	server_pid = argv[2];
	host_count = (unsigned)bench_number(argv[3]);
	unsigned busy = (unsigned)bench_number(argv[4]);
	double seconds = (double)bench_number(argv[5]);
	over_ns = bench_now_ns() + LIMIT_S * 1e9;
	hosts = calloc(host_count, sizeof(*hosts));
	control = redisConnectUnix(argv[1]);
	if (!hosts || !control || control->err || uv_loop_init(&loop) != 0)
		bench_die("cannot begin");
	config.socket = argc == 6 ? control->unix_sock.path : NULL;
	if (argc == 8)
		use_cluster(argv[6], argv[7]);

	double memory = server_memory("\nused_memory:"), from = bench_now_ns();
	for (unsigned i = 0; i < AT_ONCE; i++)
		start_host();
	run_until(&up, host_count);
	open_all();
	double connected = (bench_now_ns() - from) / 1e9;
	memory = server_memory("\nused_memory:") - memory;

	double beats = config.cluster ? 0 : measure_beats();

	for (unsigned i = 0; i < host_count; i++) /* each lock is a beat */
		uv_timer_stop(&hosts[i].beat);
	run_until(&asked, 0);
	locking = true;
	locks = 0;
	from = bench_now_ns();
	double first, last, work = servers_seconds(&first);
	for (unsigned i = 0; i < busy && i < host_count; i++)
		ask_acquire(&hosts[i], 0, on_locked);
	run_for(seconds);
	work = servers_seconds(&last) - work;
	double took = (bench_now_ns() - from) / 1e9;
	unsigned long done = locks;
	locking = false;
	run_until(&asked, 0);
	if (config.cluster) {
		printf("%u %.0f %.1f %.3f\n", host_count, (double)done / took, work * 1e6 / (double)done,
		       (last - first) / work);
		return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
	}

	double dataset = server_memory("\nused_memory_dataset:");
	for (unsigned i = 0; i < LEASES; i++) {
		ask_acquire(&hosts[i % (host_count < HOLDING ? host_count : HOLDING)], i + 1, on_reply);
		while (asked > AT_ONCE)
			uv_run(&loop, UV_RUN_ONCE);
	}
	run_until(&asked, 0);
	double lease = (server_memory("\nused_memory_dataset:") - dataset) / LEASES;

	printf("%u %.1f %.0f %.1f %.0f %.1f %.0f\n", host_count, connected, memory, beats * 1000, (double)done / took,
	       work * 1e6 / (double)done, lease);
	return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
