/* dflock reload: the keeper takes its configuration over as it is now. */
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/start.h"

static const char reload_doc[] =
	"Makes the keeper read its configuration again and use it, whatever it protects. A changed configuration that "
	"still protects every file under the same name is taken over without this command. Locks that are held stay "
	"held. If the new configuration is invalid, the keeper says so and changes nothing.\v"
	"The exit status is 0, also if no keeper runs and none left rules behind (the next one reads the "
	"configuration when it starts), and 1 if the keeper refuses.";

/* Are there rules that the next keeper would go by before it reads the configuration? */
static bool is_kept(const struct ask *ask)
{
	char path[PLACE_DIR_BYTES + sizeof(PLACE_KEPT_NAME) + 1];

	snprintf(path, sizeof(path), "%s/" PLACE_KEPT_NAME, ask->dir);
	return access(path, F_OK) == 0;
}

int cmd_reload(int argc, char **argv)
{
	bool force = cli_force(argc, argv, reload_doc,
			       "also while a lock is held that would have another name, or not be protected any more");
	bool started;
	char why[CLI_LINE_BYTES];
	struct place place;
	struct ask ask;
	int ret;

	cli_place(&place, NULL);
	ret = ask_connect(&place, &ask, why);
	if (ret == -ENOENT && !is_kept(&ask)) {
		puts("no keeper runs; the next one reads the configuration when it starts");
		return CLI_OK;
	}
	if (ret == -ENOENT)
		ret = start_connect(&place, &ask, &started, why);
	if (!ret) {
		ask.flags = force ? WIRE_F_FORCE : 0;
		ret = ask_question(&ask, WIRE_RELOAD, &place, NULL, why);
	}
	ask_close(&ask);
	if (ret) {
		cli_error("%s", why);
		return CLI_FAILED;
	}
	printf("the keeper (pid %d) has read its configuration again\n", (int)ask.pid);
	return CLI_OK;
}
