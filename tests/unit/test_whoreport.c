/* keeper/callers/whoreport.h: what is said of the processes that hold a lock. */
#include "keeper/callers/whoreport.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DAY 86400

static const struct store_range whole = {.space = WIRE_FLOCK, .mode = WIRE_EXCLUSIVE, .to = WIRE_EOF};
static struct who_report report;
static struct who_host hosts[WHO_HOSTS];
static struct store_entry entries[WHO_HOSTS];
static char line[WIRE_REASON_BYTES];

static void setup(void)
{
	setenv("TZ", "UTC", 1);
	tzset();
	memset(hosts, 0, sizeof(hosts));
	memset(entries, 0, sizeof(entries));
	report = (struct who_report){.name = "t/f", .why = "", .entries = entries};
}

/* The first one added is this host. Each has a lease of the whole file. */
static struct who_host *add_host(const char *name, enum who_state state)
{
	struct who_host *host = &hosts[report.host_count];
	struct store_entry *e = &entries[report.entry_count++];

	strcpy(host->host, name);
	strcpy(e->host, name);
	e->range = whole;
	host->own = report.host_count == 0;
	host->state = state;
	report.hosts[report.host_count++] = host;
	return host;
}

static void add_holder(struct who_host *host, int pid, const char *command, int64_t since, struct store_range range)
{
	struct finding *h = &host->holders[host->shown++];

	h->job.pid = pid;
	h->job.since = since;
	strcpy(h->job.command, command);
	h->range = range;
	host->count++;
}

static const char *said(struct store_range wanted, int but)
{
	memset(line, 'x', sizeof(line));
	whoreport_line(&report, "/f", &wanted, but, line, sizeof(line));
	return line;
}

START_TEST(holders)
{
	char expected[WIRE_REASON_BYTES];
	int64_t noon = time(NULL) / DAY * DAY + DAY / 2;
	struct who_host *own = add_host("a-0123456789abcdef", WHO_ANSWERED), *other;

	add_holder(own, 5, "one", noon + 5, whole);
	add_holder(own, 6, "", noon, whole);
	snprintf(expected, sizeof(expected), "/f: held by this host, pid 5 (one), pid 6, since 12:00:00");
	ck_assert_str_eq(said(whole, 0), expected);
	/* A host whose name has no id behind it; a process that cannot be looked into; another day. */
	other = add_host("web-3", WHO_ANSWERED);
	add_holder(other, 0, "", 1700000000, whole);
	ck_assert_ptr_nonnull(strstr(said(whole, 0),
				     "; held by host web-3, a process that its keeper may not look into, "
				     "since 2023-11-14 22:13:20"));
}
END_TEST

START_TEST(many)
{
	char name[STORE_HOST_BYTES];

	add_host("own", WHO_ANSWERED);
	for (int n = 1; n < WHO_HOSTS; n++) {
		snprintf(name, sizeof(name), "host%d-0123456789abcdef", n);
		struct who_host *host = add_host(name, WHO_ANSWERED);
		for (int i = 0; i < FINDING_MAX; i++)
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
	whoreport_line(&report, path, &whole, 0, line, sizeof(line));
	ck_assert_uint_lt(strlen(line), sizeof(line));
}
END_TEST

START_TEST(what_is_not_in_the_way)
{
	const struct store_range shared = {.space = WIRE_RECORD, .mode = WIRE_SHARED, .from = 0, .to = 10};
	const struct store_range later = {.space = WIRE_RECORD, .mode = WIRE_EXCLUSIVE, .from = 10, .to = 20};
	struct store_range wanted = shared;
	struct who_host *own = add_host("a", WHO_ANSWERED);

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
END_TEST

/* A name that may be old is only "last known", and only where the holder is not known. */
START_TEST(last_known)
{
	struct who_host *host;

	add_host("own", WHO_ANSWERED);
	host = add_host("b", WHO_SILENT);
	entries[1].job = (struct store_job){.pid = 7, .since = 1700000000, .command = "old"};
	ck_assert_str_eq(said(whole, 0),
			 "/f: held by host b, which has not answered; last known: pid 7 (old), which asked for "
			 "it at 2023-11-14 22:13:20");
	host->state = WHO_OLD;
	entries[1].job.pid = 0;
	ck_assert_str_eq(said(whole, 0), "/f: held by host b, job unknown: dflock there is of an older version");
	entries[1].job.pid = 7;
	host->state = WHO_ANSWERED; /* it has said that no process holds it */
	ck_assert_str_eq(said(whole, 0), "/f: was taken, and is free again");
	report.aside.rest_ms[WIRE_FLOCK] = 1001;
	ck_assert_str_eq(said(whole, 0), "/f: free, but it rests for 2 s more (at_least_ms)");
	report.aside.rest_ms[WIRE_FLOCK] = 0;
	strcpy(report.aside.client, "1a2b3c4d");
	report.aside.client_ms = 11500;
	ck_assert_str_eq(said(whole, 0), "/f: held by a Redis client (1a2b3c4d...), for another 12 s");
	report.aside.client_ms = -1;
	ck_assert_str_eq(said(whole, 0), "/f: held by a Redis client (1a2b3c4d...), without an expiry");
	*report.aside.client = '\0';
	report.why = "because";
	ck_assert_str_eq(said(whole, 0), "/f: which host has it is not known: because");
}
END_TEST

START_TEST(as_json)
{
	struct who_host *own = add_host("own", WHO_ANSWERED);
	json_t *doc;

	add_host("idle", WHO_ANSWERED);
	entries[1].waiter = true; /* so it has no lease */
	strcpy(report.name, "t/\xff");
	add_holder(own, 1, "one", 5, whole);
	report.left_out = 3;
	doc = whoreport_json(&report);
	ck_assert_uint_eq(json_array_size(json_object_get(doc, "hosts")), 1);
	ck_assert_uint_eq(json_array_size(json_object_get(doc, "waiting")), 1);
	ck_assert_int_eq(json_integer_value(json_object_get(doc, "left_out")), 3);
	ck_assert_str_eq(json_string_value(json_object_get(doc, "name")), "(not UTF-8)");
	json_decref(doc);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("whoreport");
	TCase *t = tcase_create("whoreport");
	SRunner *runner;
	int failed;

	tcase_add_checked_fixture(t, setup, NULL);
	tcase_add_test(t, holders);
	tcase_add_test(t, many);
	tcase_add_test(t, what_is_not_in_the_way);
	tcase_add_test(t, last_known);
	tcase_add_test(t, as_json);
	suite_add_tcase(suite, t);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
