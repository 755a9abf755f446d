/* dflock stop: the keeper gives everything back and ends. */
#include "cli/cli.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cli/ask.h"

static const char stop_doc[] =
	"Makes the keeper give back all leases and end, and waits for that. A keeper whose leases are in use refuses: "
	"end their holders first (dflock status shows them). The next program that locks a protected file starts a "
	"new keeper.\v"
	"The exit status is 0 if no keeper runs any more, and 1 if it refused or does not end.";

/* Waits for the process itself, because the connection is closed before it ends. Without a pidfd, the answer is
 * enough. */
static int wait_for_end(int pidfd)
{
	struct pollfd end = {.fd = pidfd, .events = POLLIN};

	return pidfd >= 0 && poll(&end, 1, ASK_DEADLINE_S * 1000) == 0 ? -ETIMEDOUT : 0;
}

int cmd_stop(int argc, char **argv)
{
	char why[CLI_LINE_BYTES];
	int pidfd = -1, ret;
	struct place place;
	struct ask ask;

	cli_no_arguments(argc, argv, stop_doc);
	cli_place(&place, NULL);
	ret = ask_connect(&place, &ask, why);
	if (ret == -ENOENT) {
		puts("no keeper runs");
		return CLI_OK;
	}
	if (!ret && ask.pid > 0)
		pidfd = (int)syscall(SYS_pidfd_open, ask.pid, 0);
	if (!ret)
		ret = ask_question(&ask, WIRE_STOP, &place, NULL, why);
	if (!ret) {
		ret = wait_for_end(pidfd);
		if (ret)
			snprintf(why, sizeof(why),
				 "the keeper (pid %d) gave everything back and did not end within %d s; kill it",
				 (int)ask.pid, ASK_DEADLINE_S);
	}
	if (pidfd >= 0)
		close(pidfd);
	ask_close(&ask);
	if (ret) {
		cli_error("%s", why);
		return CLI_FAILED;
	}
	printf("the keeper (pid %d) has ended\n", (int)ask.pid);
	return CLI_OK;
}
