/* See zookeeper.h. */
#include "store/zookeeper/zookeeper.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT "dflock 1\n"
#define STORE  STORE_KEYS "store"
#define HOSTS  STORE_KEYS "hosts"
#define RULES  STORE_KEYS "rules"

/* ---- names and paths ---- */

/* A node's name may be neither "." nor "..", and has no '/' and no control characters. '~' is for the ends of messages. */
char *zk_encode(const char *text)
{
	char *out = store_need(malloc(3 * strlen(text) + 2)), *at = out;

	if (!*text)
		*at++ = '%';
	for (const char *c = text; *c; c++) {
		if (isalnum((unsigned char)*c) || (*c && strchr("_-:@,=+ ", *c)) || (*c == '.' && c != text))
			*at++ = *c;
		else
			at += sprintf(at, "%%%02x", (unsigned char)*c);
	}
	*at = '\0';
	return out;
}

char *zk_decode(const char *name)
{
	char *out = store_need(malloc(strlen(name) + 1)), *at = out;

	for (const char *c = strcmp(name, "%") == 0 ? "" : name; *c; c++) {
		unsigned byte = (unsigned char)*c;

		if (*c == '%') {
			if (!isxdigit((unsigned char)c[1]) || !isxdigit((unsigned char)c[2]) ||
			    sscanf(c + 1, "%2x", &byte) != 1 || !byte) {
				free(out);
				return NULL;
			}
			c += 2;
		}
		*at++ = (char)byte;
	}
	*at = '\0';
	return out;
}

char *zk_path(const char *root, enum zk_kind kind, const char *name)
{
	static const char *const folders[ZK_NODES] = {
		[ZK_STORE] = "store", [ZK_LOCK] = "locks",       [ZK_NAME] = "names",
		[ZK_HOST] = "hosts",  [ZK_MAILBOX] = "messages", [ZK_RULES] = "rules",
		[ZK_RULE] = "rules",  [ZK_TEXT] = "texts",       [ZK_CLOCK] = "clock"};
	bool single = kind == ZK_STORE || kind == ZK_RULES || kind == ZK_CLOCK;
	char *encoded = name && !single ? zk_encode(name) : NULL, *path;

	if (asprintf(&path, "%s/%s%s%s", root, folders[kind], encoded ? "/" : "", encoded ? encoded : "") < 0)
		path = store_need(NULL);
	free(encoded);
	return path;
}

/* ---- cells ---- */

static const char *zk_behind(const char *text, const char *beginning)
{
	size_t len = strlen(beginning);

	return strncmp(text, beginning, len) == 0 ? text + len : NULL;
}

const char *zk_lock_of(const struct query *q)
{
	return q->script >= 0 && scripts[q->script].lock ? zk_behind(q->argv[2], STORE_LOCK_KEY) : NULL;
}

/* common.lua looks for a mark of whatever the second word is, and replay.c for a beat: not every script has a host there. */
static bool zk_is_host(const struct query *q, const char *word)
{
	bool is_other = q->script == SCRIPT_RELEASE || q->script == SCRIPT_SHRINK || q->script == SCRIPT_REST ||
			q->script == SCRIPT_STORE || q->script == SCRIPT_DUMP || q->script == SCRIPT_POST ||
			q->script == SCRIPT_RULES;

	return *word && !(is_other && q->argc > q->keys + 1 && strcmp(q->argv[q->keys + 1], word) == 0);
}

static struct zk_place zk_place_host(const struct query *q, const char *word, const char *tag)
{
	if (!zk_is_host(q, word))
		return (struct zk_place){.kind = ZK_NOTHING};
	return (struct zk_place){ZK_HOST, word, tag};
}

/* Of the record. */
static struct zk_place zk_place_store(const struct query *q, const char *name)
{
	const char *word;

	if (strcmp(name, "*") == 0)
		return (struct zk_place){ZK_ALL, STORE, ""};
	if (*name != '=')
		return (struct zk_place){.kind = ZK_NOTHING};
	if (strcmp(name, "=fence") == 0 && zk_lock_of(q))
		return (struct zk_place){ZK_FENCE, "", ""};
	if ((word = zk_behind(name + 1, STORE_LOCK_KEY)))
		return (struct zk_place){ZK_LOCK, word, "inc"};
	if ((word = zk_behind(name, "=seat:")))
		return zk_place_host(q, word, "seat");
	if ((word = zk_behind(name, "=given:")))
		return zk_place_host(q, word, "given");
	return (struct zk_place){ZK_STORE, "", name + 1};
}

static struct zk_place zk_place_rules(const char *key, const char *name)
{
	const char *digest = zk_behind(key, RULES ":");
	const char *tag = strcmp(name, "!") == 0 ? "till" : "text";

	if (digest)
		return (struct zk_place){ZK_TEXT, digest, tag};
	if (*name == '=')
		return (struct zk_place){ZK_RULE, name + 1, "row"};
	if (*name == '!')
		return (struct zk_place){ZK_RULES, "", "till"};
	return (struct zk_place){ZK_ALL, RULES, ""};
}

struct zk_place zk_place(const struct query *q, const char *key, const char *name)
{
	const char *word;

	if (*name == '>')
		return (struct zk_place){ZK_PAGE, name + 1, ""};
	if (strcmp(key, STORE) == 0)
		return zk_place_store(q, name);
	if (strcmp(key, HOSTS) == 0)
		return *name == '=' ? zk_place_host(q, name + 1, "beat") : (struct zk_place){ZK_ALL, HOSTS, ""};
	if ((word = zk_behind(key, STORE_LOCK_KEY)) && strcmp(name, "$") == 0)
		return (struct zk_place){ZK_LOCK, word, "lock"};
	if (strcmp(key, STORE_RESTS) == 0 && (word = zk_behind(name, "=" STORE_REST_KEY)))
		return zk_behind(word, "flock:")
			       ? (struct zk_place){ZK_LOCK, zk_behind(word, "flock:"), "rest-flock"}
			       : (struct zk_place){ZK_LOCK, zk_behind(word, "record:"), "rest-record"};
	if (zk_behind(key, RULES))
		return zk_place_rules(key, name);
	/* Keys of clients, and what only tries; the rests of all names: SCAN names these, too. */
	return (struct zk_place){.kind = ZK_NOTHING};
}

bool zk_cell(enum zk_kind kind, const char *name, const char *tag, char **key, char **cell)
{
	static const struct {
		enum zk_kind kind;
		const char *tag, *key, *cell;
		bool name_in_key;
	} cells[] = {
		{ZK_LOCK, "lock", STORE_LOCK_KEY, "$", true},
		{ZK_LOCK, "inc", STORE, "=" STORE_LOCK_KEY, false},
		{ZK_LOCK, "rest-flock", STORE_RESTS, "=" STORE_REST_KEY "flock:", false},
		{ZK_LOCK, "rest-record", STORE_RESTS, "=" STORE_REST_KEY "record:", false},
		{ZK_HOST, "beat", HOSTS, "=", false},
		{ZK_HOST, "seat", STORE, "=seat:", false},
		{ZK_HOST, "given", STORE, "=given:", false},
		{ZK_RULES, "till", RULES, "!", false},
		{ZK_RULE, "row", RULES, "=", false},
		{ZK_TEXT, "text", RULES ":", "$", true},
		{ZK_TEXT, "till", RULES ":", "!", true},
	};

	if (kind == ZK_STORE) {
		*key = store_need(strdup(STORE));
		if (asprintf(cell, "=%s", tag) < 0)
			store_need(NULL);
		return true;
	}
	for (size_t i = 0; i < sizeof(cells) / sizeof(*cells); i++)
		if (cells[i].kind == kind && strcmp(cells[i].tag, tag) == 0) {
			if (asprintf(key, "%s%s", cells[i].key, cells[i].name_in_key ? name : "") < 0 ||
			    asprintf(cell, "%s%s", cells[i].cell, cells[i].name_in_key ? "" : name) < 0)
				store_need(NULL);
			return true;
		}
	return false;
}

/* ---- what is in a node ---- */

void zk_write_begin(FILE *f)
{
	fputs(FORMAT, f);
}

void zk_write(FILE *f, const char *tag, const char *value, size_t len)
{
	fprintf(f, "%s %zu\n", tag, len);
	fwrite(value, 1, len, f);
	fputc('\n', f);
}

bool zk_read_begin(struct zk_reader *r, const char *data, int len)
{
	size_t format = strlen(FORMAT);

	*r = (struct zk_reader){.at = data, .end = data + (len > 0 ? len : 0)};
	if (len < (int)format || memcmp(data, FORMAT, format) != 0)
		return false;
	r->at += format;
	return true;
}

int zk_read(struct zk_reader *r)
{
	size_t left = (size_t)(r->end - r->at);
	const char *line = memchr(r->at, '\n', left), *blank = memchr(r->at, ' ', left);
	size_t len = 0;

	if (!left)
		return 0;
	if (!line || !blank || blank > line || (size_t)(blank - r->at) >= sizeof(r->tag))
		return -1;
	for (const char *c = blank + 1; c < line; c++) {
		if (!isdigit((unsigned char)*c) || len > left)
			return -1;
		len = len * 10 + (size_t)(*c - '0');
	}
	snprintf(r->tag, sizeof(r->tag), "%.*s", (int)(blank - r->at), r->at);
	if (blank + 1 == line || len + 1 > (size_t)(r->end - line - 1) || line[1 + len] != '\n')
		return -1;
	r->value = line + 1;
	r->len = len;
	r->at = line + 2 + len;
	return 1;
}
