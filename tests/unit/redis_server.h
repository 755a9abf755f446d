/*
 * A real server for a test: on a Unix socket in a folder of its own, gone with the test even if that is killed.
 * REDIS_SERVER names another program than redis-server.
 */
#ifndef DFLOCK_TESTS_UNIT_REDIS_SERVER_H
#define DFLOCK_TESTS_UNIT_REDIS_SERVER_H

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <hiredis.h>

#include "tests/unit/suite.h"

#define SERVER_LIMIT_MS 10000

struct redis_server {
	char dir[SUITE_PATH_BYTES], socket[96];
	pid_t pid;
};

static inline int64_t server_clock_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* A synchronous connection, made as soon as the server answers. */
static inline redisContext *redis_server_connect(const struct redis_server *server)
{
	int64_t deadline = server_clock_ms() + SERVER_LIMIT_MS;

	while (server_clock_ms() < deadline) {
		redisContext *c = redisConnectUnix(server->socket);
		if (c && !c->err)
			return c;
		if (c)
			redisFree(c);
		ck_assert_msg(waitpid(server->pid, NULL, WNOHANG) == 0, "the server ended: see %s/log", server->dir);
		nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
	}
	ck_abort_msg("the server did not start: see %s/log", server->dir);
}

static inline void redis_server_kill(struct redis_server *server)
{
	if (server->pid > 0) {
		kill(server->pid, SIGKILL);
		waitpid(server->pid, NULL, 0);
	}
	server->pid = 0;
}

/* Removes the folder, and what runs in it. */
static inline void redis_server_remove(struct redis_server *server)
{
	const char *files[] = {"redis.sock", "log", "dump.rdb", "other.sock"};
	char path[128];

	redis_server_kill(server);
	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
		snprintf(path, sizeof(path), "%s/%s", server->dir, files[i]);
		unlink(path);
	}
	ck_assert_msg(rmdir(server->dir) == 0, "%s: %s", server->dir, strerror(errno));
}

/* Makes the folder; before the tests, so that one that fails cannot leave it behind. */
static inline void redis_server_prepare(struct redis_server *server)
{
	suite_make_folder(server->dir, "/dev/shm");
	snprintf(server->socket, sizeof(server->socket), "%s/redis.sock", server->dir);
}

/* Runs a program in a folder, with its output in `log` there, as another user if `uid` is not 0. It ends with this process, by `sig`. */
static inline pid_t server_run(const char *dir, uid_t uid, int sig, const char *const argv[])
{
	pid_t parent = getpid(), pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid)
		return pid;
	int log = chdir(dir) == 0 ? open("log", O_WRONLY | O_CREAT | O_APPEND, 0600) : -1; /* it may be root's */
	if (uid && (setgid(uid) != 0 || setuid(uid) != 0))
		_exit(126);
	prctl(PR_SET_PDEATHSIG, sig);
	if (getppid() != parent)
		_exit(126);
	dup2(log, 1);
	dup2(log, 2);
	execvp(argv[0], (char *const *)argv);
	_exit(127);
}

static inline void redis_server_start(struct redis_server *server)
{
	const char *program = getenv("REDIS_SERVER") ? getenv("REDIS_SERVER") : "redis-server";
	const char *const argv[] = {program, "--port", "0", "--unixsocket", "redis.sock", "--save", "", NULL};

	server->pid = server_run(server->dir, 0, SIGKILL, argv);
	redisFree(redis_server_connect(server));
}

#endif
