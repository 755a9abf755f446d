/* See ruleset.h: the text, and from the text to rules. */
#include "config/ruleset.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/internal.h"

#define RULESET_VERSION "2\n"

static const char *const ruleset_kinds[] = {
	[PAGE_RULE_PATH] = "path", [PAGE_RULE_GLOB] = "glob", [PAGE_RULE_TREE] = "tree"};
#define RULESET_KINDS (sizeof(ruleset_kinds) / sizeof(*ruleset_kinds))

/* ---- to text ---- */

/* A byte that is none of text would end a word: what it stands for in a path is compared as '?'. */
static void ruleset_write_word(FILE *f, const char *word, char end)
{
	for (; *word; word++)
		fputc((unsigned char)*word < ' ' ? '?' : *word, f);
	fputc(end, f);
}

char *ruleset_text(const struct config *config)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);
	bool good;

	if (!f)
		return NULL;
	fputs(RULESET_VERSION, f);
	for (size_t i = 0; i < config->rule_count; i++) {
		const struct rule *rule = &config->rules[i];

		fprintf(f, "%s\t%zu\t", ruleset_kinds[rule->kind], rule->fixed_len);
		ruleset_write_word(f, rule->pattern, '\t');
		ruleset_write_word(f, rule->name, '\t');
		ruleset_write_word(f, rule->redis_key ? rule->redis_key : "", rule->store ? '\t' : '\n');
		if (rule->store)
			ruleset_write_word(f, config->stores[rule->store].name, '\n');
	}
	good = !ferror(f);
	if (fclose(f) != 0 || !good) {
		free(text);
		return NULL;
	}
	return text;
}

/* FNV-1a. Two texts that differ by accident have the same digest once in 2^64 times, and then two hosts are not
 * compared. */
void ruleset_digest(const char *text, char digest[RULESET_DIGEST_BYTES])
{
	uint64_t hash = UINT64_C(14695981039346656037);

	for (; *text; text++)
		hash = (hash ^ (unsigned char)*text) * UINT64_C(1099511628211);
	snprintf(digest, RULESET_DIGEST_BYTES, "%016" PRIx64, hash);
}

/* ---- from text ---- */

/* The fixed part must be a part of the paths that the pattern matches: config_lock_name() counts on it. */
static bool ruleset_is_sound(const struct rule *rule, const char *pattern)
{
	size_t len = strlen(pattern), skipped = 0;

	if (pattern[0] != '/')
		return false;
	if (rule->kind == PAGE_RULE_PATH)
		return rule->fixed_len == len;
	if (rule->kind == PAGE_RULE_TREE)
		return rule->fixed_len == (len == 1 ? 0 : len);
	for (; skipped < rule->fixed_len; skipped++, pattern++) {
		if (*pattern == '\\')
			pattern++;
		else if (strchr("*?[", *pattern))
			return false;
		if (!*pattern)
			return false;
	}
	return *pattern == '/';
}

static bool ruleset_is_key(const char *key)
{
	return (strncmp(key, "string ", 7) == 0 && key[7]) || (strncmp(key, "redisson ", 9) == 0 && key[9]);
}

/* `line` changes, and lives as long as the configuration. */
static int ruleset_read_rule(char *line, struct config *config, struct rule *rule)
{
	char *words[6], *end;
	size_t k = 0;

	for (size_t i = 0; i < 6; i++)
		words[i] = strsep(&line, "\t");
	if (!words[4] || line || !*words[1] || strlen(words[1]) > 7 || strlen(words[2]) >= PATH_MAX ||
	    strlen(words[3]) >= LOCK_NAME_BYTES || (*words[4] && !ruleset_is_key(words[4])))
		return -EINVAL;
	while (k < RULESET_KINDS && strcmp(words[0], ruleset_kinds[k]) != 0)
		k++;
	rule->kind = (enum page_rule_kind)k;
	rule->fixed_len = strtoul(words[1], &end, 10);
	if (k == RULESET_KINDS || *end || !ruleset_is_sound(rule, words[2]))
		return -EINVAL;
	rule->store = words[5] ? (unsigned)stores_find(config, words[5]) : 0;
	if (rule->store >= CONFIG_MAX_MEMBERS)
		return -EINVAL;
	if (rule->store >= config->store_count && !stores_add(config, words[5]))
		return -ENOMEM;
	rule->pattern = strdup(words[2]);
	rule->name = strdup(words[3]);
	rule->redis_key = *words[4] ? strdup(words[4]) : NULL;
	return rule->pattern && rule->name && (rule->redis_key || !*words[4]) ? 0 : -ENOMEM;
}

/* `text` ends with NUL, and changes. */
static int ruleset_read(char *text, struct config *config)
{
	size_t lines = 0;
	int ret = 0;

	if (strncmp(text, RULESET_VERSION, strlen(RULESET_VERSION)) != 0 || text[strlen(text) - 1] != '\n')
		return -EINVAL;
	text += strlen(RULESET_VERSION);
	for (const char *p = text; *p; p++)
		lines += *p == '\n';
	config->rules = calloc(lines + 1, sizeof(*config->rules));
	if (!config->rules || !stores_add(config, ""))
		return -ENOMEM;
	while (*text && ret == 0)
		ret = ruleset_read_rule(strsep(&text, "\n"), config, &config->rules[config->rule_count++]);
	return ret;
}

int ruleset_parse(const char *text, size_t len, struct config **out)
{
	int ret;

	*out = NULL;
	if (len >= RULESET_BYTES || memchr(text, '\0', len))
		return -EINVAL;
	*out = calloc(1, sizeof(**out));
	if (*out)
		(*out)->text = strndup(text, len); /* which the names of the stores are in */
	ret = *out && (*out)->text ? ruleset_read((*out)->text, *out) : -ENOMEM;
	if (ret == 0)
		return 0;
	config_free(*out);
	*out = NULL;
	return ret;
}
