/* See script.h. This is no parser of the shell's language: it takes words where commands stand, line by line. */
#include "cli/script.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_TEXT (64u << 10)

static bool is_one_of(const char *word, const char *list)
{
	size_t len = strlen(word);

	for (const char *p = list; len && *p; p += strspn(p, " ")) {
		size_t n = strcspn(p, " ");

		if (n == len && memcmp(p, word, n) == 0)
			return true;
		p += n;
	}
	return false;
}

static const char *base(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

bool script_first_line(int fd, struct script_first *out)
{
	char line[256];
	ssize_t n = pread(fd, line, sizeof(line) - 1, 0);
	size_t start, len;

	if (n < 3 || memcmp(line, "#!", 2))
		return false;
	line[n] = '\0';
	line[strcspn(line, "\n")] = '\0';
	for (len = strlen(line); len > 2 && strchr(" \t\r", line[len - 1]); len--)
		line[len - 1] = '\0';
	start = 2 + strspn(line + 2, " \t");
	len = strcspn(line + start, " \t\r");
	snprintf(out->interpreter, sizeof(out->interpreter), "%.*s", (int)len, line + start);
	start += len + strspn(line + start + len, " \t");
	snprintf(out->argument, sizeof(out->argument), "%s", line + start);
	return out->interpreter[0] != '\0';
}

/* One more word, without its quotes; unknown: it has a part that only the shell can compute. NULL: no more words. */
static const char *take_word(const char *p, char word[SCRIPT_WORD_BYTES], bool *unknown)
{
	size_t used = 0;
	char quote = '\0';

	p += strspn(p, " \t\r");
	*unknown = false;
	if (!*p || strchr("\n;|&(){}<>#", *p))
		return NULL;
	for (; *p && *p != '\n' && (quote || !strchr(" \t\r;|&()<>", *p)); p++) {
		if (*p == quote || (!quote && (*p == '"' || *p == '\''))) {
			quote = quote ? '\0' : *p;
			continue;
		}
		if ((*p == '$' || *p == '`') && quote != '\'')
			*unknown = true;
		if (*p == '\\' && p[1] && p[1] != '\n' && !quote)
			p++;
		if (used < SCRIPT_WORD_BYTES - 1)
			word[used++] = *p;
	}
	word[used] = '\0';
	return p;
}

/* NAME=VALUE */
static bool is_assignment(const char *word)
{
	size_t n = 0;

	while (isalnum((unsigned char)word[n]) || word[n] == '_')
		n++;
	return n && !isdigit((unsigned char)word[0]) && (word[n] == '=' || (word[n] == '+' && word[n + 1] == '='));
}

/* Does this assignment remove the library from LD_PRELOAD? */
static bool is_without_us(const char *word)
{
	return strncmp(word, "LD_PRELOAD=", 11) == 0 && !strstr(word, "LD_PRELOAD}") && !strstr(word, "$LD_PRELOAD") &&
	       !strstr(word, "libdflock");
}

/* Steps over the options of env(1) to the program that it starts, which is then in `word`. Returns what follows. */
static const char *step_over_env(const char *p, char word[SCRIPT_WORD_BYTES], bool *unknown, bool *cleans)
{
	while ((p = take_word(p, word, unknown))) {
		if (is_one_of(word, "- -i --ignore-environment -iS") || is_without_us(word))
			*cleans = true;
		else if (is_one_of(word, "-u --unset -C --chdir")) {
			if (!(p = take_word(p, word, unknown)))
				return NULL;
			*cleans = *cleans || strcmp(word, "LD_PRELOAD") == 0;
		} else if (is_one_of(word, "-uLD_PRELOAD --unset=LD_PRELOAD")) {
			*cleans = true;
		} else if (word[0] != '-' && !is_assignment(word)) {
			return p;
		}
	}
	word[0] = '\0';
	return NULL;
}

bool script_env(const char *argument, char program[SCRIPT_WORD_BYTES], bool *cleans)
{
	bool unknown = false;

	*cleans = false;
	/* Without -S the kernel's one argument is one word to env. */
	if (argument[0] != '-') {
		snprintf(program, SCRIPT_WORD_BYTES, "%s", argument);
		return program[0] && !is_assignment(program);
	}
	if (strncmp(argument, "-S", 2) == 0 && !strchr(" \t", argument[2]))
		argument += 2;
	else if (strncmp(argument, "-iS", 3) == 0)
		*cleans = true, argument += 3;
	else if (strncmp(argument, "-vS", 3) == 0)
		argument += 3;
	return step_over_env(argument, program, &unknown, cleans) && !unknown;
}

bool script_is_shell(const char *interpreter)
{
	return is_one_of(base(interpreter), "sh dash bash ksh ksh93 mksh lksh oksh zsh ash yash posh rbash");
}

/* --- what a shell script starts --- */

#define KEYWORDS "if then else elif fi do done while until ! time esac in"
/* These programs start the command that follows, and leave the environment as it is. */
#define PREFIXES "command builtin nohup nice ionice chrt setsid timeout stdbuf taskset unbuffer eatmydata"
#define SHELLS_OWN                                                                                                     \
	"for case select function return exit set shift cd echo printf read test [ [[ ]] true false : . source local " \
	"declare typeset readonly trap umask ulimit wait eval break continue getopts hash kill pwd type alias "        \
	"unalias shopt "                                                                                               \
	"let pushd popd bg fg jobs times complete compgen enable mapfile readarray dirs disown logout suspend"

/* `word` is the first word of a command. False: the command is of no interest. */
static bool take_command(const char *p, char word[SCRIPT_WORD_BYTES], bool unknown, struct script_command *c)
{
	bool prefixed = false, more;

	for (;;) {
		if (!prefixed && (is_one_of(word, KEYWORDS) || (is_assignment(word) && !is_without_us(word)))) {
			/* goes on with the next word */
		} else if (is_without_us(word)) {
			c->cleans = true;
		} else if (strcmp(word, "exec") == 0) {
			c->exec = true;
		} else if (is_one_of(word, "export unset")) {
			bool unset = word[0] == 'u';

			while ((p = take_word(p, word, &unknown)))
				c->cleans =
					c->cleans || is_without_us(word) || (unset && strcmp(word, "LD_PRELOAD") == 0);
			word[0] = '\0';
			return c->cleans;
		} else if (strcmp(base(word), "env") == 0 && !unknown) {
			if (!(p = step_over_env(p, word, &unknown, &c->cleans)))
				return c->cleans;
			break;
		} else if (is_one_of(base(word), PREFIXES)) {
			prefixed = true;
		} else if (!prefixed || !(word[0] == '-' || isdigit((unsigned char)word[0]))) {
			break;
		}
		if (!(p = take_word(p, word, &unknown))) {
			word[0] = '\0';
			return c->cleans;
		}
	}
	if (p && *p == ')' && !c->exec) /* a pattern of `case` */
		return c->cleans;
	if (p && *p == '(' && p[1] == ')') /* a function */
		return false;
	if (is_one_of(word, SHELLS_OWN) && !unknown)
		return false;
	snprintf(c->program, SCRIPT_WORD_BYTES, "%s", unknown ? "" : word);
	more = unknown;
	for (char option[SCRIPT_WORD_BYTES]; p && (p = take_word(p, option, &more));)
		if (option[0] == '-' && !c->option[0])
			snprintf(c->option, sizeof(c->option), "%s", option);
	return true;
}

/* Where the next command of the line may begin: behind ; | & ( ) { outside of quotes. NULL: there is none. */
static const char *next_command(const char *p)
{
	char quote = '\0';

	for (; *p; p++) {
		if (quote ? *p == quote : (*p == '"' || *p == '\''))
			quote = quote ? '\0' : *p;
		else if (*p == '\\' && p[1])
			p++;
		else if (!quote && *p == '#' && strchr(" \t;", p[-1]))
			return NULL;
		else if (!quote && strchr(";|&({", *p) && p[1] && (p[-1] != '$' || *p == '('))
			return p + 1;
	}
	return NULL;
}

/* "<<WORD", the end of a text in the script: the word, or "". */
static void find_here(const char *line, char word[SCRIPT_WORD_BYTES])
{
	const char *at = strstr(line, "<<");
	bool unknown;

	word[0] = '\0';
	if (!at || at[2] == '<' || at[2] == '=')
		return;
	at += 2 + (at[2] == '-');
	if (!take_word(at, word, &unknown))
		word[0] = '\0';
}

size_t script_commands(int fd, struct script_command *out, size_t room)
{
	char *text = calloc(1, MAX_TEXT + 1), *rest = text, *line, here[SCRIPT_WORD_BYTES] = "";
	ssize_t n = text ? pread(fd, text, MAX_TEXT, 0) : -1;
	size_t count = 0;

	if (n < 0 || strlen(text) != (size_t)n) /* a binary part behind the text: only the text counts */
		n = text ? (ssize_t)strlen(text) : 0;
	for (int number = 1; text && count < room && (line = strsep(&rest, "\n")); number++) {
		if (here[0]) {
			if (strcmp(line + strspn(line, "\t"), here) == 0)
				here[0] = '\0';
			continue;
		}
		line += strspn(line, " \t");
		if (*line == '#')
			continue;
		for (const char *p = line; p && count < room; p = next_command(p)) {
			struct script_command c = {.line = number};
			char word[SCRIPT_WORD_BYTES];
			const char *behind;
			bool unknown;

			p += strspn(p, " \t({|&;!");
			behind = take_word(p, word, &unknown);
			if (behind && take_command(behind, word, unknown, &c))
				out[count++] = c;
			if (!*p)
				break;
		}
		find_here(line, here);
	}
	free(text);
	return count;
}
