/*
 * dflock wrap: what puts a service or the jobs of a crontab below dflock: a drop-in for systemd, or the changed crontab as a diff. It
 * changes nothing without --write.
 *
 * A service is wrapped by its ExecStart= with `dflock run` before it, which becomes the program (its pid stays). A job of a crontab is text
 * for a shell, so `dflock run` starts that shell with the text in quotes; what stands behind the first % is the job's standard input, and
 * stays where it is.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
#include "wire/memfd.h"

#define WRAP_DROPIN_DIR "/etc/systemd/system"
/* systemd goes by the order of names: behind override.conf, which `systemctl edit' makes. */
#define WRAP_DROPIN     "zz-dflock.conf"
#define WRAP_UNIT_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:-_.\\@"

static struct wrap {
	const char *unit, *crontab; /* one of them */
	const char *require;        /* NULL: without; "": no FILE */
	bool net, write;
	char run[2 * PATH_MAX + 64]; /* "PATH/dflock run ... --" */
} wrap;

extern char **environ;

/* --- other programs --- */

/* Runs a program with these descriptors (-1: ours). Its exit status; 127 with a line if it cannot be run. */
static int wrap_execute(char *const words[], int in, int out)
{
	posix_spawn_file_actions_t actions;
	int ret, status = 0;
	pid_t pid;

	posix_spawn_file_actions_init(&actions);
	if (in >= 0)
		posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
	if (out >= 0)
		posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
	ret = posix_spawnp(&pid, words[0], &actions, NULL, words, environ);
	posix_spawn_file_actions_destroy(&actions);
	if (ret) {
		cli_error("cannot run %s: %s", words[0], strerror(ret));
		return CLI_RUN_NOT_FOUND;
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : CLI_RUN_FAILED;
}

/* A descriptor at the beginning of this text, or with NULL of an empty file. -1 with a line. */
static int wrap_memfd(const char *text)
{
	int fd = memfd_make("dflock-wrap", 0);
	size_t len = text ? strlen(text) : 0;

	if (fd >= 0 && len && (write(fd, text, len) != (ssize_t)len || lseek(fd, 0, SEEK_SET) != 0)) {
		close(fd);
		fd = -1;
	}
	if (fd < 0)
		cli_error("no memory is left: %s", strerror(errno));
	return fd;
}

/* What a program prints; the caller frees it. NULL with a line, the program's own if it fails. */
static char *wrap_output(char *const words[])
{
	int fd = wrap_memfd(NULL);
	char *text = NULL;
	struct stat st;

	if (fd < 0)
		return NULL;
	if (wrap_execute(words, -1, fd) == 0 && fstat(fd, &st) == 0 && (text = calloc(1, (size_t)st.st_size + 1)) &&
	    pread(fd, text, (size_t)st.st_size, 0) != st.st_size) {
		free(text);
		text = NULL;
	}
	close(fd);
	return text;
}

/* --- a service --- */

#define WRAP_BLANKS " \t\r"

/* Does the line go on in the next one? */
static bool wrap_goes_on(const char *line, size_t len)
{
	size_t backslashes = 0;

	while (backslashes < len && line[len - 1 - backslashes] == '\\')
		backslashes++;
	return backslashes % 2;
}

/* The next setting of a unit's file, cut out of *text and put together as systemd does: comments may stand between the lines of one,
 * and do not go on themselves. NULL: no more. */
static char *wrap_line(char **text)
{
	char *line = NULL, *end = NULL, *part;

	while ((part = strsep(text, "\n"))) {
		size_t len;

		part += strspn(part, WRAP_BLANKS);
		if (*part == '#' || *part == ';')
			continue;
		len = strcspn(part, "\r");
		if (!line)
			line = end = part;
		memmove(end, part, len);
		end += len;
		*end = '\0';
		if (!wrap_goes_on(line, (size_t)(end - line)))
			break;
		end[-1] = ' ';
	}
	return line;
}

/* The value of an ExecStart=. NULL: the line is none. */
static char *wrap_value(char *line)
{
	static const char name[] = "ExecStart";

	if (strncmp(line, name, sizeof(name) - 1) != 0)
		return NULL;
	line += sizeof(name) - 1;
	line += strspn(line, WRAP_BLANKS);
	return *line == '=' ? line + 1 + strspn(line + 1, WRAP_BLANKS) : NULL;
}

/* Behind the word that begins there, with its quotes. */
static char *wrap_word_end(char *at)
{
	char quote = '\0';

	for (; *at && (quote || !strchr(WRAP_BLANKS, *at)); at++)
		if (*at == '\\' && at[1])
			at++;
		else if (quote ? *at == quote : *at == '"' || *at == '\'')
			quote = quote ? '\0' : *at;
	return at;
}

/* The next command of an ExecStart=, cut out of *value: between two of them stands a word of one semicolon. NULL: no more. */
static char *wrap_next(char **value)
{
	char *command = *value, *at = command, *end;

	for (; *at; at = end + strspn(end, WRAP_BLANKS)) {
		end = wrap_word_end(at);
		if (*at != ';' || end != at + 1)
			continue;
		*at = '\0';
		*value = end + strspn(end, WRAP_BLANKS);
		return command;
	}
	*value = at;
	return *command ? command : NULL;
}

/* One command of the drop-in. False with a line: it cannot be wrapped. */
static bool wrap_start(const char *command, FILE *f)
{
	size_t prefix = strspn(command, "-@:+!|");

	if (memchr(command, '@', prefix)) {
		cli_error(
			"%s: ExecStart=%s gives the program another name (@), which dflock run does not: write the drop-in by hand",
			wrap.unit, command);
		return false;
	}
	if (strstr(command, "dflock run ")) {
		cli_error("%s is below dflock already: ExecStart=%s", wrap.unit, command);
		return false;
	}
	fprintf(f, "ExecStart=%.*s%s %s\n", (int)prefix, command, wrap.run, command + prefix);
	return true;
}

#define WRAP_STARTS 64

/* The commands of the unit that `systemctl cat` shows: of several ExecStart= those after the last empty one count. False with a line:
 * there are too many. */
static bool wrap_starts(char *unit, char *starts[WRAP_STARTS], size_t *count)
{
	bool service = false;
	char *line, *value, *command;

	*count = 0;
	while ((line = wrap_line(&unit))) {
		if (*line == '[')
			service = !strncmp(line, "[Service]", 9);
		value = service ? wrap_value(line) : NULL;
		if (value && !*value)
			*count = 0;
		while (value && (command = wrap_next(&value))) {
			if (*count == WRAP_STARTS) {
				cli_error("%s has more than %d ExecStart=: write the drop-in by hand", wrap.unit,
					  WRAP_STARTS);
				return false;
			}
			starts[(*count)++] = command;
		}
	}
	return true;
}

static bool wrap_dropin(char *unit, FILE *f)
{
	char *starts[WRAP_STARTS];
	size_t count;

	if (!wrap_starts(unit, starts, &count))
		return false;
	if (!count) {
		cli_error("%s has no ExecStart=: is it a service?", wrap.unit);
		return false;
	}
	fputs("# Its locks hold on all hosts: dflock(1). Made by `dflock wrap`; changes of the unit's own ExecStart= must be made here, too.\n"
	      "[Unit]\nWants=dflock.service\nAfter=dflock.service\n\n[Service]\nExecStart=\n",
	      f);
	for (size_t i = 0; i < count; i++)
		if (!wrap_start(starts[i], f))
			return false;
	return true;
}

/* Written beside its place first, so that it is there as a whole or not at all. */
static int wrap_write_dropin(const char *text)
{
	char dir[PATH_MAX], path[PATH_MAX + 16], made[PATH_MAX + 16];
	FILE *f;

	snprintf(dir, sizeof(dir), "%s/%s.d", WRAP_DROPIN_DIR, wrap.unit);
	snprintf(path, sizeof(path), "%s/" WRAP_DROPIN, dir);
	snprintf(made, sizeof(made), "%s/.dflock.new", dir);
	if (mkdir(dir, 0755) < 0 && errno != EEXIST) {
		cli_error("cannot make %s: %s", dir, strerror(errno));
		return CLI_FAILED;
	}
	f = fopen(made, "we");
	if (!f || fputs(text, f) < 0 || fclose(f) != 0 || rename(made, path) < 0) {
		cli_error("cannot write %s: %s", path, strerror(errno));
		unlink(made);
		return CLI_FAILED;
	}
	printf("%s is written; now: systemctl daemon-reload && systemctl restart %s\n", path, wrap.unit);
	return CLI_OK;
}

static int wrap_service(void)
{
	char unit[NAME_MAX + 16], *words[] = {(char *)"systemctl", (char *)"cat", (char *)"--", unit, NULL};
	char *text, *made = NULL;
	const char *kind;
	size_t len;
	int ret = CLI_FAILED;
	FILE *f;

	if (strspn(wrap.unit, WRAP_UNIT_CHARS) != strlen(wrap.unit) || strlen(wrap.unit) > NAME_MAX) {
		cli_error("\"%s\" is no name of a unit", wrap.unit);
		return CLI_USAGE;
	}
	/* A name may have other dots (php8.2-fpm). systemctl finds it all the same, but not a drop-in under that name. */
	kind = strrchr(wrap.unit, '.');
	snprintf(unit, sizeof(unit), "%s%s", wrap.unit, kind && !strcmp(kind, ".service") ? "" : ".service");
	wrap.unit = unit;
	text = wrap_output(words);
	f = text ? open_memstream(&made, &len) : NULL;
	if (f && wrap_dropin(text, f) && fflush(f) == 0) {
		if (wrap.write)
			ret = wrap_write_dropin(made);
		else
			ret = fputs(made, stdout) < 0 ? CLI_FAILED : CLI_OK;
	}
	if (f)
		fclose(f);
	free(made);
	free(text);
	return ret;
}

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
		if (command && !strstr(command, "dflock run ") && !strstr(command, "dflock lock ")) {
			wrap_job(line, command, shell, f);
			count++;
		} else {
			fprintf(f, "%s\n", line);
		}
	}
	return count;
}

/* The difference as diff(1) shows it; or the new crontab is installed by crontab(1), which checks it. */
static int wrap_show(const char *before, const char *after)
{
	char paths[2][64], *diff[] = {(char *)"diff",    (char *)"-u",      (char *)"--label",
				      (char *)"crontab", (char *)"--label", (char *)"crontab below dflock",
				      paths[0],          paths[1],          NULL};
	char *install[] = {(char *)"crontab", (char *)"-u", (char *)wrap.crontab, (char *)"-", NULL};
	int old = wrap_memfd(before), new = wrap_memfd(after), ret = CLI_FAILED;

	if (old < 0 || new < 0)
		goto out;
	if (wrap.write) {
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
	char *words[] = {(char *)"crontab", (char *)"-u", (char *)wrap.crontab, (char *)"-l", NULL};
	char *text = wrap_output(words), *before = text ? strdup(text) : NULL, *after = NULL;
	unsigned count = 0;
	int ret = CLI_FAILED;
	size_t len;
	FILE *f = before ? open_memstream(&after, &len) : NULL;

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
	return wrap.unit ? wrap_service() : wrap_crontab();
}
