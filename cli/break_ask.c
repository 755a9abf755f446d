/* See break.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/break.h"

bool break_agreed(const struct break_options *options, const char *question)
{
	char answer[16] = "";

	if (options->yes)
		return true;
	if (!isatty(STDIN_FILENO)) {
		cli_error("nothing was changed: standard input is no terminal, so it cannot ask; --yes does it without "
			  "asking");
		return false;
	}
	printf("%s [y/N] ", question);
	fflush(stdout);
	if (fgets(answer, sizeof(answer), stdin) && (!strcmp(answer, "y\n") || !strcmp(answer, "yes\n")))
		return true;
	puts("nothing was changed");
	return false;
}

int break_ask(struct ask *ask, enum wire_op op, const char *text, const struct place *place, char why[CLI_LINE_BYTES])
{
	int ret = ask_about(ask, op, text, place, NULL, why);

	/* A keeper that does not know the question takes it for a malformed one. */
	if (ret == -ECONNRESET)
		snprintf(why, CLI_LINE_BYTES,
			 "the keeper (pid %d) has ended, or is of a version that does not know `dflock break': see "
			 "`dflock status', and run it again",
			 (int)ask->pid);
	return ret;
}
