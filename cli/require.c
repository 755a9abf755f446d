/*
 * See require.h. The keeper is asked for its status until it says that the store grants locks, or the time is over: a
 * keeper that has just started is not connected to the store.
 */
#include "cli/require.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/field.h"
#include "cli/files.h"
#include "cli/start.h"
#include "config/config.h"

#define AGAIN_MS 20

static bool file_is_protected(const struct config *config, const char *file, char why[CLI_LINE_BYTES])
{
	char path[PATH_MAX], name[LOCK_NAME_BYTES];
	int ret = files_resolve(file, path);

	if (ret == 0)
		ret = config_lock_name(config, path, name);
	else
		snprintf(path, sizeof(path), "%s", file);
	if (ret == -ENOENT)
		snprintf(why, CLI_LINE_BYTES, "%.512s is not protected: no rule of %.256s is about it", path,
			 config->path);
	else if (ret < 0)
		snprintf(why, CLI_LINE_BYTES, "%.512s: %s", path, strerror(-ret));
	return ret == 0;
}

static bool configuration_is_fit(const struct place *place, const char *file, char why[CLI_LINE_BYTES])
{
	struct config *config;
	bool fit;

	if (!place->config[0]) {
		snprintf(why, CLI_LINE_BYTES, "there is no configuration: " CLI_WRITE_ONE);
		return false;
	}
	if (config_load(place->config, &config, why, CLI_LINE_BYTES))
		return false;
	fit = !file || file_is_protected(config, file, why);
	config_free(config);
	return fit;
}

/* Goes by the keeper's rules, which are those in force. why is "" if the answer may change within a moment. */
static bool status_is_fit(const json_t *status, const struct place *place, char why[CLI_LINE_BYTES])
{
	const json_t *store = json_object_get(status, "store"), *rules = json_object_get(status, "rules");
	const char *refuses = field_text(store, "refuses"), *error = field_text(store, "error");

	why[0] = '\0';
	if (*field_text(rules, "why") && strcmp(field_text(rules, "file"), "changed") != 0)
		snprintf(why, CLI_LINE_BYTES, "%.512s is not in force: %.400s", place->config,
			 field_text(rules, "why"));
	else if (*refuses)
		snprintf(why, CLI_LINE_BYTES, "the store %s takes no new locks: %s", field_text(store, "server"),
			 refuses);
	else if (field_flag(store, "up") && field_flag(store, "grace"))
		snprintf(why, CLI_LINE_BYTES,
			 "the store %s is in grace and grants no new locks: wait, or see `dflock init`",
			 field_text(store, "server"));
	else if (*error && !field_flag(store, "up"))
		snprintf(why, CLI_LINE_BYTES, "the store %s %s: %s; see `dflock doctor`", field_text(store, "server"),
			 field_text(store, "trouble"), error);
	return !*why && field_flag(store, "up");
}

static bool ask_once(struct ask *ask, const struct place *place, bool *again, char why[CLI_LINE_BYTES])
{
	json_t *status;
	bool fit;

	*again = false;
	status = ask_status_json(ask, place, why);
	if (!status)
		return false;
	fit = status_is_fit(status, place, why);
	*again = !fit && !field_flag(json_object_get(status, "store"), "up");
	json_decref(status);
	return fit;
}

static bool keeper_is_fit(const struct place *place, char why[CLI_LINE_BYTES])
{
	int64_t until = cli_now_ms() + REQUIRE_PATIENCE_MS;
	bool started, again, fit;
	struct ask ask;

	if (start_connect(place, &ask, &started, why))
		return false;
	until = started ? cli_now_ms() + REQUIRE_PATIENCE_MS : until;
	while (!(fit = ask_once(&ask, place, &again, why)) && again && cli_now_ms() < until)
		nanosleep(&(struct timespec){.tv_nsec = AGAIN_MS * 1000000}, NULL);
	ask_close(&ask);
	if (!fit && !*why)
		snprintf(why, CLI_LINE_BYTES, "the store has not answered the keeper so far; see `dflock doctor`");
	return fit;
}

bool require_fit(const struct place *place, const char *file, char why[CLI_LINE_BYTES])
{
	return configuration_is_fit(place, file, why) && keeper_is_fit(place, why);
}
