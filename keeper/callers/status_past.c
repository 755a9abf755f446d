/* See status_past.h. */
#include "keeper/callers/status_past.h"

#include <utlist.h>

#include "keeper/leases/keeper.h"

static json_t *status_past_text(const char *text)
{
	json_t *json = json_string(text);

	return json ? json : json_string("(not UTF-8)"); /* names may be any bytes */
}

json_t *status_past_json(const struct keeper *k)
{
	json_t *list = json_array();
	const struct suspect *s;

	DL_FOREACH (k->past.suspects, s) {
		if (!s->reported)
			continue;
		json_array_append_new(list, json_pack("{s:o,s:o,s:i,s:o,s:s,s:s,s:I,s:o,s:I,s:b}", "name",
						      status_past_text(s->name), "path", status_past_text(s->path),
						      "pid", (int)s->pid, "command", status_past_text(s->command),
						      "space", s->space == WIRE_FLOCK ? "flock" : "record", "mode",
						      s->mode == WIRE_SHARED ? "shared" : "exclusive", "from",
						      (json_int_t)s->from, "to",
						      s->to == WIRE_EOF ? json_null() : json_integer(s->to), "since",
						      (json_int_t)s->since, "before", (int)s->before));
	}
	return list;
}

json_t *status_past_looks_json(const struct keeper *k)
{
	const struct past *p = &k->past;

	/* The table of openers is the worker's while it looks: these numbers are of the last look. */
	return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I}", "count", (json_int_t)p->looks, "every_ms",
			 (json_int_t)k->config->lease.past_look_ms, "locks", (json_int_t)p->listed, "not_found",
			 (json_int_t)p->nowhere, "left_out", (json_int_t)p->over, "took_us",
			 (json_int_t)(p->took_ns / 1000));
}
