/*
 * dflock wrap: wrap.h. The command, and the jobs of a crontab: each is text for a shell, so `dflock run` starts that shell with the text in
 * quotes; what stands behind the first % is the job's standard input, and stays where it is.
 */
#include <ctype.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/wrap.h"

static struct wrap wrap;

/* --- a crontab --- */

/* Where the command of a job begins. NULL: the line is none (a comment, a variable). */
static const char *wrap_command(const char *line)
{
	const char *at = line + strspn(line, " \t");
	int fields = *at == '@' ? 1 : 5;

	/* cronie has also ~, a random minute, and - before the minute. */
	if (!isdigit((unsigned char)*at) && (!*at || !strchr("@*~-", *at)))
		return NULL; /* NAME=VALUE, too */
	for (; fields > 0; fields--) {
		at += strcspn(at, " \t");
		at += strspn(at, " \t");
	}
	return *at ? at : NULL;
}

/* The end of the command: the first % that no backslash stands before. */
static const char *wrap_command_end(const char *command)
{
	const char *at;

	for (at = command; *at && *at != '%'; at++)
		if (*at == '\\' && at[1])
			at++;
	return at;
}

static void wrap_job(const char *line, const char *command, const char *shell, FILE *f)
{
	const char *end = wrap_command_end(command);

	fprintf(f, "%.*s%s %s -c '", (int)(command - line), line, wrap.run, shell);
	for (const char *at = command; at < end; at++)
		if (*at == '\'')
			fputs("'\\''", f);
		else
			fputc(*at, f);
	fprintf(f, "'%s\n", end);
}

/* SHELL=... of the crontab, for the jobs behind it. */
static void wrap_shell(const char *line, char shell[PATH_MAX])
{
	const char *at = line + strspn(line, " \t");

	if (strncmp(at, "SHELL", 5) != 0)
		return;
	at += 5 + strspn(at + 5, " \t");
	if (*at != '=')
		return;
	at += 1 + strspn(at + 1, " \t\"'");
	snprintf(shell, PATH_MAX, "%.*s", (int)strcspn(at, " \t\"'"), at);
}

static unsigned wrap_jobs(char *text, FILE *f)
{
	char shell[PATH_MAX] = "/bin/sh", *line;
	unsigned count = 0;

	while ((line = strsep(&text, "\n")) && (*line || text)) {
		const char *command = wrap_command(line);

		wrap_shell(line, shell);
		if (command && !wrap_is_below(command)) {
			wrap_job(line, command, shell, f);
			count++;
		} else {
			fprintf(f, "%s\n", line);
		}
	}
	return count;
}

/* The words that run crontab(1) with this one. cronie lets root alone use -u, also with one's own name. */
static void wrap_words(char *words[5], const char *last)
{
	const struct passwd *own = getuid() ? getpwuid(getuid()) : NULL;
	size_t n = 0;

	words[n++] = (char *)"crontab";
	if (!own || strcmp(own->pw_name, wrap.crontab) != 0) {
		words[n++] = (char *)"-u";
		words[n++] = (char *)wrap.crontab;
	}
	words[n++] = (char *)last;
	words[n] = NULL;
}

/* The difference as diff(1) shows it; or the new crontab is installed by crontab(1), which checks it. */
static int wrap_show(const char *before, const char *after)
{
	char paths[2][64], *diff[] = {(char *)"diff",    (char *)"-u",      (char *)"--label",
				      (char *)"crontab", (char *)"--label", (char *)"crontab below dflock",
				      paths[0],          paths[1],          NULL};
	char *install[5];
	int old = wrap_memfd(before), new = wrap_memfd(after), ret = CLI_FAILED;

	if (old < 0 || new < 0)
		goto out;
	if (wrap.write) {
		wrap_words(install, "-");
		ret = wrap_execute(install, new, -1) ? CLI_FAILED : CLI_OK;
		if (!ret)
			printf("the crontab of %s is changed\n", wrap.crontab);
		goto out;
	}
	snprintf(paths[0], sizeof(paths[0]), "/proc/self/fd/%d", old);
	snprintf(paths[1], sizeof(paths[1]), "/proc/self/fd/%d", new);
	fflush(stdout);
	ret = wrap_execute(diff, -1, -1) > 1 ? CLI_FAILED : CLI_OK;
out:
	if (old >= 0)
		close(old);
	if (new >= 0)
		close(new);
	return ret;
}

static int wrap_crontab(void)
{
	char *words[5], *text, *before, *after = NULL;
	unsigned count = 0;
	int ret = CLI_FAILED;
	size_t len;
	FILE *f;

	wrap_words(words, "-l");
	text = wrap_output(words);
	before = text ? strdup(text) : NULL;
	f = before ? open_memstream(&after, &len) : NULL;
	if (f) {
		count = wrap_jobs(text, f);
		fclose(f);
	}
	if (after && !count) {
		printf("no job of %s's crontab is to be changed\n", wrap.crontab);
		ret = CLI_OK;
	} else if (after) {
		ret = wrap_show(before, after);
	}
	free(after);
	free(before);
	free(text);
	return ret;
}

/* --- the command --- */

static error_t wrap_parse(int key, char *arg, struct argp_state *state)
{
	switch (key) {
	case 'c':
		wrap.crontab = arg;
		return 0;
	case 'r':
		wrap.require = arg ? arg : "";
		if (strpbrk(wrap.require, " \t\n'\"\\$%;&|<>()[]{}*?~#!`"))
			argp_error(state, "--require=%s has a character that units or crontabs read as their own",
				   wrap.require);
		return 0;
	case 'n':
		wrap.net = true;
		return 0;
	case 'w':
		wrap.write = true;
		return 0;
	case ARGP_KEY_ARG:
		if (wrap.unit)
			argp_error(state, "one unit, but got %s, too", arg);
		wrap.unit = arg;
		return 0;
	case ARGP_KEY_END:
		if (!wrap.unit == !wrap.crontab)
			argp_error(state, "it takes a unit, or --crontab=USER");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

int cmd_wrap(int argc, char **argv)
{
	static const struct argp_option known[] = {
		{"crontab", 'c', "USER", 0, "the jobs of this user's crontab", 0},
		{"require", 'r', "FILE", OPTION_ARG_OPTIONAL, "with `dflock run --require', or --require=FILE", 0},
		{"net", 'n', NULL, 0, "with `dflock run --net=on'", 0},
		{"write", 'w', NULL, 0, "make the change, instead of showing it", 0},
		{0}};
	static const struct argp argp = {
		.options = known,
		.parser = wrap_parse,
		.args_doc = "[UNIT]",
		.doc = "Prints what puts a service of systemd below dflock (a drop-in), or the jobs of a crontab (a diff). Nothing is "
		       "changed without --write.\vThe exit status is 0, and 1 where that cannot be made.",
	};
	char program[PATH_MAX];

	argp_parse(&argp, argc, argv, 0, NULL, NULL);
	place_find("dflock", "bin", "dflock", program);
	snprintf(wrap.run, sizeof(wrap.run), "%s run%s%s%s%s --", program, wrap.require ? " --require" : "",
		 wrap.require && *wrap.require ? "=" : "", wrap.require ? wrap.require : "",
		 wrap.net ? " --net=on" : "");
	return wrap.unit ? wrap_service(&wrap) : wrap_crontab();
}
