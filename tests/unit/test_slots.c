/* store/redis/discover.c: the answer to CLUSTER SLOTS names the master of dflock's slot, or is refused. */
#include "store/redis/redis.h"

#include "tests/unit/suite.h"

#define SLOT 13907 /* of {0} */

static redisReply *read_reply(const char *bytes)
{
	redisReader *reader = reply_reader_new();
	void *reply = NULL;
	redisReaderFeed(reader, bytes, strlen(bytes));
	ck_assert_int_eq(redisReaderGetReply(reader, &reply), REDIS_OK);
	ck_assert_ptr_nonnull(reply);
	redisReaderFree(reader);
	return reply;
}

#define NODE(host, port) "*3\r\n" host ":" port "\r\n$2\r\nid\r\n"
#define ROW(from, to)    "*3\r\n:" from "\r\n:" to "\r\n"
#define TEXT_A           "$8\r\n10.0.0.1\r\n"
#define TEXT_B           "$8\r\n10.0.0.2\r\n"

static const struct {
	const char *bytes;
	enum slots_verdict verdict;
	const char *host;
	int port;
} answers[] = {
	{"*2\r\n" ROW("0", "8191") NODE(TEXT_A, "7001") ROW("8192", "16383") NODE(TEXT_B, "7002"), SLOTS_FOUND,
	 "10.0.0.2", 7002},
	{"*1\r\n" ROW("13907", "13907") NODE(TEXT_A, "1"), SLOTS_FOUND, "10.0.0.1", 1},
	/* With a replica, and what Redis 7 adds. */
	{"*1\r\n*4\r\n:0\r\n:16383\r\n*4\r\n" TEXT_A ":7001\r\n$2\r\nid\r\n*0\r\n" NODE(TEXT_B, "7002"), SLOTS_FOUND,
	 "10.0.0.1", 7001},
	/* It does not know, or does not say, its own address. */
	{"*1\r\n" ROW("0", "16383") NODE("$0\r\n\r\n", "7001"), SLOTS_FOUND, "asked", 7001},
	{"*1\r\n" ROW("0", "16383") NODE("$-1\r\n", "7001"), SLOTS_FOUND, "asked", 7001},
	{"*0\r\n", SLOTS_NOBODY, NULL, 0},
	{"*1\r\n" ROW("0", "13906") NODE(TEXT_A, "7001"), SLOTS_NOBODY, NULL, 0},
	{"*1\r\n" ROW("13908", "16383") NODE(TEXT_A, "7001"), SLOTS_NOBODY, NULL, 0},
	{"+OK\r\n", SLOTS_NONSENSE, NULL, 0},
	{"*1\r\n:1\r\n", SLOTS_NONSENSE, NULL, 0},
	{"*1\r\n*2\r\n:0\r\n:16383\r\n", SLOTS_NONSENSE, NULL, 0},
	{"*1\r\n*3\r\n:0\r\n:16383\r\n*0\r\n", SLOTS_NONSENSE, NULL, 0},
	{"*1\r\n*3\r\n:0\r\n+a\r\n*0\r\n", SLOTS_NONSENSE, NULL, 0},
	{"*1\r\n" ROW("0", "16383") NODE("$3\r\na b\r\n", "7001"), SLOTS_NONSENSE, NULL, 0},
	{"*1\r\n" ROW("0", "16383") NODE("$1\r\n?\r\n", "7001"), SLOTS_NONSENSE, NULL, 0},
	{"*1\r\n" ROW("0", "16383") NODE(":1\r\n", "7001"), SLOTS_NONSENSE, NULL, 0},
	{"*1\r\n" ROW("0", "16383") NODE(TEXT_A, "0"), SLOTS_NONSENSE, NULL, 0},
	{"*1\r\n" ROW("0", "16383") NODE(TEXT_A, "65536"), SLOTS_NONSENSE, NULL, 0},
	{"*1\r\n" ROW("0", "16383") NODE("$20\r\n01234567890123456789\r\n", "1"), SLOTS_NONSENSE, NULL, 0},
};

TEST_EACH(one_answer, ROWS(answers))
{
	redisReply *reply = read_reply(answers[_i].bytes);
	char host[16] = "";
	int port = 0;

	ck_assert_int_eq(slots_master(reply, SLOT, "asked", host, sizeof(host), &port), answers[_i].verdict);
	if (answers[_i].verdict == SLOTS_FOUND) {
		ck_assert_str_eq(host, answers[_i].host);
		ck_assert_int_eq(port, answers[_i].port);
	}
	freeReplyObject(reply);
}

TEST(the_slot_of_a_shard)
{
	ck_assert_int_eq(slots_of_shard(123456789), 0x31c3); /* the Redis Cluster specification's example */
	ck_assert_str_eq(STORE_KEYS, "dflock:{0}:");
	ck_assert_int_eq(slots_of_shard(0), SLOT);
	ck_assert_int_ne(slots_of_shard(1), SLOT);
}
