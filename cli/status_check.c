/* dflock status --check: one line with figures for monitoring systems, and 0, 1 or 2. */
#include "cli/status.h"

#include <inttypes.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/field.h"
#include "cli/show.h"

#define CHECK_WHY_BYTES 700

struct check_figures {
	size_t leases, used, waiting, lost, unstoppable, past, too_long;
	int64_t frozen;
};

static void check_count(const json_t *status, struct check_figures *n)
{
	const json_t *lease, *holder;
	size_t i, j;

	*n = (struct check_figures){.lost = json_array_size(json_object_get(status, "lost")),
				    .past = json_array_size(json_object_get(status, "taken_past")),
				    .too_long = json_array_size(json_object_get(status, "too_long")),
				    .frozen = field_number(status, "frozen")};
	json_array_foreach (json_object_get(status, "leases"), i, lease) {
		bool asking = !strcmp(field_text(lease, "state"), "asking");
		const json_t *holders = asking ? NULL : json_object_get(lease, "holders");

		n->leases += !asking;
		n->used += json_array_size(holders) > 0;
		n->waiting += json_array_size(json_object_get(lease, "waiting"));
		json_array_foreach (holders, j, holder)
			n->unstoppable += field_flag(holder, "unstoppable");
	}
}

/* Locks are refused, or holders are stopped or unguarded. */
static bool check_is_critical(const json_t *status, const struct check_figures *n, char why[CHECK_WHY_BYTES])
{
	const json_t *store = json_object_get(status, "store");
	const char *error = field_text(store, "error"), *trouble = field_text(store, "trouble");

	if (n->frozen)
		snprintf(why, CHECK_WHY_BYTES, "%" PRId64 " processes are frozen until the store %.200s answers",
			 n->frozen, field_text(store, "server"));
	else if (!field_flag(store, "up"))
		snprintf(why, CHECK_WHY_BYTES, "the store %.200s %s: %.400s", field_text(store, "server"),
			 *trouble ? trouble : "is not reachable", *error ? error : "not connected yet");
	else if (*field_text(store, "refuses"))
		snprintf(why, CHECK_WHY_BYTES, "no new locks: %.600s", field_text(store, "refuses"));
	else if (field_flag(status, "unsupervised"))
		snprintf(why, CHECK_WHY_BYTES, "the keeper's parent was killed, and none can be started");
	else
		return false;
	return true;
}

static bool check_is_doubtful(const json_t *status, const struct check_figures *n, char why[CHECK_WHY_BYTES])
{
	const json_t *rules = json_object_get(status, "rules"), *d;
	size_t i, renamed = 0;

	json_array_foreach (json_object_get(json_object_get(status, "elsewhere"), "differences"), i, d)
		renamed += !strcmp(field_text(d, "what"), "renamed");
	if (n->lost)
		snprintf(why, CHECK_WHY_BYTES, "%zu lease%s lost", n->lost, n->lost == 1 ? " was" : "s were");
	else if (*field_text(status, "twin"))
		snprintf(why, CHECK_WHY_BYTES,
			 "the host %.128s had the same id: a machine or a runtime directory was copied",
			 field_text(status, "twin"));
	else if (n->past)
		snprintf(why, CHECK_WHY_BYTES, "%zu lock%s taken past dflock", n->past,
			 n->past == 1 ? " was" : "s were");
	else if (n->too_long)
		snprintf(why, CHECK_WHY_BYTES, "%zu lock%s held too long", n->too_long,
			 n->too_long == 1 ? " is" : "s are");
	else if (n->unstoppable)
		snprintf(why, CHECK_WHY_BYTES, "%zu holder%s cannot be stopped", n->unstoppable,
			 n->unstoppable == 1 ? "" : "s");
	else if (field_flag(json_object_get(status, "store"), "grace"))
		snprintf(why, CHECK_WHY_BYTES, "the store is in grace and grants no new locks");
	else if (*field_text(rules, "why") && strcmp(field_text(rules, "file"), "changed") != 0)
		snprintf(why, CHECK_WHY_BYTES, "older rules are in force: %.600s", field_text(rules, "why"));
	else if (renamed)
		snprintf(why, CHECK_WHY_BYTES, "%zu rule%s named differently on other hosts (dflock doctor)", renamed,
			 renamed == 1 ? " is" : "s are");
	else
		return false;
	return true;
}

int status_check(const json_t *status, FILE *f)
{
	char why[CHECK_WHY_BYTES];
	/* A setting, which is not over after a while: a warning would be one for ever. What comes of it is critical. */
	const char *risk = field_text(json_object_get(status, "store"), "risk");
	struct check_figures n;
	int ret;

	check_count(status, &n);
	ret = check_is_critical(status, &n, why) ? 2 : check_is_doubtful(status, &n, why) ? 1 : 0;
	if (ret == 0)
		snprintf(why, sizeof(why), "the store is up, %zu of %zu leases in use, %zu waiting%s%s", n.used,
			 n.leases, n.waiting, *risk ? "; note: " : "", risk);
	status_check_line(ret, why, f);
	fprintf(f, " | leases=%zu used=%zu waiting=%zu frozen=%" PRId64 " lost=%zu\n", n.leases, n.used, n.waiting,
		n.frozen, n.lost);
	return ret;
}

void status_check_line(int level, const char *why, FILE *f)
{
	static const char *const words[] = {"OK", "WARNING", "CRITICAL"};

	fprintf(f, "DFLOCK %s: ", words[level]);
	/* Behind '|' stand the figures. */
	for (; *why; why++) {
		char c[5] = {*why == '|' ? '/' : *why};
		int bytes = 1;

		while (bytes < 4 && ((unsigned char)why[1] & 0xc0) == 0x80) /* the rest of a character of UTF-8 */
			c[bytes++] = *++why;
		show_text(f, c);
	}
}
