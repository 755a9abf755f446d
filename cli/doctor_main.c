/*
 * dflock-doctor: `dflock check` and `dflock doctor`, the two commands that know TLS, and `dflock top`, which draws. A program of its own,
 * since each start of a job by `dflock run` would else map OpenSSL and ncurses, which takes longer than all the rest of that start.
 */
#include <locale.h>
#include <string.h>

#include "cli/cli.h"
#include "procfs/procfs.h"

const char *argp_program_version = "dflock " DFLOCK_VERSION;

int main(int argc, char **argv)
{
	const char *name = argc > 0 ? argv[0] : "";

	procfs_be_oneself(argv, true);
	setlocale(LC_CTYPE, "");
	argp_err_exit_status = CLI_USAGE;
	if (!strcmp(name, "dflock check"))
		return cli_end(cmd_check(argc, argv));
	if (!strcmp(name, "dflock doctor"))
		return cli_end(cmd_doctor(argc, argv));
	if (!strcmp(name, "dflock top"))
		return cli_end(cmd_top(argc, argv));
	cli_error("%s is no command: use `dflock check', `dflock doctor' or `dflock top'", name);
	return CLI_USAGE;
}
