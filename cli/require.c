/* See require.h. A keeper that has just started is not connected to the store, and is asked again until the time is
 * over. */
#include "cli/require.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

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

static bool configuration_is_fit(const struct place *place, const char *const *files, size_t count,
				 char why[CLI_LINE_BYTES])
{
	struct config *config;
	bool fit = true;

	if (!place->config[0]) {
		snprintf(why, CLI_LINE_BYTES, "there is no configuration: " CLI_WRITE_ONE);
		return false;
	}
	if (config_load_rules(place->config, &config, why, CLI_LINE_BYTES))
		return false;
	for (size_t i = 0; i < count && fit; i++)
		fit = file_is_protected(config, files[i], why);
	config_free(config);
	return fit;
}

static bool keeper_is_fit(const struct place *place, char why[CLI_LINE_BYTES])
{
	const struct timespec again = {.tv_nsec = AGAIN_MS * 1000000};
	int64_t until = 0;
	struct ask ask;
	bool started;
	int ret;

	do { /* an idle keeper may end just now: the next one is asked */
		if (until)
			nanosleep(&again, NULL);
		if (start_connect(place, &ask, &started, why))
			return false;
		if (!until)
			until = cli_now_ms() + REQUIRE_PATIENCE_MS;
		while ((ret = ask_question(&ask, WIRE_FIT, place, NULL, why)) == -EAGAIN && cli_now_ms() < until)
			nanosleep(&again, NULL);
		ask_close(&ask);
	} while (ret == -ECONNRESET && cli_now_ms() < until);
	return ret == 0;
}

bool require_fit(const struct place *place, const char *const *files, size_t count, char why[CLI_LINE_BYTES])
{
	return configuration_is_fit(place, files, count, why) && keeper_is_fit(place, why);
}
