/*
 * Random calls of the rules in a Redis server, and elsewhere: the answers and messages must be the same. Time and identity are told to both.
 * Whoever includes this says what is the other one's own:
 */
#ifndef DFLOCK_TESTS_UNIT_RANDOM_CALLS_H
#define DFLOCK_TESTS_UNIT_RANDOM_CALLS_H

#include "store/internal.h"
#include "tests/unit/redis_server.h"
#include "tests/unit/suite.h"

struct call;

/* Runs the call there: the answer, " |", and the messages as " ( CHANNEL TEXT )". */
static void elsewhere(const struct call *c, char *text);
/* Redis' messages, as the other one passes them on. */
static void hears_elsewhere(char *text);
/* The other one is another memory from now on, which told_identity says. */
static void forget_elsewhere(void);

#define WORDS 64

/* Time and identity are told, keys expire by that time, and what is published comes with the answer. */
static const char before[] =
	"local TOLD, real, said = {table.remove(ARGV), table.remove(ARGV), table.remove(ARGV)}, redis, {}\n"
	"local now = TOLD[3] * 1000 + math.floor(TOLD[2] / 1000)\n"
	"local redis = {error_reply = redis.error_reply, pcall = redis.pcall, call = function(command, ...)\n"
	"	if command == 'TIME' then return {TOLD[3], TOLD[2]} end\n"
	"	if command == 'INFO' then return 'role:master\\r\\nmaster_replid:' .. TOLD[1] .. '\\r\\n' end\n"
	"	if command == 'PUBLISH' then said[#said + 1] = {...} return 0 end\n"
	"	if command == 'PTTL' then return (real.call('HGET', 'till', ...) or now - 1) - now end\n"
	"	if command == 'PEXPIRE' then return real.call('HSET', 'till', (...), now + select(2, ...)) end\n"
	"	return real.call(command, ...)\n"
	"end}\n"
	"local function body()\n";
static const char expire[] =
	"for _, key in ipairs(redis.call('HKEYS', 'till')) do\n"
	"	if redis.call('HGET', 'till', key) <= ARGV[1] then redis.call('DEL', key) redis.call('HDEL', 'till', key) end\n"
	"end\n";
static const char after[] = "\nend\nreturn {body(), said}\n";

static struct redis_server calls_server;
static redisContext *redis;
static char *texts[SCRIPTS];
static char incarnation[STORE_INC_BYTES];
static int64_t told_us;
static char told_identity[128];

static void calls_prepare(void)
{
	redis_server_prepare(&calls_server);
	redis_server_start(&calls_server);
}

static void calls_remove(void) { redis_server_remove(&calls_server); }

static void calls_begin(void)
{
	redis = redis_server_connect(&calls_server);
	freeReplyObject(redisCommand(redis, "FLUSHALL"));
	told_us = INT64_C(1750000000) * 1000000;
	strcpy(told_identity, "a1");
	incarnation[0] = '\0';
	for (int id = 0; id < SCRIPTS; id++) {
		char *text = script_text((enum script_id)id, true);
		int first = (int)strcspn(text, "\n") + 1;

		ck_assert_int_gt(asprintf(&texts[id], "%.*s%s%s%s", first, text, before, text + first, after), 0);
		free(text);
	}
}

static void calls_end(void)
{
	redisFree(redis);
	for (int id = 0; id < SCRIPTS; id++)
		free(texts[id]);
}

/* ---- a call ---- */

struct call {
	int script, keys, argc;
	char *argv[WORDS];
};

static void add(struct call *c, const char *word)
{
	ck_assert_int_lt(c->argc, WORDS - 8);
	c->argv[c->argc++] = strdup(word);
}

__attribute__((format(printf, 2, 3))) static void addf(struct call *c, const char *format, ...)
{
	char word[1200];
	va_list args;

	va_start(args, format);
	vsnprintf(word, sizeof(word), format, args);
	va_end(args);
	add(c, word);
}

/* The words end with NULL. */
static void add_all(struct call *c, ...)
{
	va_list args;

	va_start(args, c);
	for (const char *word; (word = va_arg(args, const char *));)
		add(c, word);
	va_end(args);
}

static void make(struct call *c, enum script_id script, const char *name)
{
	*c = (struct call){.script = (int)script};
	add_all(c, "dflock:{0}:store", "dflock:{0}:hosts", NULL);
	if (scripts[script].lock) {
		addf(c, "dflock:{0}:lock:%s", name);
		addf(c, "dflock:{0}:rest:flock:%s", name);
		addf(c, "dflock:{0}:rest:record:%s", name);
	}
	c->keys = c->argc;
	add(c, incarnation);
}

static void forget(struct call *c)
{
	for (int i = 0; i < c->argc; i++)
		free(c->argv[i]);
}

/* ---- in the server: the answer and the messages as words ---- */

#define TEXT_BYTES 262144
static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* The order of a hash's fields is nobody's: lists of hosts are compared as sets of words. */
static void sort_words(char *text)
{
	static char *words[20000], sorted[TEXT_BYTES];
	size_t n = 0, used = 0;

	for (char *word = strtok(text, " "); word; word = strtok(NULL, " "))
		words[n++] = word;
	qsort(words, n, sizeof(*words), by_text);
	for (size_t i = 0; i < n; i++)
		used += (size_t)snprintf(sorted + used, sizeof(sorted) - used, "%s ", words[i]);
	sorted[used] = '\0';
	strcpy(text, sorted);
}

static void say(char *text, const redisReply *r)
{
	size_t used = strlen(text);

	if (r->type == REDIS_REPLY_ARRAY) {
		strcpy(text + used, " (");
		for (size_t i = 0; i < r->elements; i++)
			say(text, r->element[i]);
		strcat(text, " )");
	} else if (r->type == REDIS_REPLY_INTEGER) {
		sprintf(text + used, " %lld", r->integer);
	} else if (r->type == REDIS_REPLY_ERROR) {
		strcat(text, " an error");
	} else {
		sprintf(text + used, " %s", r->str ? r->str : "nil");
	}
}

static void in_server(const struct call *c, char *text)
{
	const char *argv[WORDS + 8] = {"EVAL", texts[c->script]};
	char keys[12], sec[24], usec[24];
	int argc = 2;

	snprintf(keys, sizeof(keys), "%d", c->keys);
	argv[argc++] = keys;
	for (int i = 0; i < c->argc; i++)
		argv[argc++] = c->argv[i];
	snprintf(sec, sizeof(sec), "%lld", (long long)told_us / 1000000);
	snprintf(usec, sizeof(usec), "%lld", (long long)told_us % 1000000);
	argv[argc++] = sec;
	argv[argc++] = usec;
	argv[argc++] = told_identity;
	freeReplyObject(redisCommand(redis, "EVAL %s 0 %lld", expire, (long long)told_us / 1000));
	redisReply *reply = redisCommandArgv(redis, argc, argv, NULL);
	ck_assert_msg(reply != NULL, "%s", redis->errstr);
	text[0] = '\0';
	if (reply->type == REDIS_REPLY_ERROR) {
		strcpy(text, " an error |");
	} else {
		say(text, reply->element[0]);
		strcat(text, " |");
		for (size_t i = 0; i < reply->element[1]->elements; i++)
			say(text, reply->element[1]->element[i]);
	}
	freeReplyObject(reply);
}

/* ---- random calls ---- */

static unsigned seed = 1;
static unsigned below(unsigned n)
{
	seed = seed * 1103515245u + 12345u;
	return (seed >> 8) % n;
}

#define HOSTS  5
#define NAMES  3
#define TOKENS 24
static const char *const random_hosts[HOSTS] = {"A", "B", "C", "D", "E"};
static struct {
	const char *fence;
	char text[24];
} fences[TOKENS];

static void add_token(struct call *c, unsigned token) { addf(c, "%032x", token + 1); }

/* What the server has in this field. */
static const char *field_here(const char *key, const char *beginning, const char *host, const char *none)
{
	static char value[32];
	redisReply *reply = redisCommand(redis, "HGET dflock:{0}:%s %s%s", key, beginning, host);

	snprintf(value, sizeof(value), "%s", reply->str ? reply->str : none);
	freeReplyObject(reply);
	return value;
}

static const char *beat_here(const char *host) { return field_here("hosts", "", host, "7"); }

static void add_range(struct call *c, unsigned token)
{
	bool whole = token % 3 == 0;

	add(c, token % 4 == 1 ? "record" : "flock");
	add(c, token % 2 || whole ? "exclusive" : "shared");
	addf(c, WORD_OFFSET, (int64_t)(whole ? 0 : token % 5 * 10));
	addf(c, WORD_OFFSET, whole ? INT64_MAX : (int64_t)(token % 5 * 10 + 15));
}

static void make_acquire(struct call *c, const char *name)
{
	unsigned token = below(TOKENS);
	bool rests = token % 6 == 3 && token % 4 != 1 && below(2);

	make(c, SCRIPT_ACQUIRE, name);
	add(c, random_hosts[token % HOSTS]);
	addf(c, "1:%u", token % 2);
	add_token(c, token);
	add_range(c, token);
	addf(c, "%u", below(4) ? 0 : below(3));
	addf(c, "%u", below(5) == 0);
	addf(c, "%u", below(2));
	addf(c, "%u", below(3) == 0);
	add_all(c, rests ? "150" : "0", below(2) ? "" : "12 1750000000 cron", "", NULL);
	if (below(8) == 0) {
		const char *dead = random_hosts[below(HOSTS)];
		add_all(c, dead, below(2) ? beat_here(dead) : "3", NULL);
	}
}

static void make_store(struct call *c)
{
	static const char *const whats[] = {"begin", "open", "open", "new", "init", "take", "may"};
	const char *what = whats[below(7)];

	make(c, SCRIPT_STORE, NULL);
	add_all(c, what, below(20) ? "30000" : "31000", below(3) ? "" : "b2-1-1", below(2) ? "0" : "1800000000000000",
		NULL);
	if (strcmp(what, "begin") == 0 && below(2)) {
		add(c, random_hosts[below(HOSTS)]);
		addf(c, "%u", below(3));
		addf(c, "%u", below(3));
	}
}

static void make_of_host(struct call *c, enum script_id script, const char *name)
{
	const char *host = random_hosts[below(HOSTS)];

	make(c, script, name);
	add(c, host);
	if (script == SCRIPT_BEAT) {
		/* The mark, else a host that was given up stays so. */
		add_all(c, below(2) ? field_here("store", "given:", host, "0") : "0", "0", NULL);
		addf(c, "%u", below(3));
		addf(c, "%u", below(3));
	} else {
		add(c, below(3) ? beat_here(host) : script == SCRIPT_LEAVE ? "" : "5");
	}
}

static void make_of_token(struct call *c, enum script_id script, const char *name)
{
	unsigned token = below(TOKENS);

	make(c, script, name);
	if (script == SCRIPT_CONFIRM || script == SCRIPT_RECLAIM)
		add(c, random_hosts[token % HOSTS]);
	add_token(c, token);
	if (script == SCRIPT_RELEASE) {
		addf(c, "%u", below(2));
		add(c, random_hosts[token % HOSTS]);
	} else if (script != SCRIPT_SHRINK) {
		add(c, fences[token].fence && below(4) ? fences[token].text : "1850000000000000");
	}
	if (script != SCRIPT_RECLAIM)
		return;
	addf(c, "1:%u", token % 2);
	add_range(c, token);
	add(c, "");
}

static void make_people(struct call *c, const char *name)
{
	switch (below(5)) {
	case 0:
		make(c, SCRIPT_HOSTS, NULL);
		break;
	case 1:
		make(c, SCRIPT_DUMP, name);
		add(c, "");
		break;
	case 2:
		make(c, SCRIPT_POST, NULL);
		addf(c, "place%u", below(12));
		add(c, random_hosts[below(HOSTS)]);
		addf(c, "%016x", below(3));
		add_all(c, below(4) ? "the rules\nof it" : "", "4000", NULL);
		break;
	case 3:
		make(c, SCRIPT_RULES, NULL);
		add(c, "place1");
		addf(c, "%016x", below(3));
		break;
	default:
		make(c, SCRIPT_REST, name);
		add_all(c, below(2) ? "flock" : "record", "9000000000000000", NULL);
	}
}

static void make_any(struct call *c)
{
	const unsigned kind = below(40);
	char name[] = "name 0";

	name[5] = (char)('0' + below(NAMES));
	if (kind == 0)
		make_store(c);
	else if (kind == 1)
		make_of_host(c, below(2) ? SCRIPT_LEAVE : SCRIPT_GIVE_UP, NULL);
	else if (kind < 4)
		make_of_host(c, SCRIPT_SWEEP, name);
	else if (kind < 7)
		make_of_host(c, SCRIPT_BEAT, NULL);
	else if (kind < 10)
		make_people(c, name);
	else if (kind < 19)
		make_of_token(c, SCRIPT_RELEASE, name);
	else if (kind < 20)
		make_of_token(c, SCRIPT_SHRINK, name);
	else if (kind < 22)
		make_of_token(c, SCRIPT_CONFIRM, name);
	else if (kind < 24)
		make_of_token(c, SCRIPT_RECLAIM, name);
	else
		make_acquire(c, name);
}

/* What later calls need of an answer. */
static void learn(const struct call *c, const char *answer)
{
	char word[STORE_INC_BYTES];
	unsigned token;

	if (c->script == SCRIPT_STORE && sscanf(answer, " ( OK %127s", word) == 1)
		strcpy(incarnation, word);
	if (c->script == SCRIPT_ACQUIRE && sscanf(answer, " ( OK %23s", word) == 1 &&
	    sscanf(c->argv[c->keys + 3], "%x", &token) == 1) {
		strcpy(fences[token - 1].text, word);
		fences[token - 1].fence = fences[token - 1].text;
	}
}

/* The same, but for the order of what has none. */
static void compare_texts(const struct call *c, char *mine, char *theirs)
{
	static const char *const named[] = {" ( TTL", " ( KNOWN"}; /* some of the hosts, or locks, whichever */
	char line[4000] = "";

	if (c->script == SCRIPT_HOSTS || c->script == SCRIPT_RULES) {
		sort_words(mine);
		sort_words(theirs);
	}
	for (int i = 0; i < 2; i++)
		if (strncmp(theirs, named[i], strlen(named[i])) == 0)
			mine[strlen(named[i])] = theirs[strlen(named[i])] = '\0';
	for (int i = c->keys; i < c->argc; i++)
		snprintf(line + strlen(line), sizeof(line) - strlen(line), " '%.40s'", c->argv[i]);
	ck_assert_msg(strcmp(mine, theirs) == 0, "%s%s:\nhere:%s\nserver:%s", scripts[c->script].name, line, mine,
		      theirs);
}

static void compare(const struct call *c)
{
	static char mine[2][TEXT_BYTES], theirs[2][TEXT_BYTES];
	static int depth; /* another call may come in between */
	int at = depth++;

	elsewhere(c, mine[at]);
	in_server(c, theirs[at]);
	learn(c, theirs[at]);
	hears_elsewhere(theirs[at]);
	compare_texts(c, mine[at], theirs[at]);
	depth--;
}

static void compare_store(const char *what)
{
	struct call c;

	make(&c, SCRIPT_STORE, NULL);
	add_all(&c, what, "30000", "", "0", NULL);
	compare(&c);
	forget(&c);
}

static void compare_any(void)
{
	struct call c;

	make_any(&c);
	compare(&c);
	forget(&c);
}

static void compare_random(unsigned with_seed, int count)
{
	seed = with_seed;
	compare_store("init");
	for (int i = 0; i < count; i++) {
		told_us += below(20) ? below(100000) : below(6000000);
		if (below(400) == 0)
			forget_elsewhere();
		compare_any();
		if (incarnation[0] == '\0' || below(150) == 0)
			compare_store("init");
	}
}

#endif
