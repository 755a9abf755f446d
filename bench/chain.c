/*
 * chain SOCKET FILE COUNT REST_US bare|same: the least that a hand-over can take. Who must be woken is woken, with what it waits for in dflock, and
 * does nothing else:
 *
 *   this process   flock(LOCK_UN)
 *   a thread       waits in flock() on a description of its own, as a probe does; sends a command to the store
 *   the store      runs a script, which publishes: nothing but that ("bare"), or after the same Redis commands as release.lua ("same")
 *   a process      has subscribed, as a keeper does; writes to a socket
 *   a process      waits for that, as a program does for its keeper; flock()
 *
 * A sample is the time from LOCK_UN in the first process to the return of flock() in the last. Before each all rest for REST_US.
 */
#include <hiredis.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "bench/bench.h"

#define KEYS "bench:{0}:chain", "bench:{0}:chain:lock"

static const char bare[] = "redis.call('PUBLISH', 'bench:chain', 'granted')";
static const char same[] =
	"redis.call('HMGET', KEYS[1], 'a', 'b', 'c', 'd')\n"
	"local packed = redis.call('GET', KEYS[2])\n"
	"local lock = packed and cmsgpack.unpack(packed)\n"
	"redis.call('EXISTS', 'bench:{0}:a', 'bench:{0}:b')\n"
	"string.find(redis.call('INFO', 'replication'), 'role:master', 1, true)\n"
	"redis.call('SET', KEYS[2], cmsgpack.pack({l = {{token = 'abcdefghijklmnopqrst', host = 'a', file = '1:2', space = 'flock',\n"
	"	mode = 'exclusive', from = '0000000000000000000', to = '9223372036854775807', fence = 1838525673905156}}, q = {}}))\n"
	"redis.call('HSET', KEYS[1], 'a', '1838525673905156')\n"
	"redis.call('PUBLISH', 'bench:chain', 'granted')";

struct chain {
	const char *socket, *file, *script;
	int go[2];    /* to the thread: wait for the lock */
	int given[2]; /* from the keeper's process to the waiter's */
	int taken[2]; /* from there: when it had its lock */
};

static redisContext *chain_connect(const struct chain *c)
{
	redisContext *redis = redisConnectUnix(c->socket);

	if (!redis || redis->err)
		bench_die(redis ? redis->errstr : "redisConnectUnix");
	return redis;
}

static void chain_check(redisContext *redis, redisReply *reply)
{
	errno = 0;
	if (!reply)
		bench_die(redis->errstr);
	if (reply->type == REDIS_REPLY_ERROR)
		bench_die(reply->str);
	freeReplyObject(reply);
}

static void chain_read(int fd, void *to, size_t size)
{
	errno = 0;
	if (read(fd, to, size) != (ssize_t)size)
		bench_die("another part of the chain has ended");
}

static void chain_write(int fd, const void *from, size_t size)
{
	if (write(fd, from, size) != (ssize_t)size)
		bench_die("another part of the chain has ended");
}

static void chain_lock(int fd, int how)
{
	if (flock(fd, how) != 0)
		bench_die("flock");
}

static void *chain_probe(void *arg)
{
	const struct chain *c = arg;
	redisContext *redis = chain_connect(c);
	int fd = bench_open(c->file, O_RDWR);
	char sha[64] = "", byte;
	redisReply *loaded = redisCommand(redis, "SCRIPT LOAD %s", c->script);

	errno = 0;
	if (!loaded || loaded->type != REDIS_REPLY_STRING)
		bench_die("SCRIPT LOAD");
	snprintf(sha, sizeof(sha), "%s", loaded->str);
	freeReplyObject(loaded);
	for (;;) {
		chain_read(c->go[0], &byte, 1);
		chain_lock(fd, LOCK_EX);
		chain_lock(fd, LOCK_UN);
		chain_check(redis, redisCommand(redis, "EVALSHA %s 2 %s %s", sha, KEYS));
	}
	return NULL;
}

static _Noreturn void chain_keeper(const struct chain *c)
{
	redisContext *redis = chain_connect(c);
	void *reply;

	chain_check(redis, redisCommand(redis, "SUBSCRIBE bench:chain"));
	chain_write(c->given[1], "r", 1); /* ready */
	for (;;) {
		if (redisGetReply(redis, &reply) != REDIS_OK)
			_exit(EXIT_SUCCESS);
		freeReplyObject(reply);
		chain_write(c->given[1], "g", 1);
	}
}

static _Noreturn void chain_waiter(const struct chain *c)
{
	char path[4096], byte;
	double now;
	int fd;

	snprintf(path, sizeof(path), "%s-other-host", c->file);
	fd = bench_open(path, O_RDWR | O_CREAT);
	chain_read(c->given[0], &byte, 1);
	for (now = 0;; now = bench_now_ns()) {
		chain_write(c->taken[1], &now, sizeof(now));
		chain_read(c->given[0], &byte, 1);
		chain_lock(fd, LOCK_EX);
		chain_lock(fd, LOCK_UN);
	}
}

static pid_t chain_fork(const struct chain *c, void (*run)(const struct chain *c))
{
	pid_t pid = fork();

	if (pid < 0)
		bench_die("fork");
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		run(c);
	}
	return pid;
}

static double chain_sample(const struct chain *c, int fd, long rest_us)
{
	double from, to;

	chain_lock(fd, LOCK_EX);
	chain_write(c->go[1], "w", 1);
	bench_rest(rest_us);
	from = bench_now_ns();
	chain_lock(fd, LOCK_UN);
	chain_read(c->taken[0], &to, sizeof(to));
	return to - from;
}

int main(int argc, char **argv)
{
	struct chain c;
	pthread_t probe;
	double *samples, ready;
	long count, rest_us;
	int fd;

	if (argc != 6)
		bench_die("chain SOCKET FILE COUNT REST_US bare|same");
	c = (struct chain){.socket = argv[1], .file = argv[2], .script = strcmp(argv[5], "same") == 0 ? same : bare};
	count = bench_number(argv[3]);
	rest_us = bench_number(argv[4]);
	samples = bench_samples(count);
	fd = bench_open(c.file, O_RDWR | O_CREAT);
	if (pipe(c.go) != 0 || pipe(c.taken) != 0 || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, c.given) != 0)
		bench_die("pipe");
	chain_fork(&c, (void (*)(const struct chain *))chain_keeper);
	chain_fork(&c, (void (*)(const struct chain *))chain_waiter);
	if (pthread_create(&probe, NULL, chain_probe, &c) != 0)
		bench_die("pthread_create");
	chain_read(c.taken[0], &ready, sizeof(ready));
	chain_sample(&c, fd, rest_us);
	for (long i = 0; i < count; i++)
		samples[i] = chain_sample(&c, fd, rest_us);
	return bench_print(samples, count);
}
