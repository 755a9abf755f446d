/* See ruleset.h: the text, and from the text to rules. */
#include "config/ruleset.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RULESET_VERSION "1\n"

static const char *const ruleset_kinds[] = {
	[PAGE_RULE_PATH] = "path", [PAGE_RULE_GLOB] = "glob", [PAGE_RULE_TREE] = "tree"};
#define RULESET_KINDS (sizeof(ruleset_kinds) / sizeof(*ruleset_kinds))

/* ---- to text ---- */

static void ruleset_write_word(FILE *f, const char *word)
{
	for (; *word; word++)
		if (*word > ' ' && *word <= '~' && *word != '%')
			fputc(*word, f);
		else
			fprintf(f, "%%%02X", (unsigned char)*word);
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

		fprintf(f, "%s %zu ", ruleset_kinds[rule->kind], rule->fixed_len);
		ruleset_write_word(f, rule->pattern);
		fputc(' ', f);
		ruleset_write_word(f, rule->name);
		if (rule->redis_key) {
			fputc(' ', f);
			ruleset_write_word(f, rule->redis_key);
		}
		fputc('\n', f);
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

static int hex_digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Copies the word at *text up to the byte `end`, which must follow, and moves *text behind that. At most size - 1 bytes;
 * none of them is NUL. */
static bool ruleset_read_word(const char **text, char end, char *out, size_t size)
{
	const char *p = *text;
	size_t len = 0;

	while (*p > ' ' && *p <= '~') {
		int high, low;

		if (len + 1 >= size)
			return false;
		if (*p != '%') {
			out[len++] = *p++;
			continue;
		}
		high = hex_digit(p[1]);
		low = high < 0 ? -1 : hex_digit(p[2]);
		if (low < 0 || high + low == 0)
			return false;
		out[len++] = (char)(high * 16 + low);
		p += 3;
	}
	out[len] = '\0';
	*text = p + 1;
	return *p == end;
}

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

static int ruleset_read_rule(const char **text, struct rule *rule)
{
	char kind[8], fixed[8], pattern[PATH_MAX], name[LOCK_NAME_BYTES], key[CONFIG_KEY_BYTES + 16], *end;
	const char *at;
	size_t k = 0;

	if (!ruleset_read_word(text, ' ', kind, sizeof(kind)) || !ruleset_read_word(text, ' ', fixed, sizeof(fixed)) ||
	    !ruleset_read_word(text, ' ', pattern, sizeof(pattern)))
		return -EINVAL;
	at = *text;
	*key = '\0';
	if (!ruleset_read_word(text, '\n', name, sizeof(name))) {
		*text = at;
		if (!ruleset_read_word(text, ' ', name, sizeof(name)) ||
		    !ruleset_read_word(text, '\n', key, sizeof(key)) || !ruleset_is_key(key))
			return -EINVAL;
	}
	while (k < RULESET_KINDS && strcmp(kind, ruleset_kinds[k]) != 0)
		k++;
	if (k == RULESET_KINDS || fixed[0] < '0' || fixed[0] > '9')
		return -EINVAL;
	rule->kind = (enum page_rule_kind)k;
	rule->fixed_len = strtoul(fixed, &end, 10);
	if (*end || !ruleset_is_sound(rule, pattern))
		return -EINVAL;
	rule->pattern = strdup(pattern);
	rule->name = strdup(name);
	rule->redis_key = *key ? strdup(key) : NULL;
	return rule->pattern && rule->name && (rule->redis_key || !*key) ? 0 : -ENOMEM;
}

/* `text` ends with NUL. */
static int ruleset_read(const char *text, struct config *config)
{
	size_t lines = 0;
	int ret = 0;

	if (strncmp(text, RULESET_VERSION, strlen(RULESET_VERSION)) != 0)
		return -EINVAL;
	text += strlen(RULESET_VERSION);
	for (const char *p = text; *p; p++)
		lines += *p == '\n';
	config->rules = calloc(lines + 1, sizeof(*config->rules));
	if (!config->rules)
		return -ENOMEM;
	while (*text && ret == 0) {
		if (config->rule_count == lines)
			return -EINVAL; /* the last line has no end */
		ret = ruleset_read_rule(&text, &config->rules[config->rule_count++]);
	}
	return ret;
}

int ruleset_parse(const char *text, size_t len, struct config **out)
{
	char *copy;
	int ret;

	*out = NULL;
	if (len >= RULESET_BYTES || memchr(text, '\0', len))
		return -EINVAL;
	copy = strndup(text, len);
	*out = calloc(1, sizeof(**out));
	ret = copy && *out ? ruleset_read(copy, *out) : -ENOMEM;
	free(copy);
	if (ret == 0)
		return 0;
	config_free(*out);
	*out = NULL;
	return ret;
}
