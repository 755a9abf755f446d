#include "cli/store.h"

#include <time.h>

#include "cli/field.h"

#define PAUSE_MS 50

json_t *store_await(struct ask *ask, const struct place *place, char why[CLI_LINE_BYTES])
{
	const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000};
	int64_t deadline = cli_now_ms() + STORE_PATIENCE_MS;
	json_t *status = ask_status_json(ask, place, why);

	/* While the store is away, each answer may take a second: the keeper asks the store for the cluster's part. */
	while (status && !field_flag(json_object_get(status, "store"), "up") && cli_now_ms() < deadline) {
		json_decref(status);
		nanosleep(&pause, NULL);
		status = ask_status_json(ask, place, why);
	}
	return status;
}
