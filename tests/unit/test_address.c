/* store/redis/address.c: numbers, names, and a lookup that is cancelled. store/redis/discover.c: which sentinel is asked, and when it counts. */
#include <arpa/inet.h>
#include <netinet/in.h>

#include "store/redis/address.h"
#include "store/redis/redis.h"
#include "tests/unit/suite.h"

TEST(numbers)
{
	struct sockaddr_storage out;
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)&out;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&out;

	ck_assert(address_of_number("10.1.2.3", 6379, &out));
	ck_assert_int_eq(v4->sin_family, AF_INET);
	ck_assert_uint_eq(ntohl(v4->sin_addr.s_addr), 0x0a010203);
	ck_assert_uint_eq(ntohs(v4->sin_port), 6379);
	ck_assert(address_of_number("::1", 1, &out));
	ck_assert_int_eq(v6->sin6_family, AF_INET6);
	ck_assert(IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr));
	ck_assert_uint_eq(ntohs(v6->sin6_port), 1);
	ck_assert(!address_of_number("localhost", 1, &out));
	ck_assert(!address_of_number("10.1.2.3.4", 1, &out));
	ck_assert(!address_of_number("", 1, &out));
}

TEST(shown)
{
	char out[32], small[8];

	address_show("redis.example", 6379, true, out, sizeof(out));
	ck_assert_str_eq(out, "rediss://redis.example:6379");
	address_show("fd00::1", 6379, false, out, sizeof(out));
	ck_assert_str_eq(out, "[fd00::1]:6379");
	address_show("redis.example", 6379, false, small, sizeof(small));
	ck_assert_str_eq(small, "redis.e");
}

struct looked {
	unsigned calls;
	bool found;
};

static void on_addresses(void *arg, const struct addrinfo *list, const char *why)
{
	struct looked *looked = arg;

	looked->calls++;
	looked->found = list != NULL;
	ck_assert((list == NULL) == (why != NULL));
}

TEST(lookups)
{
	struct looked there = {0}, missing = {0}, cancelled = {0};
	uv_loop_t loop;
	struct address_lookup *lookup;

	uv_loop_init(&loop);
	ck_assert_int_eq(address_look_up(&loop, "localhost", 6379, on_addresses, &there, &lookup), 0);
	ck_assert_int_eq(address_look_up(&loop, "no.such.name.invalid", 6379, on_addresses, &missing, &lookup), 0);
	ck_assert_int_eq(address_look_up(&loop, "localhost", 6379, on_addresses, &cancelled, &lookup), 0);
	address_cancel(lookup);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
	ck_assert_uint_eq(there.calls, 1);
	ck_assert(there.found);
	ck_assert_uint_eq(missing.calls, 1);
	ck_assert(!missing.found);
	ck_assert_uint_eq(cancelled.calls, 0);
}

/* What each of `count` sentinels says: h: the master is here, e: elsewhere, n: nothing; and what follows. */
static const struct {
	bool up;
	size_t count;
	const char *answers;
	enum round_verdict last;
} checks[] = {
	{false, 3, "nne", ROUND_BELIEVE}, /* the first one that names a master */
	{false, 3, "nnn", ROUND_OVER},     {false, 1, "n", ROUND_OVER},
	{true, 1, "e", ROUND_BELIEVE},     {true, 3, "h", ROUND_OVER}, /* no doubt, no further question */
	{true, 3, "n", ROUND_OVER},        {true, 3, "ehn", ROUND_OVER},
	{true, 3, "ee", ROUND_BELIEVE},    {true, 3, "ene", ROUND_BELIEVE},
	{true, 3, "enn", ROUND_OVER},      {true, 4, "eee", ROUND_BELIEVE}, /* two of four are not most */
	{true, 4, "eenn", ROUND_OVER},     {true, 5, "enene", ROUND_BELIEVE},
	{true, 5, "ehee", ROUND_BELIEVE}, /* a sentinel that still names the old master does not outvote the others */
	{true, 5, "ehhee", ROUND_BELIEVE}, {true, 5, "ehhne", ROUND_OVER},
};

TEST_EACH(until_it_is_over, ROWS(checks))
{
	struct round round = {.asked = 0};
	enum round_verdict verdict = ROUND_ASK;

	for (const char *c = checks[_i].answers; *c; c++) {
		ck_assert_int_eq(verdict, ROUND_ASK);
		round.asked++;
		verdict = round_heard(&round, checks[_i].count, checks[_i].up, *c != 'n', *c == 'h');
	}
	ck_assert_int_eq(verdict, checks[_i].last);
}
