/* See explain.h. */
#include "store/redis/explain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/rights.h"

/* How the error of a command inside a script begins, before Redis 7.2 and since. */
#define EXPLAIN_IN_SCRIPT     "The user executing the script can't"
#define EXPLAIN_IN_SCRIPT_7_2 "ACL failure in script: "

#define MAX_ELEMENTS (1 << 20)
#define MAX_DEPTH    7

/* ---- the reader ---- */

/*
 * hiredis 0.14 has no limit for the number of elements, and 1.x has none for the depth (freeing a reply is recursive).
 * So its function that makes arrays is wrapped.
 */
#if HIREDIS_MAJOR >= 1
#define ELEMENTS size_t
#else
#define ELEMENTS int
#endif
static redisReplyObjectFunctions bounded;
static void *(*create_array)(const redisReadTask *task, ELEMENTS elements);

static void *create_bounded_array(const redisReadTask *task, ELEMENTS elements)
{
	int depth = 1;

	for (const redisReadTask *t = task->parent; t; t = t->parent)
		depth++;
	return depth > MAX_DEPTH || elements > MAX_ELEMENTS ? NULL : create_array(task, elements);
}

redisReader *reply_reader_new(void)
{
	redisReader *reader = redisReaderCreate();

	if (reader) {
		bounded = *reader->fn;
		create_array = bounded.createArray;
		bounded.createArray = create_bounded_array;
		reader->fn = &bounded;
	}
	return reader;
}

/* ---- INFO ---- */

bool reply_info_field(const char *info, const char *field, char *value, size_t size)
{
	size_t len = strlen(field);

	for (const char *line = info, *end; *line; line = end + (*end == '\n')) {
		end = line + strcspn(line, "\n");
		if (strncmp(line, field, len) != 0 || line[len] != ':')
			continue;
		line += len + 1;
		size_t n = strcspn(line, "\r\n");
		if (n == 0 || n >= size)
			return false;
		memcpy(value, line, n);
		value[n] = '\0';
		return true;
	}
	return false;
}

/* The length of a replica's line up to its state ("slave0:ip=10.0.0.1,port=6379,state=online,..."). 0: the line is not
 * one of a replica. */
static size_t replica_length(const char *line)
{
	const char *state = strstr(line, ",state=");

	if (strncmp(line, "slave", 5) != 0 || line[5] < '0' || line[5] > '9' || !state)
		return 0;
	return state < line + strcspn(line, "\n") ? (size_t)(state - line) : 0;
}

int reply_replicas(const char *info)
{
	struct {
		const char *text;
		size_t len;
	} seen[CONFIG_MAX_REPLICAS + 1];
	int count = 0, same;

	for (const char *line = info, *end; *line && count <= CONFIG_MAX_REPLICAS; line = end + (*end == '\n')) {
		end = line + strcspn(line, "\n");
		size_t len = replica_length(line), number = strcspn(line, ":");
		if (len <= number)
			continue;
		for (same = 0; same < count; same++)
			if (seen[same].len == len - number && memcmp(seen[same].text, line + number, len - number) == 0)
				break;
		seen[same].text = line + number;
		seen[same].len = len - number;
		count += same == count;
	}
	return count;
}

/*
 * The first row whose code begins the error counts. An error inside a script begins with its own code since Redis 7; in
 * older versions the code stands somewhere behind "ERR Error running script".
 */
static const struct {
	const char *code;
	enum reply_error kind;
	const char *advice;
} errors[] = {
	{"NOSCRIPT", REPLY_ERROR_NOSCRIPT, "it has forgotten the scripts"},
	{"NOAUTH", REPLY_ERROR_UNREACHABLE, "set user and password_file in the configuration"},
	{"WRONGPASS", REPLY_ERROR_UNREACHABLE, "correct user and password_file in the configuration"},
	{"ERR invalid password", REPLY_ERROR_UNREACHABLE, "correct password_file in the configuration"},
	{"ERR AUTH", REPLY_ERROR_UNREACHABLE, "it has no password: remove password_file from the configuration"},
	{"ERR Client sent AUTH", REPLY_ERROR_UNREACHABLE,
	 "it has no password: remove password_file from the configuration"},
	{"OOM", REPLY_ERROR_HERE, "the store is out of memory: raise its maxmemory or remove other data"},
	{"WRONGTYPE", REPLY_ERROR_HERE,
	 "something else uses keys that start with \"dflock:\": remove it, or give dflock a database of its own"},
	{"KEYTYPE", REPLY_ERROR_HERE,
	 "redis_key must name a key that is nothing but a lock of redis_key_format: correct it, or remove the key"},
	{"READONLY", REPLY_ERROR_UNREACHABLE, "it is a replica now; without sentinels, set the address of the master"},
	{"ERR WAIT cannot be used", REPLY_ERROR_UNREACHABLE,
	 "it is a replica now; without sentinels, set the address of the master"},
	{"UNBLOCKED", REPLY_ERROR_UNREACHABLE, "it is a replica now; without sentinels, set the address of the master"},
	{"LOADING", REPLY_ERROR_UNREACHABLE, "it is reading its data from disk: wait"},
	{"BUSY", REPLY_ERROR_UNREACHABLE, "another script has been running there for long: stop it with SCRIPT KILL"},
	{"UNKILLABLE", REPLY_ERROR_UNREACHABLE, "another script has been running there for long"},
	{"MASTERDOWN", REPLY_ERROR_UNREACHABLE, "it is a replica without its master: set the address of the master"},
	{"MOVED", REPLY_ERROR_UNREACHABLE, "another node of the cluster has dflock's slot now"},
	{"ASK ", REPLY_ERROR_UNREACHABLE, "dflock's slot is moving to another node of the cluster: wait"},
	{"TRYAGAIN", REPLY_ERROR_UNREACHABLE, "dflock's slot is moving to another node of the cluster: wait"},
	{"ERR Script attempted to access a non local key", REPLY_ERROR_UNREACHABLE,
	 "dflock's slot is moving to another node of the cluster: wait"},
	{"CLUSTERDOWN", REPLY_ERROR_UNREACHABLE,
	 "the cluster lacks slots or masters, or this node is cut off from most of them: see CLUSTER INFO there"},
	{"MISCONF Errors writing to the AOF", REPLY_ERROR_HERE,
	 "it cannot write its append-only file, and refuses renewals, too: its log says why"},
	{"MISCONF", REPLY_ERROR_HERE,
	 "it cannot save its data to disk, and refuses renewals, too: its log says why, and CONFIG SET "
	 "stop-writes-on-bgsave-error no ends that"},
	{"NOREPLICAS", REPLY_ERROR_HERE,
	 "it refuses renewals, too: bring its replicas back, or lower its min-replicas-to-write"},
	{"DENIED", REPLY_ERROR_UNREACHABLE, "it is in protected mode: set a password there, and password_file here"},
	{"ERR max number of clients", REPLY_ERROR_UNREACHABLE, "raise its maxclients"},
	{"ERR DB index", REPLY_ERROR_UNREACHABLE, "correct database in the configuration"},
	{"ERR unknown command", REPLY_ERROR_UNREACHABLE,
	 "it is no Redis 6.2 or newer, or the command was renamed there"},
};

static bool error_is(const char *error, const char *code)
{
	size_t len = strlen(code);

	if (strncmp(error, code, len) == 0)
		return true;
	if (strncmp(error, "ERR Error running script", 24) != 0)
		return false;
	const char *at = strstr(error, code);
	return at && at[len] == ' ' && (at[-1] == ' ' || at[-1] == '-');
}

void reply_quote(char said[REPLY_SAID_BYTES], const char *text)
{
	size_t n = 0;

	for (; text[n] && n + 1 < REPLY_SAID_BYTES; n++)
		said[n] = text[n] >= ' ' && text[n] <= '~' ? text[n] : '?';
	said[n] = '\0';
}

/*
 * A right that the user lacks. Redis names the command ("NOPERM this user has no permissions to run the 'client|setname'
 * command"), or says whether it was about keys or channels. For a command inside a script 7.0 and 6.2 do neither ("ERR The
 * user executing the script can't run this command or subcommand"): then `command` is it. 8.0 says "ERR ACL failure in script:
 * User few has no permissions to run the 'get' command". `said` is printable.
 */
static bool explain_denied(const char *said, const char *command, char line[REPLY_LINE_BYTES])
{
	const char *quote = strstr(said, " the '"), *end = quote ? strchr(quote + 6, '\'') : NULL;
	char right[REPLY_WORD_BYTES + 48] = "some right";

	if (strncmp(said, "NOPERM", 6) != 0 && !strstr(said, EXPLAIN_IN_SCRIPT) && !strstr(said, EXPLAIN_IN_SCRIPT_7_2))
		return false;
	if (strstr(said, " channel"))
		strcpy(right, "the right " RIGHTS_CHANNELS " (or of a redis_key)");
	else if (end && end - quote - 6 < REPLY_WORD_BYTES)
		snprintf(right, sizeof(right), "the right +%.*s", (int)(end - quote - 6), quote + 6);
	else if (strstr(said, " key"))
		strcpy(right, "the right " RIGHTS_KEYS " (or a redis_key)");
	else if (command)
		snprintf(right, sizeof(right), "the right +%s", command);
	snprintf(
		line, REPLY_LINE_BYTES,
		"NOPERM: the user lacks %s (the store says \"%s\"): `dflock doctor --acl` prints the ACL SETUSER command "
		"with all that dflock needs",
		right, said);
	return true;
}

bool reply_denied_line(const char *error, unsigned *line)
{
	const char *at = strstr(error, "@user_script:");

	return strstr(error, EXPLAIN_IN_SCRIPT) && at && sscanf(at, "@user_script:%u", line) == 1;
}

enum reply_error reply_explain(const char *error, char line[REPLY_LINE_BYTES])
{
	return reply_explain_script(error, NULL, line);
}

enum reply_error reply_explain_script(const char *error, const char *command, char line[REPLY_LINE_BYTES])
{
	char said[REPLY_SAID_BYTES];

	reply_quote(said, error);
	if (explain_denied(said, command, line))
		return REPLY_ERROR_HERE;
	for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++) {
		if (!error_is(error, errors[i].code))
			continue;
		snprintf(line, REPLY_LINE_BYTES, "the store says \"%s\": %s", said, errors[i].advice);
		return errors[i].kind;
	}
	snprintf(line, REPLY_LINE_BYTES, "the store says \"%s\": look at its log", said);
	return REPLY_ERROR_HERE;
}

static const char *setting_of(const redisReply *settings, const char *name)
{
	for (size_t i = 0; i + 1 < settings->elements; i += 2)
		if (reply_text(settings, i) && strcmp(reply_text(settings, i), name) == 0 &&
		    reply_text(settings, i + 1))
			return reply_text(settings, i + 1);
	return "";
}

bool reply_explain_settings(const redisReply *settings, const struct config_store *config, char line[REPLY_LINE_BYTES])
{
	int acks = config_acknowledgements(config), least;
	const char *policy;
	bool saves, is_volatile;
	int n = 0;

	*line = '\0';
	if (settings->type != REDIS_REPLY_ARRAY || settings->elements == 0)
		return false;
	saves = strcmp(setting_of(settings, "stop-writes-on-bgsave-error"), "yes") == 0 &&
		*setting_of(settings, "save");
	least = atoi(setting_of(settings, "min-replicas-to-write"));
	policy = setting_of(settings, "maxmemory-policy");
	if (saves)
		n += snprintf(
			line + n, (size_t)(REPLY_LINE_BYTES - n),
			"if it cannot save to disk, it refuses all writes, renewals of leases too, and jobs that hold "
			"locks are frozen: CONFIG SET stop-writes-on-bgsave-error no, and in its configuration file");
	if (least > acks)
		n += snprintf(
			line + n, (size_t)(REPLY_LINE_BYTES - n),
			"%sif it has fewer than %d replicas, it refuses all writes, too: dflock needs %d, lower its "
			"min-replicas-to-write",
			n ? "; " : "", least, acks);
	if (config->shards > 1 && strcmp(setting_of(settings, "cluster-require-full-coverage"), "yes") == 0)
		n += snprintf(
			line + n, (size_t)(REPLY_LINE_BYTES - n),
			"%swhile one master of the cluster is away, the others refuse everything, too: CONFIG SET "
			"cluster-require-full-coverage no, on all nodes",
			n ? "; " : "");
	is_volatile = strncmp(policy, "volatile-", 9) == 0;
	if (is_volatile ? config->keys
			: *policy && strcmp(policy, "noeviction") != 0) /* set since the connection was made */
		snprintf(line + n, (size_t)(REPLY_LINE_BYTES - n),
			 "%sif its memory is short, it drops %s: set its maxmemory-policy to noeviction", n ? "; " : "",
			 is_volatile ? "keys of redis_key" : "leases");
	return true;
}
