/*
 * Any bytes as what the server sends: as the protocol, whose answers go to every parser; as a message; as an error; as
 * INFO. Everything that is accepted must keep what store.h promises. The first byte says which. Built by clang
 * -fsanitize=fuzzer,address,undefined with the files of store/ that are pure.
 */

#include "store/redis/address.h"
#include "store/redis/fit.h"
#include "store/reply.h"
#include "store/redis/redis.h"
#include "store/words.h"
#include "tests/fuzz/fuzz.h"

#define ANY         (~0u)
#define INCARNATION "00-11"

static void check_blockers(const struct store_blocker *blocker, size_t count)
{
	for (size_t i = 0; i < count; i++)
		check(word_is_host(blocker[i].host), "a host that is none");
}

static void parse(const redisReply *reply)
{
	struct store_reply answer;
	struct reply_record record;
	struct store_blocker *hosts;
	const redisReply *keys;
	char cursor[REPLY_CURSOR_BYTES], host[16];
	int port;
	uint64_t n;
	size_t count;

	if (reply_parse(reply, ANY, &answer) == 0) {
		check(answer.status < STORE_UNREACHABLE && !answer.error, "a verdict that no script gives");
		check(answer.blocker_count <= STORE_MAX_BLOCKERS, "too many hosts");
		check(answer.mode < WIRE_MODES, "no mode");
		check_blockers(answer.blockers, answer.blocker_count);
	}
	check(reply_parse(reply, 0, &answer) != 0, "a verdict that was not allowed");
	if (reply_parse_record(reply, &record) == 0)
		check(record.refused_ttl || *record.incarnation, "no incarnation");
	if (reply_parse_hosts(reply, &hosts, &count) == 0)
		check_blockers(hosts, count);
	free(hosts);
	if (reply_parse_scan(reply, cursor, &keys) == 0)
		check(word_number(cursor, &n) && keys->type == REDIS_REPLY_ARRAY, "no cursor");
	if (slots_master(reply, slots_of_shard(0), "asked", host, sizeof(host), &port) == SLOTS_FOUND)
		check(address_is_host(host) && port > 0 && port < 65536, "no address");
}

static void read_protocol(const char *text, size_t size)
{
	redisReader *reader = reply_reader_new();
	void *reply = NULL;

	check(reader != NULL, "no reader");
	/* In two pieces: an answer rarely comes in one. */
	for (int half = 0; half < 2; half++) {
		size_t len = half ? size - size / 2 : size / 2;
		if (redisReaderFeed(reader, half ? text + size / 2 : text, len) != REDIS_OK)
			break;
		while (redisReaderGetReply(reader, &reply) == REDIS_OK && reply) {
			parse(reply);
			freeReplyObject(reply);
		}
	}
	redisReaderFree(reader);
}

static int is_range(const struct store_range *r)
{
	return r->from >= 0 && r->from < r->to && r->space < WIRE_SPACES && r->mode < WIRE_MODES;
}

static void read_message(const char *text, size_t size)
{
	struct store_message m, twice;
	char again[MESSAGE_BYTES];

	if (message_parse(text, size, INCARNATION, &m) != 0)
		return;
	check(message_format(again, &m) == 0 && message_parse(again, strlen(again), INCARNATION, &twice) == 0 &&
		      memcmp(&m, &twice, sizeof(m)) == 0,
	      "written differently than read");
	if (m.kind == STORE_MSG_BROKEN) {
		check(word_is_host(m.holder) && m.broken < STORE_BROKENS && m.pid >= 0, "no answer");
		return;
	}
	if (m.kind == STORE_MSG_HOLDER || m.kind == STORE_MSG_HOLDERS || m.kind == STORE_MSG_TWICE)
		return;
	check(*m.name && strlen(m.name) < sizeof(m.name), "no name");
	if (m.kind == STORE_MSG_BREAK)
		check(word_is_host(m.asker) && m.fence, "not which lease, or no asker");
	check(word_is_token(m.kind == STORE_MSG_CHASE ? m.chase.token : m.token), "no token");
	if (m.kind == STORE_MSG_RECALL)
		check(word_is_host(m.asker) && word_is_token(m.asker_token), "not an asker");
	if (m.kind == STORE_MSG_RECALL || m.kind == STORE_MSG_IN_USE)
		check(is_range(&m.range), "no range");
	if (m.kind == STORE_MSG_CHASE)
		check(word_is_host(m.chase.host) && m.chase.pid > 0 && is_range(&m.chase.range), "not who waits");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char line[REPLY_LINE_BYTES], value[16];

	if (size == 0)
		return 0;
	char *text = malloc(size); /* exactly as long as the text: a read past it is caught */
	check(text != NULL, "no memory");
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	switch (data[0] % 4) {
	case 0:
		read_protocol(text, size - 1);
		break;
	case 1:
		read_message(text, size - 1);
		break;
	case 2:
		reply_explain(text, line);
		check(*line && strlen(line) < sizeof(line) && !strpbrk(line, "\r\n"), "not one line");
		break;
	case 3:
		check(reply_replicas(text) <= CONFIG_MAX_REPLICAS + 1, "more replicas than there may be");
		check(fit_server(text, line) || (*line && !strpbrk(line, "\r\n")), "not one line");
		check(fit_replication(text, line) || (*line && !strpbrk(line, "\r\n")), "not one line");
		if (reply_info_field(text, "role", value, sizeof(value)))
			check(*value && !strpbrk(value, "\r\n"), "not one value");
	}
	free(text);
	return 0;
}
