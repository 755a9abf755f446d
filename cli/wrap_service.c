/* The drop-in that puts a service below dflock: its ExecStart= with `dflock run` before it, which becomes the program (its pid stays). */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/wrap.h"

#define WRAP_DROPIN_DIR "/etc/systemd/system"
/* systemd reads drop-ins in the order of their names: this one after the override.conf that `systemctl edit` makes. */
#define WRAP_DROPIN     "zz-dflock.conf"
#define WRAP_UNIT_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:-_.\\@"

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

bool wrap_is_below(const char *command)
{
	return strstr(command, "dflock run ") || strstr(command, "dflock lock ");
}

/* One command of the drop-in. False with a line: it cannot be wrapped. */
static bool wrap_start(const struct wrap *w, const char *command, FILE *f)
{
	size_t prefix = strspn(command, "-@:+!|");

	if (memchr(command, '@', prefix)) {
		cli_error(
			"%s: ExecStart=%s gives the program another name (@), which dflock run does not: write the drop-in by hand",
			w->unit, command);
		return false;
	}
	if (wrap_is_below(command)) {
		cli_error("%s is below dflock already: ExecStart=%s", w->unit, command);
		return false;
	}
	fprintf(f, "ExecStart=%.*s%s %s\n", (int)prefix, command, w->run, command + prefix);
	return true;
}

#define WRAP_STARTS 64

/* The commands of the unit that `systemctl cat` shows: of several ExecStart= those after the last empty one count. False with a line:
 * there are too many. */
static bool wrap_starts(const struct wrap *w, char *unit, char *starts[WRAP_STARTS], size_t *count)
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
				cli_error("%s has more than %d ExecStart=: write the drop-in by hand", w->unit,
					  WRAP_STARTS);
				return false;
			}
			starts[(*count)++] = command;
		}
	}
	return true;
}

static bool wrap_dropin(const struct wrap *w, char *unit, FILE *f)
{
	char *starts[WRAP_STARTS];
	size_t count;

	if (!wrap_starts(w, unit, starts, &count))
		return false;
	if (!count) {
		cli_error("%s has no ExecStart=: is it a service?", w->unit);
		return false;
	}
	fputs("# Its locks hold on all hosts: dflock(1). Made by `dflock wrap`; changes of the unit's own ExecStart= must be made here, too.\n"
	      "[Unit]\nWants=dflock.service\nAfter=dflock.service\n\n[Service]\nExecStart=\n",
	      f);
	for (size_t i = 0; i < count; i++)
		if (!wrap_start(w, starts[i], f))
			return false;
	return true;
}

/* Written beside its place first, so that it is there as a whole or not at all. */
static int wrap_write_dropin(const struct wrap *w, const char *text)
{
	char dir[PATH_MAX], path[PATH_MAX + 16], made[PATH_MAX + 16];
	FILE *f;

	snprintf(dir, sizeof(dir), "%s/%s.d", WRAP_DROPIN_DIR, w->unit);
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
	printf("%s is written; now: systemctl daemon-reload && systemctl restart %s\n", path, w->unit);
	return CLI_OK;
}

int wrap_service(const struct wrap *w)
{
	struct wrap whole = *w;
	char unit[NAME_MAX + 16], *words[] = {(char *)"systemctl", (char *)"cat", (char *)"--", unit, NULL};
	char *text, *made = NULL;
	const char *kind;
	size_t len;
	int ret = CLI_FAILED;
	FILE *f;

	if (strspn(w->unit, WRAP_UNIT_CHARS) != strlen(w->unit) || strlen(w->unit) > NAME_MAX) {
		cli_error("\"%s\" is no name of a unit", w->unit);
		return CLI_USAGE;
	}
	/* A name may have other dots (php8.2-fpm). systemctl finds it all the same, but not a drop-in under that name. */
	kind = strrchr(w->unit, '.');
	snprintf(unit, sizeof(unit), "%s%s", w->unit, kind && !strcmp(kind, ".service") ? "" : ".service");
	whole.unit = unit;
	text = wrap_output(words);
	f = text ? open_memstream(&made, &len) : NULL;
	if (f && wrap_dropin(&whole, text, f) && fflush(f) == 0) {
		if (w->write)
			ret = wrap_write_dropin(&whole, made);
		else
			ret = fputs(made, stdout) < 0 ? CLI_FAILED : CLI_OK;
	}
	if (f)
		fclose(f);
	free(made);
	free(text);
	return ret;
}
