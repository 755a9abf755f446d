#include "cli/cli.h"

#include <errno.h>
#include <limits.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/config.h"
#include "procfs/procfs.h"

const char *argp_program_version = "dflock " DFLOCK_VERSION;

#define MATCH_MOST 2 /* letters that may differ */

struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *summary;
};

static int cmd_version(int argc, char **argv)
{
	cli_options(argc, argv, "Prints the version.", NULL, NULL, NULL);
	puts(argp_program_version);
	return CLI_OK;
}

/* By the program that has the large libraries (doctor_main.c). It goes by argv[0]. */
static int main_by_doctor(int argc, char **argv)
{
	char path[PATH_MAX];

	(void)argc;
	place_find("dflock-doctor", "libexec", DOCTOR_INSTALLED, path);
	execv(path, argv);
	cli_error("cannot run %s: %s; install it", path, strerror(errno));
	return CLI_FAILED;
}

static int cmd_help(int argc, char **argv);

static const struct command commands[] = {
	{"run", cmd_run, "run a program so that its locks hold across the cluster"},
	{"lock", cmd_lock, "run a program while a lock without a file is held"},
	{"status", cmd_status, "show which locks are held here and in the cluster, and which callers wait"},
	{"top", main_by_doctor, "show the locks of the cluster on the terminal, with keys to sort, filter and break"},
	{"metrics", cmd_metrics, "print what the keeper counts, for Prometheus"},
	{"who", cmd_who, "say which processes hold a lock, on which hosts"},
	{"fence", cmd_fence, "print the fence number of a lock that is held on this host"},
	{"break", cmd_break, "take a lock away from its holders, or give up a host that is off"},
	{"check", main_by_doctor, "check the configuration; say which files it protects"},
	{"doctor", main_by_doctor, "look for what is wrong with the set-up, or with one program"},
	{"wrap", main_by_doctor, "put a service or a crontab below dflock"},
	{"reload", cmd_reload, "make the keeper read the configuration again"},
	{"log-level", cmd_log_level, "show or set which lines the keeper logs"},
	{"stop", cmd_stop, "make the keeper give everything back and end"},
	{"init", cmd_init, "open a new store at once, when nothing uses it yet"},
	{"version", cmd_version, "print the version"},
	{"help", cmd_help, "this overview, or how a command is used"},
};
#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

static int overview(FILE *f)
{
	fputs("Usage: dflock [OPTION...] COMMAND [ARGUMENT...]\n"
	      "Makes the file locks of unmodified programs hold across a cluster.\n\n"
	      "  -?, --help                 Give this help list\n"
	      "      --usage                Give a short usage message\n"
	      "  -V, --version              Print program version\n\n"
	      "Commands:\n",
	      f);
	for (size_t i = 0; i < COMMANDS; i++)
		fprintf(f, "  %-9s %s\n", commands[i].name, commands[i].summary);
	fputs("\n`dflock COMMAND --help' tells more, and so do dflock(1) and libdflock(7).\n", f);
	return f == stderr ? CLI_USAGE : CLI_OK;
}

/* The command that was probably meant. NULL: none is like the word. */
static const char *meant(const char *word)
{
	const char *found = NULL;
	size_t least = MATCH_MOST + 1;

	for (size_t i = 0; i < COMMANDS; i++) {
		size_t d = config_distance(word, commands[i].name);

		if (d >= least || d >= strlen(commands[i].name))
			continue;
		least = d;
		found = commands[i].name;
	}
	return found;
}

static const struct command *find_command(const char *word)
{
	char own_name[] = "dflock", *own[] = {own_name, NULL}, line[CLI_LINE_BYTES];
	const char *like = meant(word);

	for (size_t i = 0; i < COMMANDS; i++)
		if (!strcmp(word, commands[i].name))
			return &commands[i];
	if (*word == '-')
		snprintf(line, sizeof(line), "unrecognized option '%s'", word);
	else
		snprintf(line, sizeof(line), "there is no command %.200s; %s%s%s", word, like ? "did you mean " : "",
			 like ? like : "`dflock help' lists them", like ? "?" : "");
	cli_misused(own, line);
}

/* argv[0] is the command's word. */
static int run_command(const struct command *command, int argc, char **argv)
{
	static char help[] = "--help", name[64];

	snprintf(name, sizeof(name), "dflock %s", command->name);
	argv[0] = name;
	/* Alone it means the same to all commands. */
	if (argc == 2 && !strcmp(argv[1], "-h"))
		argv[1] = help;
	return command->run(argc, argv);
}

/* dflock help [COMMAND]: what --help says. */
static int cmd_help(int argc, char **argv)
{
	char option[] = "--help", *words[] = {NULL, option, NULL};
	const struct command *command = argc > 1 && strcmp(argv[1], option) != 0 ? find_command(argv[1]) : NULL;

	return command && command->run != cmd_help ? run_command(command, 2, words) : overview(stdout);
}

int main(int argc, char **argv)
{
	const char *word = argc > 1 ? argv[1] : "";

	procfs_be_oneself(argv, true);
	setlocale(LC_CTYPE, "");
	argp_err_exit_status = CLI_USAGE;
	if (argc < 2)
		return cli_end(overview(stderr));
	if (!strcmp(word, "--help") || !strcmp(word, "-?") || !strcmp(word, "-h"))
		return cli_end(overview(stdout));
	if (!strcmp(word, "--usage"))
		return cli_end(puts("Usage: dflock [OPTION...] COMMAND [ARGUMENT...]") < 0);
	if (!strcmp(word, "--version") || !strcmp(word, "-V"))
		return cli_end(puts(argp_program_version) < 0);
	return cli_end(run_command(find_command(word), argc - 1, argv + 1));
}
