/* A redis-server for a worker, on a Unix socket in its folder; it dies with the worker. REDIS_SERVER: another program.
 */
#ifndef DFLOCK_TESTS_SIM_REDIS_H
#define DFLOCK_TESTS_SIM_REDIS_H

#include <sys/types.h>

struct sim_redis {
	char socket[100];
	pid_t pid;
};

/* 0, or -1: it did not answer in time. */
int sim_redis_start(struct sim_redis *redis, const char *dir);
void sim_redis_stop(struct sim_redis *redis);

#endif
