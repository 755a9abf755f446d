#include "cli/cli.h"

#include <errno.h>
#include <limits.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "procfs/procfs.h"

const char *argp_program_version = "dflock " DFLOCK_VERSION;

struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *summary;
};

static int cmd_version(int argc, char **argv)
{
	cli_no_arguments(argc, argv, "Prints the version.");
	puts(argp_program_version);
	return CLI_OK;
}

/* By the program that has TLS (doctor_main.c). It goes by argv[0]. */
static int main_by_doctor(int argc, char **argv)
{
	char path[PATH_MAX];

	(void)argc;
	cli_find("dflock-doctor", "libexec", DOCTOR_INSTALLED, path);
	execv(path, argv);
	cli_error("cannot run %s: %s; install it", path, strerror(errno));
	return CLI_FAILED;
}

static const struct command commands[] = {
	{"run", cmd_run, "run a program so that its locks hold across the cluster"},
	{"lock", cmd_lock, "run a program while a lock without a file is held"},
	{"status", cmd_status, "show which locks are held here and in the cluster, and which callers wait"},
	{"metrics", cmd_metrics, "print what the keeper counts, for Prometheus"},
	{"who", cmd_who, "say which processes hold a lock, on which hosts"},
	{"fence", cmd_fence, "print the fence number of a lock that is held on this host"},
	{"break", cmd_break, "take a lock away from its holders, or give up a host that is off"},
	{"check", main_by_doctor, "check the configuration; say which files it protects"},
	{"doctor", main_by_doctor, "look for what is wrong with the set-up, or with one program"},
	{"reload", cmd_reload, "make the keeper read the configuration again"},
	{"log-level", cmd_log_level, "show or set which lines the keeper logs"},
	{"stop", cmd_stop, "make the keeper give everything back and end"},
	{"init", cmd_init, "open a new store at once, when nothing uses it yet"},
	{"version", cmd_version, "print the version"},
};
#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

static char *list_commands(int key, const char *text, void *input)
{
	char *help = NULL;
	size_t size;
	FILE *f;

	(void)input;
	if (key != ARGP_KEY_HELP_POST_DOC)
		return (char *)text;
	f = open_memstream(&help, &size);
	if (!f)
		return (char *)text;
	fputs("Commands:\n", f);
	for (size_t i = 0; i < COMMANDS; i++)
		fprintf(f, "  %-9s %s\n", commands[i].name, commands[i].summary);
	fputs("\n`dflock COMMAND --help' tells more, and so do dflock(1) and libdflock(7).", f);
	fclose(f);
	return help; /* argp frees it */
}

struct choice {
	const struct command *command;
	int at; /* where it stands in argv */
};

static error_t choose(int key, char *arg, struct argp_state *state)
{
	struct choice *choice = state->input;

	if (key == ARGP_KEY_NO_ARGS) {
		argp_usage(state);
		return 0;
	}
	if (key != ARGP_KEY_ARG)
		return ARGP_ERR_UNKNOWN;
	for (size_t i = 0; i < COMMANDS; i++)
		if (!strcmp(arg, commands[i].name))
			choice->command = &commands[i];
	if (!choice->command)
		argp_error(state, "there is no command %s", arg);
	choice->at = state->next - 1;
	state->next = state->argc; /* the rest is the command's */
	return 0;
}

int main(int argc, char **argv)
{
	static const struct argp argp = {
		.parser = choose,
		.args_doc = "COMMAND [ARGUMENT...]",
		.doc = "Makes the file locks of unmodified programs hold across a cluster.\v",
		.help_filter = list_commands,
	};
	struct choice choice = {.command = NULL};
	char own_name[] = "dflock", name[64];

	procfs_be_oneself(argv, true);
	setlocale(LC_CTYPE, "");
	argp_err_exit_status = CLI_USAGE;
	argv[0] = own_name; /* not the path that it was called by: messages begin with this name */
	argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &choice);
	snprintf(name, sizeof(name), "dflock %s", choice.command->name);
	argv[choice.at] = name;
	return cli_end(choice.command->run(argc - choice.at, argv + choice.at));
}
