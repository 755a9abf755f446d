/* What status says of locks that were taken past dflock (past.h). Loop only. */
#ifndef DFLOCK_KEEPER_STATUS_PAST_H
#define DFLOCK_KEEPER_STATUS_PAST_H

#include <jansson.h>

struct keeper;

/* The locks that are reported: [{"name", "path", "pid", "command", "space", "mode", "from", "to", "since", "before"}]. */
json_t *status_past_json(const struct keeper *k);
/* The looks: {"count", "every_ms" (0: none), "locks", "not_found", "left_out", "took_us"}. */
json_t *status_past_looks_json(const struct keeper *k);

#endif
