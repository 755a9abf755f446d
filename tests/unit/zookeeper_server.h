/*
 * ZooKeepers of a test's own, on free ports of 127.0.0.1, and the engine against them: an ensemble of SERVERS (3), or one alone. They end
 * with the process that started them.
 */
#ifndef DFLOCK_TESTS_UNIT_ZOOKEEPER_SERVER_H
#define DFLOCK_TESTS_UNIT_ZOOKEEPER_SERVER_H

#define STORE_HOSTS_OTHER_SERVER
#include <arpa/inet.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <zookeeper/zookeeper.h>

#include "procfs/procfs.h"
#include "store/zookeeper/zookeeper.h"
#include "tests/unit/store_hosts.h"

#ifndef SERVERS
#define SERVERS 3
#endif

static char dir[SUITE_PATH_BYTES], ensemble[128], path[32] = "/dflock";
static struct server_of {
	int port, ports[2];
	pid_t pid, parent;
} servers[SERVERS];

/* ---- servers ---- */

/* This process has a name that says that it has the port, so that no other test takes it while the server is off (see harness/ports.py). */
static inline bool take_port(int number)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	const int len = snprintf(at.sun_path + 1, sizeof(at.sun_path) - 1, "dflock-port-%d", number) + 1;
	const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const bool taken = bind(fd, (struct sockaddr *)&at,
				(socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)len)) == 0;

	if (!taken)
		close(fd);
	return taken;
}

/* Below the range from which the kernel takes ports for clients. */
static inline int free_port(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	uint16_t number;
	bool is_free;

	do {
		ck_assert(getrandom(&number, sizeof(number), 0) == sizeof(number));
		at.sin_port = htons((uint16_t)(10000 + number % 20000));
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		is_free = bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0 && take_port(ntohs(at.sin_port));
		close(fd);
	} while (!is_free);
	return ntohs(at.sin_port);
}

static inline void configure(int n)
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
	for (int i = 0; i < SERVERS && SERVERS > 1; i++)
		fprintf(f, "server.%d=127.0.0.1:%d:%d\n", i + 1, servers[i].ports[0], servers[i].ports[1]);
	ck_assert_int_eq(fclose(f), 0);
}

static inline void start_server(int n)
{
	static const char *const argv[] = {"/usr/bin/java",
					   "-Xmx128m",
					   "-XX:TieredStopAtLevel=1",
					   "-XX:+UseSerialGC",
					   "-Dlog4j.rootLogger=WARN,CONSOLE",
					   "-cp",
					   "/etc/zookeeper/conf:/usr/share/java/zookeeper.jar",
					   "org.apache.zookeeper.server.quorum.QuorumPeerMain",
					   "zoo.cfg",
					   NULL};
	char folder[96];

	snprintf(folder, sizeof(folder), "%s/%d", dir, n);
	servers[n].parent = getpid();
	servers[n].pid = server_run(folder, 0, SIGKILL, argv);
}

static inline const char *srvr(int n)
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

/* "leader", "follower", "standalone", or "". */
static inline const char *mode_of(int n)
{
	static char mode[16];
	const char *text = strstr(srvr(n), "Mode: ");

	if (!text || sscanf(text, "Mode: %15s", mode) != 1)
		mode[0] = '\0';
	return mode;
}

/* Of clients. */
static inline int connections(void)
{
	int count = 0;

	for (int i = 0; i < SERVERS; i++) {
		const char *text = strstr(srvr(i), "Connections: ");

		count += text ? atoi(text + strlen("Connections: ")) - 1 : 0; /* without this question's */
	}
	return count;
}

static inline int leader(void)
{
	for (int64_t limit = server_clock_ms() + 40000;;) {
		for (int i = 0; i < SERVERS; i++)
			if (servers[i].pid > 0 && strcmp(mode_of(i), "leader") == 0)
				return i;
		ck_assert(server_clock_ms() < limit);
		nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
	}
}

/* The folder goes when the tests end. */
static inline void show_log(int n)
{
	char command[128];

	snprintf(command, sizeof(command), "tail -n 30 %s/%d/log", dir, n);
	ck_assert_msg(system(command) && false, "server %d (pid %d) does not answer", n, (int)servers[n].pid);
}

static inline void wait_for_all(void)
{
	for (int i = 0; i < SERVERS; i++)
		for (int64_t limit = server_clock_ms() + 40000; !*mode_of(i);) {
			if (server_clock_ms() > limit)
				show_log(i);
			nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
		}
}

static inline void kill_server(int n)
{
	kill(servers[n].pid, SIGKILL);
	for (int64_t limit = server_clock_ms() + 10000; !has_ended(servers[n].pid);)
		ck_assert(server_clock_ms() < limit);
	servers[n].pid = 0;
}

/* Has the process stopped with all its threads? */
static inline bool has_stopped(pid_t pid)
{
	char name[48];
	struct procfs_walk walk;
	struct procfs_stat stat = {.state = '?'};

	snprintf(name, sizeof(name), "/proc/%d/task", (int)pid);
	ck_assert_int_eq(procfs_walk(&walk, AT_FDCWD, name), 0);
	for (int tid; (tid = procfs_next(&walk)) >= 0;) {
		snprintf(name, sizeof(name), "%d/stat", tid);
		if (procfs_stat_read(procfs_walk_fd(&walk), name, &stat) && stat.state != 'T')
			break;
	}
	procfs_walk_end(&walk);
	return stat.state == 'T';
}

/* It need not be a child of this process: begin() starts only those that have ended. */
static inline void stop_server(int n)
{
	kill(servers[n].pid, SIGSTOP);
	for (int64_t limit = server_clock_ms() + 10000; !has_stopped(servers[n].pid);)
		ck_assert(server_clock_ms() < limit);
}

static inline void make_servers(void)
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

static inline void remove_servers(void)
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

static inline void other_turn(int ms)
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
static inline void other_on_void(int rc, const void *arg)
{
	other_rc = rc;
	other_done = true;
}
static inline void other_on_string(int rc, const char *value, const void *arg) { other_on_void(rc, arg); }
static inline void other_on_stat(int rc, const struct Stat *stat, const void *arg) { other_on_void(rc, arg); }
static inline void other_forget_names(void)
{
	for (int i = 0; i < other_count; i++)
		free(other_names[i]);
	free(other_names);
	other_names = NULL;
	other_count = 0;
}

static inline void other_on_names(int rc, const struct String_vector *names, const void *arg)
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

static inline void other_start(void)
{
	zoo_set_debug_level(0);
	other = zookeeper_init(ensemble, NULL, 10000, NULL, NULL, 0);
	ck_assert_ptr_nonnull(other);
	for (int64_t limit = server_clock_ms() + 20000; zoo_state(other) != ZOO_CONNECTED_STATE;) {
		ck_assert(server_clock_ms() < limit);
		other_turn(20);
	}
}

static inline void other_remove(const char *at)
{
	other_call(zoo_aget_children(other, at, 0, other_on_names, NULL));
	char **names = other_names;
	int count = other_count;

	other_names = NULL; /* this call's now */
	other_count = 0;

	/* Most have nothing below them. */
	for (int i = 0, n; i < count; i += n) {
		static char below[100][4096];
		zoo_op_t ops[100];
		zoo_op_result_t results[100];

		for (n = 0; n < 100 && i + n < count; n++) {
			snprintf(below[n], sizeof(below[n]), "%s/%s", at, names[i + n]);
			zoo_delete_op_init(&ops[n], below[n], -1);
		}
		if (other_call(zoo_amulti(other, n, ops, results, other_on_void, NULL)) == ZOK)
			continue;
		for (int j = i; j < i + n; j++) {
			char one[4096];

			snprintf(one, sizeof(one), "%s/%s", at, names[j]);
			other_remove(one);
		}
	}
	for (int i = 0; i < count; i++)
		free(names[i]);
	free(names);
	other_call(zoo_adelete(other, at, -1, other_on_void, NULL));
}

static inline const char *at(const char *below)
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

/* Without what it had: one that was killed while it followed a new leader may refuse to start with that (ZOOKEEPER-2354). */
static inline void start_anew(int n)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s/%d/version-2", dir, n);
	ck_assert_int_eq(system(command), 0);
	start_server(n);
}

static inline void begin(void)
{
	*ensemble = '\0';
	for (int i = 0; i < SERVERS; i++) {
		sprintf(ensemble + strlen(ensemble), "%s127.0.0.1:%d", i ? "," : "", servers[i].port);
		if (has_ended(servers[i].pid)) /* it ended with a test that had started it */
			start_anew(i);
		kill(servers[i].pid, SIGCONT); /* a test that has failed may have stopped it */
	}
	wait_for_all();
	other_start();
	other_remove(path);
	snprintf(setting, sizeof(setting), "%s%s", ensemble, path);
	hosts_begin((struct config_store){.zookeeper = setting, .connect_ms = 4000});
}

static inline void end(void)
{
	other_forget_names();
	hosts_end();
	zookeeper_close(other);
	for (int i = 0; i < SERVERS; i++) /* it would end with this test: be sure that it has */
		if (servers[i].parent == getpid() && servers[i].pid > 0)
			kill_server(i);
}
FIXTURE_ONCE(make_servers, remove_servers)
FIXTURE(begin, end)

/* Its server may be behind the one that a host has. */
static inline unsigned names_in(const char *below)
{
	other_call(zoo_async(other, path, other_on_string, NULL));
	other_call(zoo_aget_children(other, at(below), 0, other_on_names, NULL));
	return (unsigned)other_count;
}

#endif
