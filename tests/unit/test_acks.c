/* store/redis/acks.c: which answers one WAIT decides about, and when replicas are enough. */
#include "store/redis/acks.h"
#include "tests/unit/suite.h"

static struct acks acks;
static struct acks_entry entry[6];
static unsigned asked;
static char told[16]; /* one character for each entry that was told: its index; a capital letter: not enough */

static void on_ask(void *arg)
{
	ck_assert_ptr_eq(arg, &acks);
	asked++;
}

static void on_acknowledged(struct acks_entry *e, bool enough)
{
	size_t n = strlen(told);
	ck_assert_uint_lt(n + 1, sizeof(told));
	told[n] = (char)((enough ? 'a' : 'A') + (e - entry));
	e->next = NULL; /* the owner may reuse it */
}

static void setup(void)
{
	static const struct acks_events events = {.ask = on_ask, .acknowledged = on_acknowledged};
	acks_init(&acks, &events, &acks);
	asked = 0;
	memset(told, 0, sizeof(told));
}
FIXTURE(setup, NULL)

TEST(one_wait_at_a_time)
{
	for (int i = 0; i < 3; i++)
		acks_await(&acks, &entry[i]);
	ck_assert_uint_eq(asked, 1);
	acks_answered(&acks, true);
	ck_assert_str_eq(told, "a");
	ck_assert_uint_eq(asked, 2);
	acks_await(&acks, &entry[3]); /* behind the second WAIT, which does not cover it */
	acks_answered(&acks, true);
	ck_assert_str_eq(told, "abc");
	ck_assert_uint_eq(asked, 3);
	acks_answered(&acks, true);
	ck_assert_str_eq(told, "abcd");
	ck_assert(asked == 3 && !acks.asking);
	acks_await(&acks, &entry[0]);
	acks_await(&acks, &entry[1]);
	/* As when the link closes: the script behind the WAIT had no reply and is forgotten, then the WAIT ends. */
	acks_forget(&acks, &entry[1]);
	acks_answered(&acks, false);
	ck_assert_str_eq(told, "abcdA");
	ck_assert_uint_eq(asked, 4);
	acks_await(&acks, &entry[2]); /* over the next link */
	acks_answered(&acks, true);
	ck_assert_str_eq(told, "abcdAc");
}

TEST(forgotten)
{
	for (int i = 0; i < 6; i++)
		acks_await(&acks, &entry[i]); /* 0 is covered, 1 to 5 are behind */
	acks_forget(&acks, &entry[0]);
	acks_forget(&acks, &entry[1]);
	acks_forget(&acks, &entry[3]);
	acks_forget(&acks, &entry[5]);
	acks_answered(&acks, true);
	ck_assert_str_eq(told, "");
	ck_assert_uint_eq(asked, 2);
	acks_await(&acks, &entry[5]); /* behind what is left of the list, whose last entry went */
	acks_answered(&acks, true);
	ck_assert_str_eq(told, "ce");
	acks_answered(&acks, true);
	ck_assert_str_eq(told, "cef");
}

static const struct {
	int replicas, needed;
} majorities[] = {{0, 0}, {1, 1}, {2, 1}, {3, 2}, {4, 2}, {5, 3}};

TEST_EACH(how_many_are_enough, ROWS(majorities))
{
	const struct config_store config = {.replicas = majorities[_i].replicas, .connect_ms = 1000};
	redisReply reply = {.type = REDIS_REPLY_INTEGER};
	char line[REPLY_LINE_BYTES] = "";
	for (reply.integer = 0; reply.integer <= config.replicas; reply.integer++)
		ck_assert(acks_are_enough(&config, &reply, line) == (reply.integer >= majorities[_i].needed));
}

static const struct {
	redisReply reply;
	const char *line;
} no_counts[] = {
	{{.type = REDIS_REPLY_STATUS, .str = (char *)"OK", .len = 2}, "it is no Redis"},
	{{.type = REDIS_REPLY_ERROR, .str = (char *)"UNBLOCKED force unblock", .len = 23}, "it is a replica now"},
	{{.type = REDIS_REPLY_INTEGER}, "0 of the 1 replicas that must have acknowledged within 750 ms"},
};

TEST_EACH(what_is_no_count, ROWS(no_counts))
{
	const struct config_store config = {.replicas = 2, .connect_ms = 1000};
	char line[REPLY_LINE_BYTES];
	ck_assert(!acks_are_enough(&config, &no_counts[_i].reply, line));
	ck_assert_ptr_nonnull(strstr(line, no_counts[_i].line));
}
