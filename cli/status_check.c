/* dflock status --check: one line with figures for monitoring systems, and 0, 1 or 2. */
#include "cli/status.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/field.h"
#include "cli/show.h"

#define CHECK_WHY_BYTES 2000

struct check_figures {
	size_t leases, used, waiting, lost, unstoppable, past, too_long;
	int64_t frozen;
};

static void check_count(const json_t *status, struct check_figures *n)
{
	const json_t *lease, *holder;
	size_t i, j;

	*n = (struct check_figures){.past = json_array_size(json_object_get(status, "taken_past")),
				    .too_long = json_array_size(json_object_get(status, "too_long")),
				    .frozen = field_number(status, "frozen")};
	/* What an operator took away is no surprise. */
	json_array_foreach (json_object_get(status, "lost"), i, lease)
		n->lost += !field_flag(lease, "broken");
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

/* One more reason; the worst comes first. */
static void __attribute__((format(printf, 2, 3))) check_add(char why[CHECK_WHY_BYTES], const char *format, ...)
{
	size_t used = strlen(why);
	va_list args;

	if (used)
		used += (size_t)snprintf(why + used, CHECK_WHY_BYTES - used, "; ");
	va_start(args, format);
	if (used < CHECK_WHY_BYTES)
		vsnprintf(why + used, CHECK_WHY_BYTES - used, format, args);
	va_end(args);
}

static void check_add_count(char why[CHECK_WHY_BYTES], size_t count, const char *one, const char *several)
{
	if (count)
		check_add(why, "%zu %s", count, count == 1 ? one : several);
}

/* Locks are refused, or holders are stopped or unguarded. */
static void check_critical(const json_t *status, const struct check_figures *n, char why[CHECK_WHY_BYTES])
{
	const json_t *store = json_object_get(status, "store");
	const char *error = field_text(store, "error"), *trouble = field_text(store, "trouble");

	if (n->frozen)
		check_add(why, "%" PRId64 " processes are frozen until the store %.200s answers", n->frozen,
			  field_text(store, "server"));
	if (!field_flag(store, "up"))
		check_add(why, "the store %.200s %s: %.400s", field_text(store, "server"),
			  *trouble ? trouble : "is not reachable", *error ? error : "not connected yet");
	else if (*field_text(store, "refuses"))
		check_add(why, "no new locks: %.600s", field_text(store, "refuses"));
	if (field_flag(status, "unsupervised"))
		check_add(why, "the keeper's parent was killed, and none can be started");
}

static void check_doubtful(const json_t *status, const struct check_figures *n, char why[CHECK_WHY_BYTES])
{
	const json_t *rules = json_object_get(status, "rules"), *store = json_object_get(status, "store"), *d;
	size_t i, renamed = 0;

	json_array_foreach (json_object_get(json_object_get(status, "elsewhere"), "differences"), i, d)
		renamed += !strcmp(field_text(d, "what"), "renamed");
	check_add_count(why, n->lost, "lease was lost", "leases were lost");
	if (*field_text(status, "twin"))
		check_add(why, "the host %.128s had the same id: a machine or a runtime directory was copied",
			  field_text(status, "twin"));
	check_add_count(why, n->past, "lock was taken past dflock", "locks were taken past dflock");
	check_add_count(why, n->too_long, "lock is held too long", "locks are held too long");
	check_add_count(why, n->unstoppable, "holder cannot be stopped", "holders cannot be stopped");
	if (field_flag(store, "up") && field_flag(store, "grace"))
		check_add(why, "the store is in grace and grants no new locks");
	if (*field_text(rules, "why") && strcmp(field_text(rules, "file"), "changed") != 0)
		check_add(why, "older rules are in force: %.600s", field_text(rules, "why"));
	check_add_count(why, renamed, "rule is named differently on other hosts (dflock doctor)",
			"rules are named differently on other hosts (dflock doctor)");
}

int status_check(const json_t *status, FILE *f)
{
	char why[CHECK_WHY_BYTES] = "";
	/* A setting, which is not over after a while: a warning would be one for ever. What comes of it is critical. */
	const char *risk = field_text(json_object_get(status, "store"), "risk");
	struct check_figures n;
	int ret;

	check_count(status, &n);
	check_critical(status, &n, why);
	ret = *why ? 2 : 0;
	check_doubtful(status, &n, why);
	ret = ret || !*why ? ret : 1;
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
