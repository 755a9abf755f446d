/* See redis.h. */
#include "tests/sim/redis.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <hiredis.h>

#define START_TRIES 5000 /* of 2 ms */

static void exec_server(const char *dir)
{
	const char *program = getenv("REDIS_SERVER") ? getenv("REDIS_SERVER") : "redis-server";
	int null = open("/dev/null", O_RDWR);

	dup2(null, 0);
	dup2(null, 1);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (chdir(dir) == 0)
		execlp(program, program, "--port", "0", "--unixsocket", "redis.sock", "--save", "", "--appendonly",
		       "no", "--logfile", "redis.log", NULL);
	_exit(127);
}

int sim_redis_start(struct sim_redis *redis, const char *dir)
{
	snprintf(redis->socket, sizeof(redis->socket), "%.80s/redis.sock", dir);
	redis->pid = fork();
	if (redis->pid == 0)
		exec_server(dir);
	for (int i = 0; redis->pid > 0 && i < START_TRIES; i++) {
		redisContext *c = redisConnectUnix(redis->socket);
		redisReply *reply = c && !c->err ? redisCommand(c, "PING") : NULL;
		int ok = reply && reply->type == REDIS_REPLY_STATUS;

		if (reply)
			freeReplyObject(reply);
		if (c)
			redisFree(c);
		if (ok)
			return 0;
		if (waitpid(redis->pid, NULL, WNOHANG) != 0)
			return -1;
		nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
	}
	return -1;
}

void sim_redis_stop(struct sim_redis *redis)
{
	kill(redis->pid, SIGKILL);
	waitpid(redis->pid, NULL, 0);
}
