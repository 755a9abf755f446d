#include "store/scripts.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* The assembler reads the file. The path is relative to the folder that the compiler runs in: the root of the
 * sources. */
#define EMBED(symbol, file)                                                                                            \
	__asm__(".pushsection .rodata\n"                                                                               \
		".global script_" #symbol "\n"                                                                         \
		".hidden script_" #symbol "\n"                                                                         \
		"script_" #symbol ":\n"                                                                                \
		".incbin \"" file "\"\n"                                                                               \
		".byte 0\n"                                                                                            \
		".popsection\n");                                                                                      \
	extern const char script_##symbol[] __attribute__((visibility("hidden")))

EMBED(common, "store/lua/common.lua");
EMBED(renew, "store/lua/renew.lua");
EMBED(key, "store/lua/key.lua");
EMBED(clashes, "store/lua/clashes.lua");
EMBED(entries, "store/lua/entries.lua");
EMBED(take, "store/lua/take.lua");
EMBED(give, "store/lua/give.lua");
EMBED(acquire, "store/lua/acquire.lua");
EMBED(release, "store/lua/release.lua");
EMBED(shrink, "store/lua/shrink.lua");
EMBED(confirm, "store/lua/confirm.lua");
EMBED(reclaim, "store/lua/reclaim.lua");
EMBED(beat, "store/lua/beat.lua");
EMBED(leave, "store/lua/leave.lua");
EMBED(store, "store/lua/store.lua");
EMBED(hosts, "store/lua/hosts.lua");
EMBED(sweep, "store/lua/sweep.lua");
EMBED(give_up, "store/lua/give_up.lua");
EMBED(rest, "store/lua/rest.lua");
EMBED(dump, "store/lua/dump.lua");
EMBED(post, "store/lua/post.lua");
EMBED(rules, "store/lua/rules.lua");

static const struct {
	const char *name, *text;
	const char *simple; /* the simple cases, which come before the functions that take long to define; or NULL */
	bool renews;        /* it counts as a beat */
	bool lock;          /* ditto, perhaps; KEYS[3] is a lock, KEYS[4] and KEYS[5] name its rests */
	bool binding;       /* store/acks.c */
} scripts[SCRIPTS] = {
	[SCRIPT_ACQUIRE] = {"acquire", script_acquire, .simple = script_take, .lock = true, .binding = true},
	[SCRIPT_RELEASE] = {"release", script_release, .simple = script_give, .lock = true},
	[SCRIPT_SHRINK] = {"shrink", script_shrink, .lock = true},
	[SCRIPT_CONFIRM] = {"confirm", script_confirm, .lock = true, .binding = true},
	[SCRIPT_RECLAIM] = {"reclaim", script_reclaim, .lock = true, .binding = true},
	[SCRIPT_BEAT] = {"beat", script_beat, .renews = true, .binding = true},
	[SCRIPT_LEAVE] = {.name = "leave", .text = script_leave},
	[SCRIPT_STORE] = {"store", script_store, .binding = true},
	[SCRIPT_HOSTS] = {.name = "hosts", .text = script_hosts},
	[SCRIPT_SWEEP] = {"sweep", script_sweep, .lock = true},
	[SCRIPT_GIVE_UP] = {.name = "give_up", .text = script_give_up, .binding = true},
	[SCRIPT_REST] = {"rest", script_rest, .lock = true},
	[SCRIPT_DUMP] = {"dump", script_dump, .lock = true},
	[SCRIPT_POST] = {.name = "post", .text = script_post},
	[SCRIPT_RULES] = {.name = "rules", .text = script_rules},
};

char *script_text(enum script_id id, bool flags)
{
	const char *text = scripts[id].text;
	size_t first = strcspn(text, "\n") + 1; /* each file starts with its flags */
	const char *simple = scripts[id].simple ? scripts[id].simple : "";
	size_t size = strlen(script_common) + strlen(script_renew) + strlen(simple) + strlen(script_clashes) +
		      strlen(script_key) + strlen(script_entries) + strlen(text) + 1;
	char *out = malloc(size);

	if (!out)
		return NULL;
	char *end = out;
	if (flags)
		end = mempcpy(end, text, first);
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

int script_keys(enum script_id id)
{
	return scripts[id].lock ? 5 : 2;
}

bool script_is_binding(enum script_id id)
{
	return scripts[id].binding;
}

const char *script_name(enum script_id id)
{
	return scripts[id].name;
}
