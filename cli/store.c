#include "cli/store.h"

#include <time.h>

#include "cli/field.h"

#define PAUSE_MS 50

json_t *store_await(struct ask *ask, const struct place *place, char why[CLI_LINE_BYTES])
{
	const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000};
	json_t *status = ask_status_json(ask, place, why);

	for (int waited = 0; status && waited < STORE_PATIENCE_MS; waited += PAUSE_MS) {
		if (field_flag(json_object_get(status, "store"), "up"))
			break;
		json_decref(status);
		nanosleep(&pause, NULL);
		status = ask_status_json(ask, place, why);
	}
	return status;
}
