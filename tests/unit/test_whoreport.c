/* keeper/callers/whoreport.c: what is said of the processes that hold a lock. */
#include "keeper/callers/who.h"

#include "keeper/callers/picture.h"
#include "tests/unit/suite.h"

#define DAY 86400

static const struct store_range whole = {.space = WIRE_FLOCK, .mode = WIRE_EXCLUSIVE, .to = WIRE_EOF};
static json_t *report;
static char line[WIRE_REASON_BYTES];

static void setup(void)
{
	setenv("TZ", "UTC", 1);
	tzset();
	report = json_pack("{s:s,s:[],s:{},s:n}", "error", "", "hosts", "resting", "client");
}

static void teardown(void) { json_decref(report); }
FIXTURE(setup, teardown)

/* The first one added is this host. Each has a lease of the whole file. */
static json_t *add_host(const char *name, const char *state)
{
	json_t *hosts = json_object_get(report, "hosts"), *lease = json_object(), *host;
	picture_add_range(lease, &whole);
	host = json_pack("{s:s,s:b,s:s,s:i,s:[o],s:[]}", "host", name, "own", json_array_size(hosts) == 0, "state",
			 state, "count", 0, "leases", lease, "holders");
	ck_assert_int_eq(json_array_append_new(hosts, host), 0);
	return host;
}

static void add_holder(json_t *host, int pid, const char *command, int64_t since, struct store_range range)
{
	json_t *holders = json_object_get(host, "holders");
	json_t *row = json_pack("{s:i,s:s,s:I}", "pid", pid, "command", command, "since", (json_int_t)since);
	picture_add_range(row, &range);
	json_array_append_new(holders, row);
	json_object_set_new(host, "count", json_integer((json_int_t)json_array_size(holders)));
}

static const char *said(struct store_range wanted, int but)
{
	memset(line, 'x', sizeof(line));
	whoreport_line(report, "/f", &wanted, but, line, sizeof(line));
	return line;
}

TEST(holders)
{
	char expected[WIRE_REASON_BYTES];
	int64_t noon = time(NULL) / DAY * DAY + DAY / 2;
	json_t *own = add_host("a-0123456789abcdef", "answered"), *other;

	add_holder(own, 5, "one", noon + 5, whole);
	add_holder(own, 6, "", noon, whole);
	snprintf(expected, sizeof(expected), "/f: held by this host, pid 5 (one), pid 6, since 12:00:00");
	ck_assert_str_eq(said(whole, 0), expected);
	/* A host whose name has no id behind it; a process that cannot be looked into; another day. */
	other = add_host("web-3", "answered");
	add_holder(other, 0, "", 1700000000, whole);
	ck_assert_ptr_nonnull(strstr(said(whole, 0),
				     "; held by host web-3, a process that its keeper may not look into, "
				     "since 2023-11-14 22:13:20"));
}

TEST(many)
{
	char name[STORE_HOST_BYTES];

	add_host("own", "answered");
	for (int n = 1; n < 17; n++) {
		snprintf(name, sizeof(name), "host%d-0123456789abcdef", n);
		json_t *host = add_host(name, "answered");

		for (int i = 0; i < 64; i++)
			add_holder(host, 100 + i, "abcdefghijklmno", 0, whole);
	}
	ck_assert_ptr_nonnull(strstr(said(whole, 0),
				     "held by host host4, pid 100 (abcdefghijklmno), pid 101 "
				     "(abcdefghijklmno), pid 102 (abcdefghijklmno) and 61 more; and by 12 "
				     "more hosts"));
	ck_assert_ptr_null(strstr(line, "host5"));
	/* However long the path is, the line ends. */
	char path[5000];
	memset(path, 'p', sizeof(path));
	path[sizeof(path) - 1] = '\0';
	whoreport_line(report, path, &whole, 0, line, sizeof(line));
	ck_assert_uint_lt(strlen(line), sizeof(line));
}

TEST(what_is_not_in_the_way)
{
	const struct store_range shared = {.space = WIRE_RECORD, .mode = WIRE_SHARED, .from = 0, .to = 10};
	const struct store_range later = {.space = WIRE_RECORD, .mode = WIRE_EXCLUSIVE, .from = 10, .to = 20};
	struct store_range wanted = shared;
	json_t *own = add_host("a", "answered");

	add_holder(own, 1, "one", 0, shared);
	add_holder(own, 2, "two", 0, later);
	add_holder(own, 2, "two", 0, later); /* once */
	ck_assert_str_eq(said(wanted, 0), "/f: was taken, and is free again");
	wanted.mode = WIRE_EXCLUSIVE;
	ck_assert_str_eq(said(wanted, 0), "/f: held by this host, pid 1 (one)");
	wanted.to = 11;
	ck_assert_str_eq(said(wanted, 0), "/f: held by this host, pid 1 (one), pid 2 (two)");
	ck_assert_str_eq(said(wanted, 1), "/f: held by this host, pid 2 (two)"); /* a process does not block itself */
}

/* A name that may be old is only "last known", and only where the holder is not known. */
TEST(last_known)
{
	json_t *host, *lease;

	add_host("own", "answered");
	host = add_host("b", "silent");
	lease = json_array_get(json_object_get(host, "leases"), 0);
	json_object_set_new(lease, "job", json_pack("{s:i,s:i,s:s}", "pid", 7, "since", 1700000000, "command", "old"));
	ck_assert_str_eq(said(whole, 0),
			 "/f: held by host b, which has not answered; last known: pid 7 (old), which asked for "
			 "it at 2023-11-14 22:13:20");
	json_object_set_new(host, "state", json_string("answered")); /* it has said that no process holds it */
	ck_assert_str_eq(said(whole, 0), "/f: was taken, and is free again");
	json_object_set_new(host, "state", json_string("old"));
	json_object_del(lease, "job");
	ck_assert_str_eq(said(whole, 0), "/f: held by host b, job unknown: dflock there is of an older version");
	json_object_set_new(host, "state", json_string("answered"));
	json_object_set_new(report, "resting", json_pack("{s:i}", "flock", 1001));
	ck_assert_str_eq(said(whole, 0), "/f: free, but it rests for 2 s more (at_least_ms)");
	json_object_set_new(report, "client", json_pack("{s:s,s:i}", "token", "1a2b3c4d", "left_ms", 11500));
	ck_assert_str_eq(said(whole, 0), "/f: held by a Redis client (1a2b3c4d...), for another 12 s");
	json_object_set_new(json_object_get(report, "client"), "left_ms", json_integer(-1));
	ck_assert_str_eq(said(whole, 0), "/f: held by a Redis client (1a2b3c4d...), without an expiry");
	json_object_set_new(report, "client", json_null());
	json_object_clear(json_object_get(report, "resting"));
	json_object_set_new(report, "error", json_string("because"));
	ck_assert_str_eq(said(whole, 0), "/f: which host has it is not known: because");
}
