/* store/redis/discover.c: the answer to CLUSTER SLOTS names the master of dflock's slot, or is refused. */
#include "store/redis/redis.h"

#include "tests/unit/suite.h"

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

	ck_assert_int_eq(slots_master(reply, "asked", host, sizeof(host), &port), answers[_i].verdict);
	if (answers[_i].verdict == SLOTS_FOUND) {
		ck_assert_str_eq(host, answers[_i].host);
		ck_assert_int_eq(port, answers[_i].port);
	}
	freeReplyObject(reply);
}

/* As the Redis Cluster specification has it. */
static unsigned slot_of(const char *tag)
{
	unsigned crc = 0;

	for (; *tag; tag++) {
		crc ^= (unsigned)(unsigned char)*tag << 8;
		for (int bit = 0; bit < 8; bit++)
			crc = crc & 0x8000 ? (crc << 1 ^ 0x1021) & 0xffff : crc << 1;
	}
	return crc % 16384;
}

TEST(the_slot_of_the_keys)
{
	ck_assert_uint_eq(slot_of("123456789"), 0x31c3);
	ck_assert_str_eq(STORE_KEYS, "dflock:{0}:");
	ck_assert_uint_eq(slot_of("0"), STORE_SLOT);
}
