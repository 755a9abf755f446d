/* store/zookeeper/: store.h against an ensemble of three ZooKeepers of one's own, on free ports of 127.0.0.1. */
#define STORE_HOSTS_OTHER_SERVER
#include "tests/unit/store_course.h"
#include "tests/unit/store_race.h"

#include <arpa/inet.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <zookeeper/zookeeper.h>

#include "store/zookeeper/zookeeper.h"

#define SERVERS 3

static char dir[SUITE_PATH_BYTES], ensemble[128], path[32] = "/dflock";
static struct server_of {
	int port, ports[2];
	pid_t pid, parent;
} servers[SERVERS];

/* For what an election must come before. */
#define wait_for_election(condition)                                                                                   \
	for (int64_t last = server_clock_ms() + 40000; !(condition);) {                                                \
		ck_assert_msg(server_clock_ms() < last, "waited in vain for %s (a: %s, b: %s)", #condition, a.why,     \
			      b.why);                                                                                  \
		uv_run(&loop, UV_RUN_ONCE);                                                                            \
	}

/* ---- servers ---- */

static int free_port(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert(bind(fd, (struct sockaddr *)&at, len) == 0 && getsockname(fd, (struct sockaddr *)&at, &len) == 0);
	close(fd);
	return ntohs(at.sin_port);
}

static void configure(int n)
{
	char file[128], command[256];
	FILE *f;

	snprintf(command, sizeof(command), "mkdir -p %s/%d && echo %d >%s/%d/myid", dir, n, n + 1, dir, n);
	ck_assert_int_eq(system(command), 0);
	snprintf(file, sizeof(file), "%s/%d/zoo.cfg", dir, n);
	f = fopen(file, "w");
	fprintf(f,
		"tickTime=500\ninitLimit=20\nsyncLimit=4\ndataDir=%s/%d\nclientPort=%d\nclientPortAddress=127.0.0.1\n"
		"admin.enableServer=false\n4lw.commands.whitelist=*\nmaxClientCnxns=0\n",
		dir, n, servers[n].port);
	for (int i = 0; i < SERVERS; i++)
		fprintf(f, "server.%d=127.0.0.1:%d:%d\n", i + 1, servers[i].ports[0], servers[i].ports[1]);
	ck_assert_int_eq(fclose(f), 0);
}

static void start_server(int n)
{
	pid_t parent = getpid();

	servers[n].parent = parent;
	servers[n].pid = fork();
	if (servers[n].pid)
		return;
	char file[128];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(126);
	snprintf(file, sizeof(file), "%s/%d/log", dir, n);
	int log = open(file, O_WRONLY | O_CREAT | O_APPEND, 0600);
	dup2(log, 1);
	dup2(log, 2);
	snprintf(file, sizeof(file), "%s/%d/zoo.cfg", dir, n);
	execl("/usr/bin/java", "java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
	      "-Dlog4j.rootLogger=WARN,CONSOLE", "-cp", "/etc/zookeeper/conf:/usr/share/java/zookeeper.jar",
	      "org.apache.zookeeper.server.quorum.QuorumPeerMain", file, NULL);
	_exit(127);
}

static const char *srvr(int n)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct timeval limit = {.tv_usec = 500000};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	static char text[1024];
	size_t len = 0;

	at.sin_port = htons((uint16_t)servers[n].port);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	if (connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0 && send(fd, "srvr", 4, MSG_NOSIGNAL) == 4)
		for (ssize_t got; (got = recv(fd, text + len, sizeof(text) - 1 - len, 0)) > 0;)
			len += (size_t)got;
	text[len] = '\0';
	close(fd);
	return text;
}

/* "leader", "follower", or "". */
static const char *mode_of(int n)
{
	const char *text = srvr(n);

	return strstr(text, "Mode: leader") ? "leader" : strstr(text, "Mode: follower") ? "follower" : "";
}

/* Of clients. */
static int connections(void)
{
	int count = 0;

	for (int i = 0; i < SERVERS; i++) {
		const char *text = strstr(srvr(i), "Connections: ");

		count += text ? atoi(text + strlen("Connections: ")) - 1 : 0; /* without this question's */
	}
	return count;
}

static int leader(void)
{
	for (int64_t limit = server_clock_ms() + 40000;;) {
		for (int i = 0; i < SERVERS; i++)
			if (servers[i].pid > 0 && strcmp(mode_of(i), "leader") == 0)
				return i;
		ck_assert(server_clock_ms() < limit);
		nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
	}
}

static void wait_for_all(void)
{
	for (int i = 0; i < SERVERS; i++)
		for (int64_t limit = server_clock_ms() + 40000; !*mode_of(i);) {
			ck_assert_msg(server_clock_ms() < limit, "server %d does not answer: see %s", i, dir);
			nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
		}
}

/* A zombie, too, has ended: it is the child of the process that runs the tests. */
static bool runs(pid_t pid)
{
	char file[32], state = 0;
	FILE *f;

	snprintf(file, sizeof(file), "/proc/%d/stat", (int)pid);
	f = pid > 0 ? fopen(file, "r") : NULL;
	bool read = f && fscanf(f, "%*d (%*[^)]) %c", &state) == 1;
	if (f)
		fclose(f);
	return read && state != 'Z';
}

/* It may be another process's child. */
static void kill_server(int n)
{
	kill(servers[n].pid, SIGKILL);
	waitpid(servers[n].pid, NULL, 0);
	for (int64_t limit = server_clock_ms() + 10000; runs(servers[n].pid);)
		ck_assert(server_clock_ms() < limit);
	servers[n].pid = 0;
}

static void make_servers(void)
{
	suite_make_folder(dir, "/dev/shm");
	for (int i = 0; i < SERVERS; i++)
		servers[i] = (struct server_of){free_port(), {free_port(), free_port()}, 0, 0};
	for (int i = 0; i < SERVERS; i++) {
		configure(i);
		start_server(i);
	}
	wait_for_all();
}

static void remove_servers(void)
{
	char command[128];

	for (int i = 0; i < SERVERS; i++)
		if (servers[i].pid > 0)
			kill_server(i);
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	ck_assert_int_eq(system(command), 0);
}

/* ---- as somebody else ---- */

static zhandle_t *other;

static void other_turn(int ms)
{
	int fd, interest;
	struct timeval wait;

	if (zookeeper_interest(other, &fd, &interest, &wait) != ZOK)
		return;
	fd_set in, out;
	FD_ZERO(&in);
	FD_ZERO(&out);
	if (fd >= 0 && interest & ZOOKEEPER_READ)
		FD_SET(fd, &in);
	if (fd >= 0 && interest & ZOOKEEPER_WRITE)
		FD_SET(fd, &out);
	select(fd + 1, &in, &out, NULL, &(struct timeval){.tv_usec = ms * 1000});
	int events = (fd >= 0 && FD_ISSET(fd, &in) ? ZOOKEEPER_READ : 0) |
		     (fd >= 0 && FD_ISSET(fd, &out) ? ZOOKEEPER_WRITE : 0);
	zookeeper_process(other, events);
}

static int other_rc;
static bool other_done;
static char **other_names;
static int other_count;
static void other_on_void(int rc, const void *arg)
{
	other_rc = rc;
	other_done = true;
}
static void other_on_string(int rc, const char *value, const void *arg) { other_on_void(rc, arg); }
static void other_on_stat(int rc, const struct Stat *stat, const void *arg) { other_on_void(rc, arg); }
static void other_forget_names(void)
{
	for (int i = 0; i < other_count; i++)
		free(other_names[i]);
	free(other_names);
	other_names = NULL;
	other_count = 0;
}

static void other_on_names(int rc, const struct String_vector *names, const void *arg)
{
	other_forget_names();
	other_count = rc == ZOK ? names->count : 0;
	other_names = calloc((size_t)other_count + 1, sizeof(*other_names));
	for (int i = 0; i < other_count; i++)
		other_names[i] = strdup(names->data[i]);
	other_on_void(rc, arg);
}

#define other_call(call)                                                                                               \
	({                                                                                                             \
		other_done = false;                                                                                    \
		ck_assert_int_eq(call, ZOK);                                                                           \
		for (int64_t limit = server_clock_ms() + LIMIT_MS; !other_done;) {                                     \
			ck_assert(server_clock_ms() < limit);                                                          \
			other_turn(20);                                                                                \
		}                                                                                                      \
		other_rc;                                                                                              \
	})

static void other_start(void)
{
	zoo_set_debug_level(0);
	other = zookeeper_init(ensemble, NULL, 10000, NULL, NULL, 0);
	ck_assert_ptr_nonnull(other);
	for (int64_t limit = server_clock_ms() + 20000; zoo_state(other) != ZOO_CONNECTED_STATE;) {
		ck_assert(server_clock_ms() < limit);
		other_turn(20);
	}
}

static void other_remove(const char *at)
{
	other_call(zoo_aget_children(other, at, 0, other_on_names, NULL));
	char **names = other_names;
	int count = other_count;

	other_names = NULL; /* this call's now */
	other_count = 0;

	for (int i = 0; i < count; i++) {
		char below[4096];

		snprintf(below, sizeof(below), "%s/%s", at, names[i]);
		other_remove(below);
		free(names[i]);
	}
	free(names);
	other_call(zoo_adelete(other, at, -1, other_on_void, NULL));
}

static const char *at(const char *below)
{
	static char whole[256];

	snprintf(whole, sizeof(whole), "%s%s", path, below);
	return whole;
}

/* What ZooKeeper's client allocates itself, and may forget when a connection breaks; not what our functions do that it calls. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:zookeeper_process\n"; }

/* ---- around each test ---- */

static char setting[256];

static void begin(void)
{
	signal(SIGPIPE, SIG_IGN);
	snprintf(ensemble, sizeof(ensemble), "127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d", servers[0].port, servers[1].port,
		 servers[2].port);
	for (int i = 0; i < SERVERS; i++) /* it ended with a test that had started it */
		if (!runs(servers[i].pid))
			start_server(i);
	wait_for_all();
	other_start();
	other_remove(path);
	snprintf(setting, sizeof(setting), "%s%s", ensemble, path);
	config = (struct config_store){.zookeeper = setting, .connect_ms = 4000};
	ck_assert_int_eq(uv_loop_init(&loop), 0);
	uv_timer_init(&loop, &tick);
	uv_timer_start(&tick, on_tick, 2, 2);
	a = b = (struct host){.id = ""};
}

static void end(void)
{
	other_forget_names();
	stop(&a);
	stop(&b);
	uv_close((uv_handle_t *)&tick, NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
	zookeeper_close(other);
	for (int i = 0; i < SERVERS; i++) /* it would end with this test: be sure that it has */
		if (servers[i].parent == getpid() && servers[i].pid > 0)
			kill_server(i);
}
FIXTURE_ONCE(make_servers, remove_servers)
FIXTURE(begin, end)

static unsigned names_in(const char *below)
{
	other_call(zoo_aget_children(other, at(below), 0, other_on_names, NULL));
	return (unsigned)other_count;
}

static void tell_b(unsigned times)
{
	for (unsigned i = 0; i < times; i++)
		store_tell(a.store, "host-b", &(struct store_message){.kind = STORE_MSG_TWICE});
	assert_ok(store_beat(a.store, 0, 0, on_answer, &answer));
}

/* ---- many hosts at once ---- */

static const struct {
	unsigned names;
} races[] = {{1}, {16}, {4}};

TEST_EACH(many_hosts_want_the_same, ROWS(races)) { ck_assert_uint_eq(race(races[_i].names, 0, NULL), 0); }

/* Nodes that have just become empty go at once, and are made anew. */
static unsigned cleaned;
static void clean(unsigned n)
{
	struct zookeeper *zk = racers[n % RACERS].host.store->at;

	cleaned += zk->cleaned;
	zk->cleaned = 0;
	zk_clean(zk, ZK_LOCK, 0);
}

TEST_EACH(nodes_that_have_nothing_go_meanwhile, ROWS(races))
{
	ck_assert_uint_eq(race(races[_i].names, 200, clean), 0);
	ck_assert(races[_i].names < RACERS || cleaned > 0); /* a name that many want is hardly ever free */
}

static void clean_all(int64_t older_ms)
{
	static const enum zk_kind kinds[] = {ZK_LOCK, ZK_HOST, ZK_MAILBOX};
	struct zookeeper *zk = a.store->at;

	for (unsigned i = 0; i < 9; i++) {
		zk_clean(zk, kinds[i % 3], older_ms);
		wait_until(!zk->clean);
	}
}

TEST(nodes_that_have_nothing_go)
{
	uint64_t fence = 0;
	char name[32];

	start_both();
	for (unsigned i = 0; i < 60; i++) {
		snprintf(name, sizeof(name), "lock %u", i);
		ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE, w.name = name), STORE_OK);
		fence = answer.reply.fence;
		if (i)
			assert_ok(store_release(a.store, name, token(1), false, on_answer, &answer));
	}
	tell_b(3);
	assert_ok(store_leave(b.store, on_answer, &answer));
	stop(&b);
	clean_all(60000);
	ck_assert_uint_eq(names_in("/locks"), 60);
	clean_all(0);
	ck_assert_uint_eq(names_in("/locks"), 1);
	ck_assert_uint_eq(names_in("/names"), 1);
	ck_assert_uint_eq(names_in("/hosts"), 1);
	ck_assert_uint_eq(names_in("/messages"), 1);
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE, w.name = "lock 7"), STORE_OK);
	ck_assert_uint_gt(answer.reply.fence, fence);
}

static void kill_the_leader(unsigned n)
{
	int first = leader();

	kill_server(first);
	ck_assert_int_ne(leader(), first);
	start_server(first);
}

static const struct {
	unsigned names;
} kills[] = {{1}, {16}};

TEST_EACH(a_leader_that_is_killed, ROWS(kills))
{
	ck_assert_uint_ge(race(kills[_i].names, 2, kill_the_leader), 1);
	wait_for_all();
}

/* ---- connections ---- */

TEST(a_session_that_has_expired_costs_a_connection)
{
	config.connect_ms = 1500; /* the session lasts as long */
	start_both();
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_OK);
	uint64_t fence = answer.reply.fence;
	zookeeper_close(other);
	for (int64_t limit = server_clock_ms() + 20000; connections() > 0;) { /* the loop does not run */
		ck_assert(server_clock_ms() < limit);
		nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
	}
	other_start();
	wait_for_election(a.ups == 2 && b.ups == 2);
	ck_assert_uint_eq(a.changes, 1);
	assert_ok(store_confirm(a.store, NAME, token(1), fence, on_answer, &answer));
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE), STORE_WAIT);
	wait_until(a.messages == 1);
}

static int server_with(const struct host *h)
{
	const char *port = strrchr(store_server(h->store), ':');

	for (int i = 0; i < SERVERS; i++)
		if (port && atoi(port + 1) == servers[i].port)
			return i;
	ck_abort_msg("%s", store_server(h->store));
}

TEST(a_server_that_stops_answering)
{
	config.connect_ms = 2500;
	start_both();
	pid_t stopped = servers[server_with(&a)].pid;
	kill(stopped, SIGSTOP);
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_UNREACHABLE);
	ck_assert_msg(strstr(answer.error, "no answer within 2500 ms") || strstr(answer.error, "timeout"), "%s",
		      answer.error);
	wait_for_election(a.ups == 2);
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_OK);
	kill(stopped, SIGCONT);
	wait_for_election(store_is_up(b.store));
	ck_assert_uint_eq(a.changes, 1);
	ck_assert_uint_eq(b.changes, 1);
	wait_for_all();
}

TEST(servers_that_are_not_there)
{
	char names[256];

	snprintf(names, sizeof(names), "127.0.0.1:1,[::1]:1,localhost:%d%s", servers[1].port, path);
	config.zookeeper = names;
	start(&a, "host-a");
	wait_until(a.ups == 1);
	stop(&a);
	config.zookeeper = "127.0.0.1:1/dflock";
	refused(&a, "cannot connect to 127.0.0.1:1: Connection refused");
}

/* ---- messages ---- */

TEST(messages_for_a_host_that_is_away_have_an_end)
{
	uint64_t seat[2] = {0};

	start(&a, "host-a");
	start(&b, "host-b");
	store_keep_seat(b.store, seat);
	wait_until(a.ups == 1 && b.ups == 1);
	stop(&b);
	tell_b(70);
	ck_assert_uint_eq(names_in("/messages/host-b"), 64);
	start(&b, "host-b");
	store_keep_seat(b.store, seat);
	wait_until(b.ups == 1);
	tell_b(70);
	wait_until(b.messages == 70);
	wait_until(names_in("/messages/host-b") == 0);
}

/* ---- what was lost ---- */

/* `change` is done to the folder of each server, as $0. */
static void restart_all(const char *change)
{
	char command[256];

	for (int i = 0; i < SERVERS; i++)
		kill_server(i);
	for (int i = 0; i < SERVERS; i++) {
		snprintf(command, sizeof(command), "cd %s && sh -c '%s' %d", dir, change, i);
		ck_assert_int_eq(system(command), 0);
		start_server(i);
	}
	wait_for_all();
}

TEST(an_ensemble_that_was_killed_keeps_what_it_said)
{
	start_both();
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_OK);
	uint64_t fence = answer.reply.fence;
	restart_all("true");
	wait_for_election(a.ups == 2 && b.ups == 2);
	ck_assert_uint_eq(a.changes, 1);
	assert_ok(store_confirm(a.store, NAME, token(1), fence, on_answer, &answer));
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE), STORE_WAIT);
}

TEST(folders_from_before_are_another_memory)
{
	start_both();
	restart_all("cp -a $0 $0.before");
	wait_for_election(a.ups == 2 && b.ups == 2);
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_OK);
	for (unsigned i = 0; i < 100; i++) /* the servers' own steps count, too */
		ck_assert_int_eq(beat(&a), STORE_OK);
	restart_all("rm -rf $0 && mv $0.before $0");
	wait_for_election(a.changes == 2 && a.ups == 3 && b.ups >= 3);
	ck_assert(store_in_grace(a.store));
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE), STORE_GRACE);
}

TEST(a_tree_that_somebody_removed_is_another_memory)
{
	start_both();
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_OK);
	uint64_t fence = answer.reply.fence;
	other_remove(path);
	ck_assert_int_eq(beat(&a), STORE_UNREACHABLE);
	beat(&b);
	wait_until(a.changes == 2 && b.changes == 2);
	ck_assert(store_in_grace(a.store));
	assert_ok(store_open(a.store, STORE_OPEN_FORCED, "", on_answer, &answer));
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE), STORE_OK);
	ck_assert_uint_gt(answer.reply.fence, fence);
}

TEST(what_knows_of_a_lock_may_be_removed)
{
	start_both();
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_OK);
	stop(&a);
	stop(&b);
	start_ttl(&a, "host-c", TTL_MS + 1000); /* another ttl_ms is another incarnation, which is written there */
	wait_until(a.downs == 1);
	ck_assert_int_eq(
		other_call(zoo_adelete(other, at("/names/%2fvar%2flock%2fjob one.lock"), -1, other_on_void, NULL)),
		ZOK);
	for (int64_t last = server_clock_ms() + 20000;
	     ask(store_open(a.store, STORE_OPEN_FORCED, "", on_answer, &answer)) != STORE_OK;)
		ck_assert_msg(server_clock_ms() < last, "%s", answer.error);
	ck_assert_int_eq(acquire(&a, 2, WIRE_EXCLUSIVE), STORE_WAIT);
	ck_assert_uint_eq(names_in("/names"), 1);
}

static const char *lock_node(void) { return at("/locks/%2fvar%2flock%2fjob one.lock"); }

TEST(a_lock_that_somebody_removed_is_found_out)
{
	start_both();
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_OK);
	for (unsigned round = 1; round < 3; round++) {
		ck_assert_int_eq(other_call(zoo_adelete(other, lock_node(), -1, other_on_void, NULL)), ZOK);
		ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE), STORE_INCARNATION);
		wait_until(b.changes == 1 + round);
		ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE), STORE_GRACE);
		beat(&a);
		wait_until(a.changes == 1 + round);
		assert_ok(store_open(a.store, STORE_OPEN_FORCED, "", on_answer, &answer));
		ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE), STORE_OK);
	}
}

/* ---- what somebody else wrote ---- */

static const struct {
	const char *remove, *set, *line;
} wrongs[] = {
	{"/locks", NULL, "a part is missing: remove the rest"},
	{"/messages", NULL, "a part is missing: remove the rest"},
	{NULL, "/store", "was not written by this version of dflock"},
};

TEST_EACH(what_will_not_do_is_refused, ROWS(wrongs))
{
	start_both();
	stop(&a);
	stop(&b);
	if (wrongs[_i].remove)
		other_remove(at(wrongs[_i].remove));
	else
		ck_assert_int_eq(other_call(zoo_aset(other, at(wrongs[_i].set), "hello", 5, -1, other_on_stat, NULL)),
				 ZOK);
	refused(&a, wrongs[_i].line);
}

TEST(a_node_that_somebody_wrote_into)
{
	start_both();
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_OK);
	ck_assert_int_eq(
		other_call(zoo_aset(other, lock_node(), "dflock 1\nlock 7\nhello\n", 22, -1, other_on_stat, NULL)),
		ZOK);
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE), STORE_ERROR);
	ck_assert_msg(strstr(answer.error,
			     "dflock did not write /dflock/locks/%2fvar%2flock%2fjob one.lock: remove it") != NULL,
		      "%s", answer.error);
	ck_assert_int_eq(beat(&b), STORE_OK);
}

TEST(an_acl_that_forbids)
{
	struct ACL only_read = {ZOO_PERM_READ, {"world", "anyone"}};
	struct ACL_vector acl = {1, &only_read};

	start_both();
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_OK);
	ck_assert_int_eq(other_call(zoo_aset_acl(other, lock_node(), -1, &acl, other_on_void, NULL)), ZOK);
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE), STORE_UNREACHABLE);
	ck_assert_msg(strstr(answer.error, "the ACL of /dflock/locks/%2fvar%2flock%2fjob one.lock forbids") != NULL,
		      "%s", answer.error);
	ck_assert_str_eq(store_trouble(b.store), "cannot be used");
}

TEST(the_acl_of_the_root_stands_for_all_below)
{
	struct ACL only = {ZOO_PERM_ALL, {"digest", "dflock:aImgGgd6+9CnBEovfQoCMeWumcM="}}; /* secret */
	struct ACL_vector acl = {1, &only};

	ck_assert_int_eq(other_call(zoo_acreate(other, path, "", 0, &acl, 0, other_on_string, NULL)), ZOK);
	refused(&a, "the ACL of /dflock forbids what dflock needs");
	config.password = "secret";
	start_both();
	ck_assert_int_eq(acquire(&a, 1, WIRE_EXCLUSIVE), STORE_OK);
	ck_assert_int_eq(acquire(&b, 2, WIRE_EXCLUSIVE), STORE_WAIT);
	wait_until(a.messages == 1);
	for (const char *const *node =
		     (const char *const[]){"/store", "/locks", "/hosts/host-a", "/messages/host-b", NULL};
	     *node; node++)
		ck_assert_int_eq(other_call(zoo_aset(other, at(*node), "", 0, -1, other_on_stat, NULL)), ZNOAUTH);
	ck_assert_int_eq(other_call(zoo_aset(other, lock_node(), "", 0, -1, other_on_stat, NULL)), ZNOAUTH);
	ck_assert_int_eq(other_call(zoo_add_auth(other, "digest", "dflock:secret", 13, other_on_void, NULL)), ZOK);
	other_remove(path); /* nobody else could */
}
