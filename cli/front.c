/*
 * dflock, as it is started. A job that only needs the preload is started here, by a program without any library but libc: it takes
 * half the time that a job's start would take with those for JSON, tables and the configuration. All else is dflock-commands (main.c).
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/run.h"
#include "procfs/procfs.h"

const char *argp_program_version = "dflock " DFLOCK_VERSION;

static int by_commands(char **argv)
{
	char path[PATH_MAX];

	place_find("dflock-commands", "libexec", COMMANDS_INSTALLED, path);
	execv(path, argv);
	fprintf(stderr, "dflock: cannot run %s: %s; install it\n", path, strerror(errno));
	return CLI_FAILED;
}

/* argv[-1] is this program. */
static int run_by_commands(struct run_options *options, int argc, char **argv)
{
	char name[] = "run";

	(void)options, (void)argc;
	argv[0] = name;
	by_commands(argv - 1);
	return CLI_RUN_FAILED;
}

int main(int argc, char **argv)
{
	char own_name[] = "dflock", run_name[] = "dflock run";

	procfs_be_oneself(argv, true);
	argp_err_exit_status = CLI_USAGE;
	if (argc > 0)
		argv[0] = own_name; /* not the path that it was called by: messages begin with this name */
	/* `-h' alone is --help, which main.c knows. */
	if (argc < 3 || strcmp(argv[1], "run") != 0 || (argc == 3 && !strcmp(argv[2], "-h")))
		return by_commands(argv);
	argv[1] = run_name;
	return cli_end(run_job(argc - 1, argv + 1, run_by_commands));
}
