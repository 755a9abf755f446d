#include "store/scripts.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define EMBED(name)                 SCRIPTS_EMBED("store/rules/" #name ".lua", name)
#define EMBED_SCRIPT(id, name, ...) EMBED(name)

EMBED(common)
EMBED(renew)
EMBED(key)
EMBED(clashes)
EMBED(entries)
EMBED(take)
EMBED(give)
SCRIPTS_ALL(EMBED_SCRIPT)

const struct script scripts[SCRIPTS] = {
#define SCRIPT_ROW(id, word, ...) [SCRIPT_##id] = {.name = #word, .text = script_##word, __VA_ARGS__},
	SCRIPTS_ALL(SCRIPT_ROW)};

/*
 * "allow-oom" for servers that do not know it: a server that is out of memory refuses a script's first write if that may
 * take memory, and no write behind one that cannot.
 */
#define SCRIPT_ALLOW_OOM "redis.call('HDEL', KEYS[1], '')\n"

char *script_text(enum script_id id, bool flags)
{
	const char *text = scripts[id].text;
	size_t first = strcspn(text, "\n") + 1; /* each file starts with its flags */
	const char *simple = scripts[id].simple ? scripts[id].simple : "";
	size_t size = strlen(script_common) + strlen(script_renew) + strlen(simple) + strlen(script_clashes) +
		      strlen(script_key) + strlen(script_entries) + strlen(text) + sizeof(SCRIPT_ALLOW_OOM);
	char *out = malloc(size);

	if (!out)
		return NULL;
	char *end = out;
	if (flags)
		end = mempcpy(end, text, first);
	else if (memmem(text, first, "allow-oom", strlen("allow-oom"))) /* mutant: script-oom */
		end = stpcpy(end, SCRIPT_ALLOW_OOM);
	end = stpcpy(end, script_common);
	if (scripts[id].renews || scripts[id].lock)
		end = stpcpy(end, script_renew);
	end = stpcpy(end, simple);
	if (scripts[id].lock)
		end = stpcpy(stpcpy(stpcpy(end, script_clashes), script_key), script_entries);
	stpcpy(end, text + first);
	return out;
}

/* The first call in this line of the text. */
static bool script_call(const char *line, char *command, size_t size)
{
	const char *end = line + strcspn(line, "\n");
	const char *call = strstr(line, "redis.call('");
	size_t n = 0;

	if (!call || call > end)
		return false;
	for (call += strlen("redis.call('"); call < end && *call != '\'' && n + 1 < size; call++)
		command[n++] = (char)tolower((unsigned char)*call);
	command[n] = '\0';
	return n > 0;
}

bool script_command(enum script_id id, bool flags, unsigned line, char *command, size_t size)
{
	char *text = script_text(id, flags);
	const char *at = text;
	bool found;

	for (; at && line > 1; line--) {
		at = strchr(at, '\n');
		at = at ? at + 1 : NULL;
	}
	found = at && script_call(at, command, size);
	free(text);
	return found;
}
