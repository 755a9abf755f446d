/* See status_since.h. */
#include "keeper/callers/status_since.h"

#include <stdlib.h>
#include <utlist.h>

#include "keeper/leases/grants.h"
#include "keeper/leases/keeper.h"

void status_since_init(struct status_since *since, const struct lock *lock)
{
	const struct grant *h, *next;

	*since = (struct status_since){.leased_at = lock->taken_up ? 0 : lock->leased_at};
	if (!lock->grants)
		return;
	since->all = calloc(HASH_COUNT(lock->grants), sizeof(*since->all));
	HASH_ITER (hh, lock->grants, h, next)
		if (since->all)
			since->all[since->count++] = (struct status_since_one){.pid = h->pid, .at = h->since};
}

void status_since_free(struct status_since *since)
{
	free(since->all);
	*since = (struct status_since){0};
}

void status_since_add(const struct status_since *since, pid_t locker, json_t *holder)
{
	const char *is = since->leased_at ? "after" : "unknown";
	time_t at = since->leased_at;

	/* Pid 0 has the last grant of any process, which may not have got the lock: it is no time for people. */
	for (size_t i = 0; i < since->count; i++) {
		if (locker <= 0 || since->all[i].pid != locker)
			continue;
		at = since->all[i].at;
		is = "granted";
	}
	json_object_set_new(holder, "since", json_integer((json_int_t)at));
	json_object_set_new(holder, "since_is", json_string(is));
}

static const char *status_since_doing(const struct grant *h)
{
	return h->state == GRANT_ENDING ? "is being ended" : h->state == GRANT_STUCK ? "could not be ended" : "";
}

static json_t *status_since_text(const char *text)
{
	json_t *json = json_string(text);

	return json ? json : json_string("(not UTF-8)"); /* names may be any bytes */
}

json_t *status_since_too_long(const struct keeper *k)
{
	json_t *list = json_array();
	const struct grant *h, *next;
	const struct lock *lock;

	DL_FOREACH2 (k->grants.locks, lock, held_next) {
		HASH_ITER (hh, lock->grants, h, next) {
			if (h->state == GRANT_QUIET)
				continue;
			json_array_append_new(
				list, json_pack("{s:o,s:o,s:s,s:i,s:o,s:I,s:I,s:s}", "name",
						status_since_text(lock->file->name), "path",
						status_since_text(lock->file->path), "space",
						lock->space == WIRE_FLOCK ? "flock" : "record", "pid", (int)h->holder,
						"command", status_since_text(h->command ? h->command : ""), "since",
						(json_int_t)h->since, "held_ms", (json_int_t)grant_age_ms(k, h),
						"doing", status_since_doing(h)));
		}
	}
	return list;
}
