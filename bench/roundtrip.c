/*
 * roundtrip SOCKET ping|eval COUNT REST_US: what the store costs by itself, over hiredis, one command after the
 * other: a PING, or an EVAL of a script that does next to nothing. Before each it rests for REST_US.
 */
#include <hiredis.h>

#include "bench/bench.h"

#define SCRIPT "return redis.call('HINCRBY', KEYS[1], 'n', 1)"

static redisReply *ping(redisContext *redis)
{
	return redisCommand(redis, "PING");
}

static redisReply *eval(redisContext *redis)
{
	return redisCommand(redis, "EVAL %s 1 bench:{0}:counter", SCRIPT);
}

static double roundtrip_ns(redisContext *redis, redisReply *(*command)(redisContext *redis))
{
	double from = bench_now_ns(), took;
	redisReply *reply = command(redis);

	took = bench_now_ns() - from;
	errno = 0;
	if (!reply)
		bench_die(redis->errstr);
	if (reply->type == REDIS_REPLY_ERROR)
		bench_die(reply->str);
	freeReplyObject(reply);
	return took;
}

int main(int argc, char **argv)
{
	redisReply *(*command)(redisContext * redis);
	redisContext *redis;
	double *samples;
	long count, rest_us;

	if (argc != 5)
		bench_die("roundtrip SOCKET ping|eval COUNT REST_US");
	command = strcmp(argv[2], "eval") == 0 ? eval : ping;
	count = bench_number(argv[3]);
	rest_us = bench_number(argv[4]);
	redis = redisConnectUnix(argv[1]);
	if (!redis || redis->err)
		bench_die(redis ? redis->errstr : "redisConnectUnix");
	samples = bench_samples(count);
	roundtrip_ns(redis, command);
	for (long i = 0; i < count; i++) {
		bench_rest(rest_us);
		samples[i] = roundtrip_ns(redis, command);
	}
	redisFree(redis);
	return bench_print(samples, count);
}
