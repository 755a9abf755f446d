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

static inline void redis_server_start(struct redis_server *server)
{
	const char *program = getenv("REDIS_SERVER") ? getenv("REDIS_SERVER") : "redis-server";

	pid_t parent = getpid();
	server->pid = fork();
	ck_assert_int_ge(server->pid, 0);
	if (server->pid == 0) {
		int log = open("/dev/null", O_RDWR);
		dup2(log, 0);
		dup2(log, 1);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (chdir(server->dir) != 0 || getppid() != parent)
			_exit(127);
		execlp(program, program, "--port", "0", "--unixsocket", "redis.sock", "--save", "", "--daemonize", "no",
		       "--logfile", "log", NULL);
		_exit(127);
	}
	redisFree(redis_server_connect(server));
}

#endif
