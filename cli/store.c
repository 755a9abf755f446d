#include "cli/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "cli/field.h"

#define PAUSE_MS 50

static json_t *store_read_status(struct ask *ask, const struct place *place, char why[CLI_LINE_BYTES])
{
	json_t *status;
	size_t len = 0;
	char *text;

	if (ask_status(ask, place, &text, &len, why))
		return NULL;
	status = json_loadb(text, len, 0, NULL);
	free(text);
	if (json_is_object(status))
		return status;
	json_decref(status);
	snprintf(why, CLI_LINE_BYTES, "the status of the keeper (pid %d) makes no sense; is it another version's?",
		 (int)ask->pid);
	return NULL;
}

json_t *store_await(struct ask *ask, const struct place *place, char why[CLI_LINE_BYTES])
{
	const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000};
	json_t *status = store_read_status(ask, place, why);

	for (int waited = 0; status && waited < STORE_PATIENCE_MS; waited += PAUSE_MS) {
		if (field_flag(json_object_get(status, "store"), "up"))
			break;
		json_decref(status);
		nanosleep(&pause, NULL);
		status = store_read_status(ask, place, why);
	}
	return status;
}
