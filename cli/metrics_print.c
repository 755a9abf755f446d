/* See metrics.h. What the keeper says is checked: a value of the wrong kind is left out, a text is escaped. */
#include "cli/metrics.h"

#include <string.h>

static const char *const metric_types[] = {
	[METRIC_GAUGE] = "gauge", [METRIC_COUNTER] = "counter", [METRIC_HISTOGRAM] = "histogram"};

/* The labels of the samples to print. */
struct metric_place {
	const struct metric *metric;
	const char *values[METRIC_LABELS];
	size_t count;
	FILE *f;
};

/* As in a label's value; a HELP needs no more. */
static void print_escaped(const char *text, FILE *f)
{
	for (; *text; text++)
		if (*text == '\n')
			fputs("\\n", f);
		else if (*text == '\\' || *text == '"')
			fprintf(f, "\\%c", *text);
		else
			fputc(*text, f);
}

/* One sample up to its value. suffix: of a histogram; le: NULL, or its bucket. */
static void print_sample(const struct metric_place *at, const char *suffix, const char *le)
{
	const char *before = "{";

	fprintf(at->f, "dflock_%s%s", at->metric->name, suffix);
	for (size_t i = 0; i < at->count; i++, before = ",") {
		fprintf(at->f, "%s%s=\"", before, at->metric->labels[i]);
		print_escaped(at->values[i], at->f);
		fputc('"', at->f);
	}
	if (le)
		fprintf(at->f, "%sle=\"%s\"", before, le);
	fputs(le || at->count ? "} " : " ", at->f);
}

/* The counts are cumulative in the text, and not in the keeper's answer. */
static void print_histogram(const struct metric_place *at, const json_t *value)
{
	const json_t *le = json_object_get(value, "le"), *counts = json_object_get(value, "counts");
	const json_t *sum = json_object_get(value, "sum");
	json_int_t total = 0;
	size_t n = json_array_size(le);
	char bound[32];

	if (!json_is_number(sum) || json_array_size(counts) != n + 1)
		return;
	for (size_t i = 0; i <= n; i++) {
		total += json_integer_value(json_array_get(counts, i));
		snprintf(bound, sizeof(bound), "%.9g", json_number_value(json_array_get(le, i)));
		print_sample(at, "_bucket", i < n ? bound : "+Inf");
		fprintf(at->f, "%" JSON_INTEGER_FORMAT "\n", total);
	}
	print_sample(at, "_sum", NULL);
	fprintf(at->f, "%.9g\n", json_number_value(sum));
	print_sample(at, "_count", NULL);
	fprintf(at->f, "%" JSON_INTEGER_FORMAT "\n", total);
}

static void print_value(struct metric_place *at, const json_t *value)
{
	const char *key;
	json_t *each;

	if (at->count < METRIC_LABELS && at->metric->labels[at->count]) {
		json_object_foreach ((json_t *)value, key, each) {
			at->values[at->count++] = key;
			print_value(at, each);
			at->count--;
		}
	} else if (at->metric->type == METRIC_HISTOGRAM) {
		print_histogram(at, value);
	} else if (json_is_integer(value)) {
		print_sample(at, "", NULL);
		fprintf(at->f, "%" JSON_INTEGER_FORMAT "\n", json_integer_value(value));
	} else if (json_is_real(value)) {
		print_sample(at, "", NULL);
		fprintf(at->f, "%.9g\n", json_real_value(value));
	}
}

static void print_metric(const struct metric *metric, const json_t *value, FILE *f)
{
	struct metric_place at = {.metric = metric, .f = f};

	fprintf(f, "# HELP dflock_%s %s\n", metric->name, metric->help);
	fprintf(f, "# TYPE dflock_%s %s\n", metric->name, metric_types[metric->type]);
	print_value(&at, value);
}

/* What dflock says itself: {"up": .., "build_info": {PROGRAM: {VERSION: 1}}}. */
static json_t *own_values(const json_t *answer)
{
	const char *version = json_string_value(json_object_get(answer, "version"));
	json_t *own = json_pack("{s:i,s:{s:{s:i}}}", "up", answer != NULL, "build_info", "dflock", DFLOCK_VERSION, 1);

	if (version)
		json_object_set_new(json_object_get(own, "build_info"), "dflockd", json_pack("{s:i}", version, 1));
	return own;
}

void metrics_print(const json_t *answer, FILE *f)
{
	json_t *own = own_values(answer);

	for (const struct metric *m = metrics_table; m->name; m++) {
		const json_t *value = json_object_get(own, m->name);

		if (!value)
			value = json_object_get(answer, m->name);
		if (value)
			print_metric(m, value, f);
	}
	json_decref(own);
}
