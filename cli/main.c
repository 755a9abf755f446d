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
	cli_find("dflock-doctor", "libexec", DOCTOR_INSTALLED, path);
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

static const struct command *find_command(const struct argp_state *state, const char *word)
{
	const char *like;

	for (size_t i = 0; i < COMMANDS; i++)
		if (!strcmp(word, commands[i].name))
			return &commands[i];
	like = meant(word);
	if (like)
		argp_error(state, "there is no command %s; did you mean %s?", word, like);
	argp_error(state, "there is no command %s; `dflock help' lists them", word);
	return NULL;
}

struct choice {
	const struct command *command;
	int at; /* where it stands in argv */
};

static error_t choose(int key, char *arg, struct argp_state *state)
{
	struct choice *choice = state->input;

	if (key == 'h' || key == ARGP_KEY_NO_ARGS) {
		argp_state_help(state, key == 'h' ? stdout : stderr,
				ARGP_HELP_SHORT_USAGE | ARGP_HELP_LONG | ARGP_HELP_DOC);
		exit(key == 'h' ? CLI_OK : CLI_USAGE);
	}
	if (key != ARGP_KEY_ARG)
		return ARGP_ERR_UNKNOWN;
	choice->command = find_command(state, arg);
	choice->at = state->next - 1;
	state->next = state->argc; /* the rest is the command's */
	return 0;
}

static const struct argp_option main_known[] = {{NULL, 'h', NULL, OPTION_HIDDEN, NULL, 0}, {0}};
static const struct argp main_argp = {
	.options = main_known,
	.parser = choose,
	.args_doc = "COMMAND [ARGUMENT...]",
	.doc = "Makes the file locks of unmodified programs hold across a cluster.\v",
	.help_filter = list_commands,
};

/* dflock help [COMMAND]: what --help says. */
static int cmd_help(int argc, char **argv)
{
	char own_name[] = "dflock", option[] = "--help";
	char *words[] = {own_name, argc > 1 ? argv[1] : option, argc > 1 ? option : NULL, NULL};
	struct choice choice = {.command = NULL};
	char name[64];

	argp_parse(&main_argp, argc > 1 ? 3 : 2, words, ARGP_IN_ORDER, NULL,
		   &choice); /* without COMMAND this is the end */
	snprintf(name, sizeof(name), "dflock %s", choice.command->name);
	words[choice.at] = name;
	return choice.command->run(argc > 1 && choice.command->run == cmd_help ? 1 : 2, words + choice.at);
}

int main(int argc, char **argv)
{
	struct choice choice = {.command = NULL};
	char own_name[] = "dflock", name[64];

	procfs_be_oneself(argv, true);
	setlocale(LC_CTYPE, "");
	argp_err_exit_status = CLI_USAGE;
	argv[0] = own_name; /* not the path that it was called by: messages begin with this name */
	argp_parse(&main_argp, argc, argv, ARGP_IN_ORDER, NULL, &choice);
	snprintf(name, sizeof(name), "dflock %s", choice.command->name);
	argv[choice.at] = name;
	/* Alone it means the same to all commands. */
	if (argc == choice.at + 2 && !strcmp(argv[argc - 1], "-h"))
		argv[argc - 1] = "--help";
	return cli_end(choice.command->run(argc - choice.at, argv + choice.at));
}
