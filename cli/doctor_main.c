/*
 * dflock-doctor: `dflock check` and `dflock doctor`, the two commands that know TLS; `dflock top`, which draws; and `dflock wrap`, which is
 * used once. A program of its own, since each start of a job by `dflock run` would else map OpenSSL and ncurses, which takes longer than
 * all the rest of that start.
 */
#include <locale.h>
#include <string.h>

#include "cli/cli.h"
#include "procfs/procfs.h"

const char *argp_program_version = "dflock " DFLOCK_VERSION;

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
} commands[] = {
	{"dflock check", cmd_check}, {"dflock doctor", cmd_doctor}, {"dflock top", cmd_top}, {"dflock wrap", cmd_wrap}};

int main(int argc, char **argv)
{
	const char *name = argc > 0 ? argv[0] : "";

	procfs_be_oneself(argv, true);
	setlocale(LC_CTYPE, "");
	argp_err_exit_status = CLI_USAGE;
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (!strcmp(name, commands[i].name))
			return cli_end(commands[i].run(argc, argv));
	cli_error("%s is no command: use `dflock check' or its like", name);
	return CLI_USAGE;
}
