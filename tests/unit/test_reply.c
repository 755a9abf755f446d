/* store/reply.c, explain.c and message.c: what comes from the server is bounded and checked, or refused. */
#include "store/redis/explain.h"
#include "store/words.h"
#include "tests/unit/suite.h"

#define TOKEN "0123456789abcdef0123456789abcdef"
#define OTHER "fedcba9876543210fedcba9876543210"
#define FROM  "0000000000000000000"
#define TO    "0000000000000000010"

/* A reply as the reader makes it of the protocol's bytes; NULL: it refuses them. The caller frees it. */
static redisReply *read_reply(const char *bytes)
{
	redisReader *reader = reply_reader_new();
	void *reply = NULL;

	ck_assert_int_eq(redisReaderFeed(reader, bytes, strlen(bytes)), REDIS_OK);
	if (redisReaderGetReply(reader, &reply) != REDIS_OK)
		reply = NULL;
	redisReaderFree(reader);
	return reply;
}

/* A list of these words. */
static redisReply *list(const char *words)
{
	char bytes[4096], copy[1024], *save, *word;
	size_t count = 0, at = 0;

	strcpy(copy, words);
	for (word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save))
		at += (size_t)sprintf(bytes + at, "$%zu\r\n%s\r\n", strlen(word), word), count++;
	char *whole;
	ck_assert_int_gt(asprintf(&whole, "*%zu\r\n%s", count, bytes), 0);
	redisReply *reply = read_reply(whole);
	free(whole);
	return reply;
}

static const struct {
	const char *words;
	unsigned may;
	int ret;
	enum store_status status;
} verdicts[] = {
	{"OK", REPLY_MAY(STORE_OK), 0, STORE_OK},
	{"OK 7 exclusive", REPLY_MAY(STORE_OK), 0, STORE_OK},
	{"OK 7 shared " FROM " " TO, REPLY_MAY(STORE_OK), 0, STORE_OK},
	{"OK 7 shared " TO " " FROM, REPLY_MAY(STORE_OK), -EPROTO, 0}, /* an empty range */
	{"OK 7 shared " FROM, REPLY_MAY(STORE_OK), -EPROTO, 0},
	{"OK 7", REPLY_MAY(STORE_OK), -EPROTO, 0},
	{"OK -7 shared", REPLY_MAY(STORE_OK), -EPROTO, 0},
	{"OK 7 both", REPLY_MAY(STORE_OK), -EPROTO, 0},
	{"GONE", REPLY_MAY(STORE_OK), -EPROTO, 0}, /* this script may not say so */
	{"GONE", REPLY_MAY(STORE_GONE), 0, STORE_GONE},
	{"INC", REPLY_MAY(STORE_INCARNATION), 0, STORE_INCARNATION},
	{"WAIT 5 a-1 10 -3 holds b-2 0 0 waits", REPLY_MAY(STORE_WAIT), 0, STORE_WAIT},
	{"WAIT 5 a-1 10 -3 sleeps", REPLY_MAY(STORE_WAIT), -EPROTO, 0},
	{"WAIT 5 a-1 10 3", REPLY_MAY(STORE_WAIT), -EPROTO, 0},
	{"WAIT", REPLY_MAY(STORE_WAIT), -EPROTO, 0},
	{"REST 5 700 a-1 10 -3 holds b-2 0 0 waits", REPLY_MAY(STORE_REST), 0, STORE_REST},
	{"REST 0 700", REPLY_MAY(STORE_REST), 0, STORE_REST},
	{"REST 5 700", REPLY_MAY(STORE_WAIT), -EPROTO, 0},
	{"REST 5", REPLY_MAY(STORE_REST), -EPROTO, 0},
	{"REST 5 -1", REPLY_MAY(STORE_REST), -EPROTO, 0},
	{"REST 5 a-1 10 -3 holds", REPLY_MAY(STORE_REST), -EPROTO, 0},
	{"REST 5 99999999999999999999", REPLY_MAY(STORE_REST), -EPROTO, 0},
	{"ok", REPLY_MAY(STORE_OK), -EPROTO, 0},
};

TEST_EACH(verdict, ROWS(verdicts))
{
	redisReply *reply = list(verdicts[_i].words);
	struct store_reply out;

	ck_assert_int_eq(reply_parse(reply, verdicts[_i].may, &out), verdicts[_i].ret);
	if (verdicts[_i].ret == 0)
		ck_assert_int_eq(out.status, verdicts[_i].status);
	freeReplyObject(reply);
}

TEST_EACH(blockers, 2)
{
	redisReply *reply =
		list(_i ? "REST 5 700 a-1 10 -3 holds b-2 0 0 waits" : "WAIT 5 a-1 10 -3 holds b-2 0 0 waits");
	struct store_reply out;

	ck_assert_int_eq(reply_parse(reply, REPLY_MAY(_i ? STORE_REST : STORE_WAIT), &out), 0);
	ck_assert_uint_eq(out.arrival, 5);
	ck_assert_int_eq(out.rest_ms, _i ? 700 : 0);
	ck_assert_uint_eq(out.blocker_count, 2);
	ck_assert_str_eq(out.blockers[0].host, "a-1");
	ck_assert_uint_eq(out.blockers[0].beat, 10);
	ck_assert_int_eq(out.blockers[0].age_ms, -3);
	ck_assert(!out.blockers[0].waiter && out.blockers[1].waiter);
	freeReplyObject(reply);
}

TEST(too_deep_or_too_many)
{
	ck_assert_ptr_null(read_reply("*1048577\r\n"));
	ck_assert_ptr_null(read_reply("*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n"));
	redisReply *reply = read_reply("*2\r\n*0\r\n:1\r\n");
	struct store_reply out;
	ck_assert_ptr_nonnull(reply);
	ck_assert_int_eq(reply_parse(reply, ~0u, &out), -EPROTO);
	freeReplyObject(reply);
}

/* --- errors and INFO --- */

static const struct {
	const char *said;
	enum reply_error kind;
	const char *advice;
} errors[] = {
	{"NOSCRIPT No matching script.", REPLY_ERROR_NOSCRIPT, "forgotten"},
	{"READONLY You can't write against a read only replica.", REPLY_ERROR_UNREACHABLE, "it is a replica now"},
	{"OOM command not allowed", REPLY_ERROR_HERE, "out of memory"},
	{"WRONGTYPE Operation against a key", REPLY_ERROR_HERE, "give dflock a database of its own"},
	/* Before Redis 7, an error inside a script. */
	{"ERR Error running script (call to f_1): @user_script:1: -OOM command not allowed", REPLY_ERROR_HERE,
	 "out of memory"},
	{"NOPERM this user has no permissions to run the 'client|setname' command", REPLY_ERROR_HERE,
	 "NOPERM: the user lacks the right +client|setname (the store says"},
	{"NOPERM User few has no permissions to run the 'get' command", REPLY_ERROR_HERE, "the right +get "},
	{"NOPERM this user has no permissions to access one of the keys used as arguments", REPLY_ERROR_HERE,
	 "the right ~dflock:{*}:* "},
	{"NOPERM No permissions to access a channel", REPLY_ERROR_HERE, "the right &dflock:{*}:host:* "},
	{"ERR The user executing the script can't run this command or subcommand script: 1, on @user_script:3.",
	 REPLY_ERROR_HERE, "the user lacks some right "},
	{"ERR ACL failure in script: User few has no permissions to run the 'get' command script: 1, on @user_script:2.",
	 REPLY_ERROR_HERE, "the user lacks the right +get "},
	{"NOPERM", REPLY_ERROR_HERE, "`dflock doctor --acl`"},
	{"NOPERM the '\r\n\x1b'", REPLY_ERROR_HERE, "the right +??? (the store"},
	{"NOPERM the '", REPLY_ERROR_HERE, "some right"},
	{"NOPERM run the 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'", REPLY_ERROR_HERE,
	 "some right"},
	{"MOVED 13907 127.0.0.1:7002", REPLY_ERROR_UNREACHABLE, "another node of the cluster has dflock's slot now"},
	{"ASK 13907 127.0.0.1:7002", REPLY_ERROR_UNREACHABLE, "slot is moving"},
	{"TRYAGAIN Multiple keys request during rehashing of slot", REPLY_ERROR_UNREACHABLE, "slot is moving"},
	{"CLUSTERDOWN Hash slot not served", REPLY_ERROR_UNREACHABLE, "the cluster lacks slots"},
	{"ERR something about OOM", REPLY_ERROR_HERE, "look at its log"},
	{"ERR \x1b[31mred", REPLY_ERROR_HERE, "?[31mred"},
};

TEST_EACH(explained, ROWS(errors))
{
	char line[REPLY_LINE_BYTES];

	ck_assert_int_eq(reply_explain(errors[_i].said, line), errors[_i].kind);
	ck_assert_msg(strstr(line, errors[_i].advice) != NULL, "%s", line);
}

TEST(info)
{
	static const char text[] = "# Replication\r\nrole:master\r\nconnected_slaves:3\r\n"
				   "slave0:ip=10.0.0.1,port=6379,state=online,offset=1\r\n"
				   "slave1:ip=10.0.0.2,port=6379,state=online,offset=1\r\n"
				   "slave2:ip=10.0.0.1,port=6379,state=wait_bgsave,offset=0\r\nempty:\r\n";
	char value[16], small[6];

	ck_assert(reply_info_field(text, "role", value, sizeof(value)));
	ck_assert_str_eq(value, "master");
	ck_assert(!reply_info_field(text, "role", small, sizeof(small)));
	ck_assert(!reply_info_field(text, "rol", value, sizeof(value)));
	ck_assert(!reply_info_field(text, "empty", value, sizeof(value)));
	ck_assert_int_eq(reply_replicas(text), 2); /* the first one has connected anew */
	ck_assert_int_eq(reply_replicas(""), 0);
}

/* --- jobs --- */

#define LONGEST "abcdefghijklmno" /* 15 bytes */

static const struct {
	const char *text;
	bool ok;
	struct store_job job;
} jobs[] = {
	{"4711 1700000000 nightly", true, {4711, 1700000000, "nightly"}},
	{"4711 0 ", true, {4711, 0, ""}},
	{"1 2 tmux: server", true, {1, 2, "tmux: server"}},
	{"1 2 " LONGEST "pq", true, {1, 2, LONGEST}},
	{"1 2 \033]0;x\007\n\xff", true, {1, 2, "?]0;x? ?"}},
	{"1 2 j\xc3\xb6\xe2\x80\xae", true, {1, 2, "j\xc3\xb6???"}},     /* turns the direction of text */
	{"1 2 12345678901234\xc3\xb6", true, {1, 2, "12345678901234?"}}, /* cut in a character */
	{"0 2 x", false, {0}},
	{"-1 2 x", false, {0}},
	{"99999999999 2 x", false, {0}},
	{"1 x", false, {0}},
	{"1 -2 x", false, {0}},
	{"", false, {0}},
	{"-", false, {0}},
	{"1 2 ----------------------------------------------------------------", false, {0}},
};

TEST_EACH(job_parsed, ROWS(jobs))
{
	struct store_job out;

	ck_assert_int_eq(job_parse(jobs[_i].text, &out), jobs[_i].ok);
	ck_assert_int_eq(out.pid, jobs[_i].job.pid);
	ck_assert_int_eq(out.since, jobs[_i].job.since);
	ck_assert_str_eq(out.command, jobs[_i].job.command);
}

TEST(job_there_and_back)
{
	struct store_job job = {.pid = INT32_MAX, .since = INT64_MAX}, out;
	char text[JOB_TEXT_BYTES];

	for (int i = 0; i < JOB_COMMAND_BYTES; i++)
		job.command[i] = (char)(0x80 + i); /* not even ended */
	job_format(text, &job);
	ck_assert(job_parse(text, &out));
	ck_assert(out.pid == job.pid && out.since == job.since);
	ck_assert_str_eq(out.command, "???????????????");
	job.pid = 0;
	job_format(text, &job);
	ck_assert_str_eq(text, "");
}

/* --- messages --- */

static const struct {
	const char *text;
	int ret;
	enum store_message_kind kind;
} messages[] = {
	{"recall " TOKEN " b-2 " OTHER " flock exclusive " FROM " " TO " 1 a name", 0, STORE_MSG_RECALL},
	{"recall " TOKEN " b-2 " OTHER " flock exclusive " FROM " " TO " 2 a name", -EINVAL, 0},
	{"recall " TOKEN " b-2 " OTHER " flock exclusive " TO " " FROM " 1 a name", -EINVAL, 0},
	{"recall " TOKEN " b-2 " OTHER " flock exclusive " FROM " " TO " 1 ", -EINVAL, 0}, /* no name */
	{"granted " TOKEN " 12 abc-1-2 a name", 0, STORE_MSG_GRANTED},
	{"granted " TOKEN " 12 abc-1-3 a name", -ESTALE, STORE_MSG_GRANTED},
	{"granted 123 12 abc-1-2 a name", -EINVAL, 0},
	{"again " TOKEN " a name", 0, STORE_MSG_AGAIN},
	{"again " TOKEN, -EINVAL, STORE_MSG_AGAIN},
	{"again x a name", -EINVAL, STORE_MSG_AGAIN},
	{"inuse " TOKEN " record shared " FROM " " TO " b-2 a name", 0, STORE_MSG_IN_USE},
	{"chase b-2 " TOKEN " 77 5 3 record shared " FROM " " TO " a name", 0, STORE_MSG_CHASE},
	{"chase b-2 " TOKEN " 0 5 3 record shared " FROM " " TO " a name", -EINVAL, 0},
	{"break " TOKEN " 12 13 b-2 99 a name", 0, STORE_MSG_BREAK},
	{"break " TOKEN " 0 13 b-2 99 a name", -EINVAL, 0}, /* no lease has that fence */
	{"break 12 13 b-2 99 a name", -EINVAL, 0},
	{"broken 99 done 77 b-2", 0, STORE_MSG_BROKEN},
	{"broken 99 never 0 b-2", -EINVAL, 0},
	{"broken 99 done -1 b-2", -EINVAL, 0},
	{"broken 99 done 0 b 2", -EINVAL, 0}, /* no host */
	{"who " TOKEN " b-2 a name", 0, STORE_MSG_WHO},
	{"who " TOKEN " b-2 ", -EINVAL, 0},
	{"who 12 b-2 a name", -EINVAL, 0},
	{"holder " TOKEN " b-2 record shared " FROM " " TO " 77 1700000000 a b c", 0, STORE_MSG_HOLDER},
	{"holders " TOKEN " b-2 17", 0, STORE_MSG_HOLDERS},
	{"holders " TOKEN " b 2 17", -EINVAL, 0},
	{"twice b-2", 0, STORE_MSG_TWICE},
	{"hello", -EINVAL, 0},
	{"", -EINVAL, 0},
};

TEST_EACH(parsed_and_written, ROWS(messages))
{
	char text[MESSAGE_BYTES];
	struct store_message m;

	ck_assert_int_eq(message_parse(messages[_i].text, strlen(messages[_i].text), "abc-1-2", &m), messages[_i].ret);
	if (messages[_i].ret == -EINVAL)
		return;
	ck_assert_int_eq(m.kind, messages[_i].kind);
	ck_assert_str_eq(m.name, strstr(messages[_i].text, "a name") ? "a name" : "");
	ck_assert_int_eq(message_format(text, &m), 0);
	ck_assert_str_eq(text, messages[_i].text);
}

TEST(what_nobody_may_write)
{
	struct store_message m = {.kind = STORE_MSG_BREAK, .token = TOKEN, .name = "a", .asker = "b-2"};
	char text[MESSAGE_BYTES];

	ck_assert_int_eq(message_format(text, &m), -EINVAL); /* no lease has the fence 0 */
	m = (struct store_message){.kind = STORE_MSG_HOLDERS, .token = TOKEN, .holder = "b 2"};
	ck_assert_int_eq(message_format(text, &m), -EINVAL);
	m = (struct store_message){.kind = STORE_MSG_BROKEN, .holder = "b-2"};
	for (m.broken = 0; m.broken < STORE_BROKENS; m.broken++)
		ck_assert_int_eq(message_format(text, &m), 0);
	ck_assert_int_eq(message_format(text, &m), -EINVAL);
	/* A NUL byte inside, and more bytes than there may be. */
	ck_assert_int_eq(message_parse("hello\0", 6, "", &m), -EINVAL);
	memset(text, 'x', sizeof(text));
	ck_assert_int_eq(message_parse(text, sizeof(text), "", &m), -EINVAL);
}
