/*
 * store/replay/replay.c: the rules in this process give the answers, the messages and the memory that they give in a
 * Redis server: in random calls, one after the other, and while others come between loading and commit.
 */
#include "store/replay/replay.h"
#include "tests/unit/redis_server.h"
#include "tests/unit/replay_memory.h"
#include "tests/unit/suite.h"

#define CALLS 4000
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

static struct redis_server server;
static redisContext *redis;
static struct replay *replay;
static struct memory memory;
static char *texts[SCRIPTS];
static char incarnation[STORE_INC_BYTES];

static void start_server(void)
{
	redis_server_prepare(&server);
	redis_server_start(&server);
}

static void stop_server(void) { redis_server_remove(&server); }

static void begin(void)
{
	redis = redis_server_connect(&server);
	freeReplyObject(redisCommand(redis, "FLUSHALL"));
	replay = replay_new();
	ck_assert_ptr_nonnull(replay);
	memory = (struct memory){.now_us = INT64_C(1750000000) * 1000000};
	strcpy(memory.identity, "a1");
	incarnation[0] = '\0';
	for (int id = 0; id < SCRIPTS; id++) {
		char *text = script_text((enum script_id)id, true);
		int first = (int)strcspn(text, "\n") + 1;

		ck_assert_int_gt(asprintf(&texts[id], "%.*s%s%s%s", first, text, before, text + first, after), 0);
		free(text);
	}
}

static void end(void)
{
	redisFree(redis);
	memory_free(&memory);
	replay_free(replay);
	for (int id = 0; id < SCRIPTS; id++)
		free(texts[id]);
}
FIXTURE_ONCE(start_server, stop_server)
FIXTURE(begin, end)

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

static void make(struct call *c, enum script_id script, const char *name)
{
	*c = (struct call){.script = (int)script};
	add(c, "dflock:{0}:store");
	add(c, "dflock:{0}:hosts");
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

/* ---- in the server, and here: the answer and the messages as words ---- */

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
	snprintf(sec, sizeof(sec), "%lld", (long long)memory.now_us / 1000000);
	snprintf(usec, sizeof(usec), "%lld", (long long)memory.now_us % 1000000);
	argv[argc++] = sec;
	argv[argc++] = usec;
	argv[argc++] = memory.identity;
	freeReplyObject(redisCommand(redis, "EVAL %s 0 %lld", expire, (long long)memory.now_us / 1000));
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

static unsigned loads, conflicts;

/* `meanwhile`: is called before each load but the first, and before the commit. */
static void here(const struct call *c, char *text, void (*meanwhile)(void))
{
	struct replay_run *run;

	for (bool committed = false; !committed;) {
		run = replay_begin(replay, c->script, c->keys, c->argc, c->argv);
		ck_assert_ptr_nonnull(run);
		for (unsigned n = 0; replay_step(run) == REPLAY_LOAD; n++) {
			ck_assert_uint_lt(n, 200);
			if (n && meanwhile)
				meanwhile();
			memory_load(&memory, run);
			loads++;
		}
		if (meanwhile)
			meanwhile();
		committed = memory_commit(&memory, run);
		conflicts += !committed;
		text[0] = '\0';
		say(text, run->answer);
		strcat(text, " |");
		for (struct replay_message *m = run->messages; m; m = m->next)
			sprintf(text + strlen(text), " ( %s %s )", m->channel, m->text);
		replay_end(run);
	}
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
static const char *const hosts[HOSTS] = {"A", "B", "C", "D", "E"};
static struct {
	const char *fence;
	char text[24];
} fences[TOKENS];

static void add_token(struct call *c, unsigned token) { addf(c, "%032x", token + 1); }

static const char *beat_here(const char *host)
{
	char name[16];
	const struct memory_cell *cell;

	snprintf(name, sizeof(name), "=%s", host);
	cell = memory_cell(&memory, "dflock:{0}:hosts", name, false);
	return cell && cell->value ? cell->value : "7";
}

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
	add(c, hosts[token % HOSTS]);
	addf(c, "1:%u", token % 2);
	add_token(c, token);
	add_range(c, token);
	addf(c, "%u", below(4) ? 0 : below(3));
	addf(c, "%u", below(5) == 0);
	addf(c, "%u", below(2));
	addf(c, "%u", below(3) == 0);
	add(c, rests ? "150" : "0");
	add(c, below(2) ? "" : "12 1750000000 cron");
	add(c, "");
	if (below(8) == 0) {
		const char *dead = hosts[below(HOSTS)];
		add(c, dead);
		add(c, below(2) ? beat_here(dead) : "3");
	}
}

static void make_store(struct call *c)
{
	static const char *const whats[] = {"begin", "open", "open", "new", "init"};
	const char *what = whats[below(5)];

	make(c, SCRIPT_STORE, NULL);
	add(c, what);
	add(c, below(20) ? "30000" : "31000");
	add(c, below(3) ? "" : "b2-1-1");
	add(c, below(2) ? "0" : "1800000000000000");
	if (strcmp(what, "begin") == 0 && below(2)) {
		add(c, hosts[below(HOSTS)]);
		addf(c, "%u", below(3));
		addf(c, "%u", below(3));
	}
}

static void make_of_host(struct call *c, enum script_id script, const char *name)
{
	const char *host = hosts[below(HOSTS)];

	make(c, script, name);
	add(c, host);
	if (script == SCRIPT_BEAT) {
		addf(c, "%u", below(2));
		add(c, "0");
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
		add(c, hosts[token % HOSTS]);
	add_token(c, token);
	if (script == SCRIPT_RELEASE) {
		addf(c, "%u", below(2));
		add(c, hosts[token % HOSTS]);
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
		add(c, hosts[below(HOSTS)]);
		addf(c, "%016x", below(3));
		add(c, below(4) ? "the rules\nof it" : "");
		add(c, "4000");
		break;
	case 3:
		make(c, SCRIPT_RULES, NULL);
		add(c, "place1");
		addf(c, "%016x", below(3));
		break;
	default:
		make(c, SCRIPT_REST, name);
		add(c, below(2) ? "flock" : "record");
		add(c, "9000000000000000");
	}
}

static void make_any(struct call *c)
{
	char name[] = "name 0";

	name[5] = (char)('0' + below(NAMES));
	switch (below(40)) {
	case 0:
		make_store(c);
		break;
	case 1:
		make_of_host(c, below(2) ? SCRIPT_LEAVE : SCRIPT_GIVE_UP, NULL);
		break;
	case 2 ... 3:
		make_of_host(c, SCRIPT_SWEEP, name);
		break;
	case 4 ... 6:
		make_of_host(c, SCRIPT_BEAT, NULL);
		break;
	case 7 ... 9:
		make_people(c, name);
		break;
	case 10 ... 18:
		make_of_token(c, SCRIPT_RELEASE, name);
		break;
	case 19:
		make_of_token(c, SCRIPT_SHRINK, name);
		break;
	case 20 ... 21:
		make_of_token(c, SCRIPT_CONFIRM, name);
		break;
	case 22 ... 23:
		make_of_token(c, SCRIPT_RECLAIM, name);
		break;
	default:
		make_acquire(c, name);
	}
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

static void compare(const struct call *c, void (*meanwhile)(void))
{
	static char mine[2][TEXT_BYTES], theirs[2][TEXT_BYTES];
	static const char *const named[] = {" ( TTL", " ( KNOWN"}; /* some of the hosts or locks, whichever */
	static int depth;
	int at = depth++;
	char line[4000] = "";

	here(c, mine[at], meanwhile);
	in_server(c, theirs[at]);
	learn(c, theirs[at]);
	if (c->script == SCRIPT_HOSTS) {
		sort_words(mine[at]);
		sort_words(theirs[at]);
	}
	for (size_t i = 0; i < 2; i++)
		if (strncmp(theirs[at], named[i], strlen(named[i])) == 0)
			mine[at][strlen(named[i])] = theirs[at][strlen(named[i])] = '\0';
	for (int i = c->keys; i < c->argc; i++)
		snprintf(line + strlen(line), sizeof(line) - strlen(line), " '%.40s'", c->argv[i]);
	ck_assert_msg(strcmp(mine[at], theirs[at]) == 0, "%s%s:\nhere:%s\nserver:%s", scripts[c->script].name, line,
		      mine[at], theirs[at]);
	depth--;
}

static void open_store(void)
{
	struct call c;

	make(&c, SCRIPT_STORE, NULL);
	add(&c, "init");
	add(&c, "30000");
	add(&c, "");
	add(&c, "0");
	compare(&c, NULL);
	forget(&c);
}

static void pass_time(void)
{
	memory.now_us += below(20) ? below(100000) : below(6000000);
	if (below(400) == 0)
		snprintf(memory.identity, sizeof(memory.identity), "%x", below(1000) + 1);
}

TEST_EACH(random_calls_are_answered_as_by_the_server, 3)
{
	struct call c;

	seed = (unsigned)_i + 1;
	open_store();
	for (int i = 0; i < suite_rounds(CALLS); i++) {
		pass_time();
		make_any(&c);
		compare(&c, NULL);
		forget(&c);
		if (incarnation[0] == '\0' || below(150) == 0)
			open_store();
	}
}

static void another_call(void)
{
	struct call c;

	if (below(3))
		return;
	make_any(&c);
	compare(&c, NULL);
	forget(&c);
}

TEST_EACH(calls_between_loading_and_commit_make_it_run_again, 2)
{
	struct call c;

	seed = (unsigned)_i + 100;
	conflicts = 0;
	open_store();
	for (int i = 0; i < suite_rounds(CALLS / 2); i++) {
		pass_time();
		make_any(&c);
		compare(&c, another_call);
		forget(&c);
		if (below(150) == 0)
			open_store();
	}
	ck_assert_uint_gt(conflicts, (unsigned)suite_rounds(60));
}

TEST(most_rules_need_one_load)
{
	struct call c;

	open_store();
	loads = 0;
	for (int i = 0; i < 100; i++) {
		make(&c, i % 2 ? SCRIPT_RELEASE : SCRIPT_ACQUIRE, "a");
		if (i % 2) {
			add_token(&c, 1);
			add(&c, "0");
			add(&c, "A");
		} else {
			add(&c, "A");
			add(&c, "1:1");
			add_token(&c, 1);
			add_range(&c, 3);
			for (int n = 0; n < 5; n++)
				add(&c, "0");
			add(&c, "");
			add(&c, "");
		}
		compare(&c, NULL);
		forget(&c);
	}
	ck_assert_uint_le(loads, 100);
}

/* ---- what may happen in between ---- */

static int until; /* so many loads or commits from now */

static void make_new(struct call *c, const char *what)
{
	make(c, SCRIPT_STORE, NULL);
	add(c, what);
	add(c, "30000");
	add(c, "");
	add(c, "0");
}

static void begin_grace(void)
{
	struct call c;

	make_new(&c, "begin");
	compare(&c, NULL);
	forget(&c);
}

/* It writes no field that the rule that opens reads by its name. */
static void put_back(void)
{
	struct call c;

	if (until-- != 0)
		return;
	make(&c, SCRIPT_RECLAIM, "a");
	add(&c, "A");
	add_token(&c, 1);
	add(&c, "1000");
	add(&c, "1:1");
	add_range(&c, 3);
	add(&c, "");
	compare(&c, NULL);
	forget(&c);
}

TEST(a_lock_that_is_put_back_meanwhile_keeps_the_store_closed)
{
	struct call c;

	begin_grace();
	make_new(&c, "new");
	until = 1; /* all fields were loaded */
	conflicts = 0;
	compare(&c, put_back);
	ck_assert_uint_eq(conflicts, 1);
	forget(&c);
}

static void open_meanwhile(void)
{
	if (until-- == 0)
		open_store();
}

/* The rule has seen that the store is not open; then all fields are loaded. */
TEST(what_was_read_before_is_not_loaded_again)
{
	struct call c;

	begin_grace();
	until = 0;
	put_back();
	until = 0;
	make_new(&c, "new");
	compare(&c, open_meanwhile);
	forget(&c);
}

TEST(what_a_rule_has_written_is_what_it_reads)
{
	char *words[] = {"HSET", "k", "f", "new"};
	struct replay_run *run = replay_begin(replay, -1, 0, 4, words);

	ck_assert_int_eq(replay_step(run), REPLAY_DONE);
	replay_put(run, "k", "=f", "old", 3, 7);
	ck_assert_str_eq(run->cells->value, "new");
	ck_assert(run->cells->written && !run->cells->read);
	replay_end(run);
}
