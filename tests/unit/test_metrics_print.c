/* cli/metrics.c: the text for Prometheus, also of answers that make no sense. */
#include <jansson.h>
#include <regex.h>

#include "cli/metrics.h"
#include "tests/unit/suite.h"

static char *text;

static const char *printed(const char *json)
{
	json_t *answer = json ? json_loads(json, 0, NULL) : NULL;
	size_t size;
	FILE *f;

	ck_assert(!json || answer);
	free(text);
	f = open_memstream(&text, &size);
	metrics_print(answer, f);
	fclose(f);
	json_decref(answer);
	return text;
}

static bool has_line(const char *line)
{
	size_t n = strlen(line);

	for (const char *at = text; (at = strstr(at, line)); at++)
		if ((at == text || at[-1] == '\n') && at[n] == '\n')
			return true;
	return false;
}

/* What Prometheus takes: comments and samples, each line whole. */
static void check_lines(void)
{
	regex_t re;
	char *copy = strdup(text), *save, *line;

	ck_assert(*text && text[strlen(text) - 1] == '\n');
	ck_assert_int_eq(
		regcomp(&re,
			"^(# (HELP|TYPE) dflock_[a-z_]+ .+|dflock_[a-z_]+([{]([a-z]+=\"([^\"\\]|\\\\[n\"\\])*\",?)+[}])? "
			"[0-9.e+-]+)$",
			REG_EXTENDED | REG_NOSUB),
		0);
	for (line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		ck_assert_msg(regexec(&re, line, 0, NULL, 0) == 0, "%s", line);
	regfree(&re);
	free(copy);
}

static void check_has(const char *const *lines)
{
	check_lines();
	for (; *lines; lines++)
		ck_assert_msg(has_line(*lines), "%s is not in\n%s", *lines, text);
}
#define CHECK_HAS(...) check_has((const char *const[]){__VA_ARGS__, NULL})

TEST(values)
{
	printed(NULL); /* the keeper is away */
	CHECK_HAS("dflock_up 0", "# TYPE dflock_up gauge",
		  "dflock_build_info{program=\"dflock\",version=\"" DFLOCK_VERSION "\"} 1");
	ck_assert_ptr_null(strstr(text, "program=\"dflockd"));
	ck_assert_ptr_null(strstr(text, "dflock_leases"));
	printed("{\"version\": \"1\", \"waiters\": {\"flock\": 3, \"record\": 0}, \"leases\": {\"flock\": {\"held\": 7}},"
		" \"ttl_seconds\": 12.5, \"freezes_total\": 9007199254740993}");
	CHECK_HAS("dflock_up 1", "dflock_waiters{space=\"flock\"} 3", "dflock_waiters{space=\"record\"} 0",
		  "dflock_leases{space=\"flock\",state=\"held\"} 7", "dflock_ttl_seconds 12.5",
		  "dflock_freezes_total 9007199254740993", "# TYPE dflock_freezes_total counter");
}

TEST(histograms_are_cumulative)
{
	printed("{\"store_request_seconds\": {\"le\": [0.0001, 2.5, 86400.0], \"counts\": [1, 2, 0, 4], \"sum\": 0.25}}");
	CHECK_HAS("# TYPE dflock_store_request_seconds histogram",
		  "dflock_store_request_seconds_bucket{le=\"0.0001\"} 1",
		  "dflock_store_request_seconds_bucket{le=\"2.5\"} 3",
		  "dflock_store_request_seconds_bucket{le=\"86400\"} 3",
		  "dflock_store_request_seconds_bucket{le=\"+Inf\"} 7", "dflock_store_request_seconds_sum 0.25",
		  "dflock_store_request_seconds_count 7");
	printed("{\"lock_wait_seconds\": {\"flock\": {\"le\": [1.0], \"counts\": [1, 1], \"sum\": 3}}}");
	CHECK_HAS("dflock_lock_wait_seconds_bucket{space=\"flock\",le=\"1\"} 1",
		  "dflock_lock_wait_seconds_count{space=\"flock\"} 2");
}

/* Any text that comes as a label is escaped. */
TEST(awkward_texts)
{
	printed("{\"version\": \"1\\\"} 7\\ndflock_up 2\\\\\", \"waiters\": {\"a\\\"b\\\\c\\nd}\": 1, \"\": 2, \"\\u00e9\\r\": 3}}");
	CHECK_HAS("dflock_build_info{program=\"dflockd\",version=\"1\\\"} 7\\ndflock_up 2\\\\\"} 1",
		  "dflock_waiters{space=\"a\\\"b\\\\c\\nd}\"} 1", "dflock_waiters{space=\"\"} 2");
	ck_assert(!has_line("dflock_up 2"));
}

/* A value of another kind than the metric's is left out, and so is a key that is not known. */
TEST(nonsense)
{
	static const char *const answers[] = {
		"{\"waiters\": 3}",
		"{\"waiters\": {\"flock\": {\"x\": 1}}}",
		"{\"waiters\": {\"flock\": \"7\\n\"}}",
		"{\"leases\": {\"flock\": 1}}",
		"{\"leases\": [1, 2]}",
		"{\"freezes_total\": null}",
		"{\"freezes_total\": {\"a\": 1}}",
		"{\"store_request_seconds\": 1}",
		"{\"store_request_seconds\": {\"le\": [1], \"counts\": [1], \"sum\": 1}}",
		"{\"store_request_seconds\": {\"le\": [1], \"counts\": [1, 2], \"sum\": \"x\"}}",
		"{\"secrets\": {\"name\": 1}, \"up\": 7, \"build_info\": 9}",
	};
	char *without;

	printed("{}");
	without = strdup(text);
	for (size_t i = 0; i < sizeof(answers) / sizeof(*answers); i++) {
		char *save, *copy, *line;

		printed(answers[i]);
		check_lines();
		copy = strdup(text);
		for (line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
			ck_assert_msg(*line == '#' || strstr(without, line), "%s: %s", answers[i], line);
		free(copy);
	}
	free(without);
}
