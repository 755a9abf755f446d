/*
 * keeper/leases/event.h, guard/deeds.h, kernel/hook.h and runevent.c: what the command is told, in which order, and how it ends.
 * The command is sh, under this program itself in the place of dflockd.
 */
#include "keeper/leases/event.h"

#include <jansson.h>

#include "keeper/clock.h"
#include "keeper/guard/deeds.h"
#include "keeper/guard/slots.h"
#include "keeper/kernel/hook.h"
#include "keeper/leases/keeper.h"
#include "keeper/main.h"
#include "tests/unit/base_folder.h"

#define WAIT_MS 20000

static uv_loop_t loop;
static struct config config;
static struct table table;
static struct keeper k;
static char told[PATH_MAX];

#define SCRIPT "cat >>\"$0\"; echo >>\"$0\"; while [ -e \"${0%told}hold\" ]; do sleep 0.01; done"

/* Adds its input to a file, one line for each event; waits while there is a file "hold". */
static char *command[] = {"/bin/sh", "-c", SCRIPT, told, NULL};

static void setup(void)
{
	base_make();
	ck_assert_int_eq(uv_loop_init(&loop), 0);
	snprintf(told, sizeof(told), "%s", in_base("told"));
	config = (struct config){.on_event = command, .path = told};
	table = (struct table){.fd = -1};
	k = (struct keeper){.member_count = 1,
			    .members[0].keeper = &k,
			    .loop = &loop,
			    .config = &config,
			    .table = &table,
			    .host = "box-1",
			    .runtime_dir = "/run/x"};
	ck_assert_int_eq(event_start(&k), 0);
}

static void teardown(void)
{
	event_stop(&k);
	uv_run(&loop, UV_RUN_DEFAULT);
	event_free(&k);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
	base_remove();
}
FIXTURE(setup, teardown)

static void hold(bool on)
{
	char path[PATH_MAX];
	snprintf(path, sizeof(path), "%s", in_base("hold"));
	ck_assert_int_eq(on ? mknod(path, S_IFREG | 0600, 0) : unlink(path), 0);
}

/* What was told so far. */
static json_t *all_told(void)
{
	FILE *f = fopen(told, "r");
	json_t *all = json_array();
	char *line = NULL;
	size_t size = 0;

	while (f && getline(&line, &size, f) > 0)
		if (*line == '{') {
			json_t *one = json_loads(line, 0, NULL);

			ck_assert_ptr_nonnull(one); /* else the line is not whole */
			json_array_append_new(all, one);
		}
	free(line);
	if (f)
		fclose(f);
	return all;
}

static void on_tick(uv_timer_t *timer) { (void)timer; /* the loop looks again */ }

/* Runs the loop until so many were told. */
static json_t *until_told(size_t count)
{
	int64_t end = clock_now_ns() + WAIT_MS * NS_PER_MS;
	json_t *all = NULL;
	uv_timer_t tick;

	uv_timer_init(&loop, &tick);
	uv_timer_start(&tick, on_tick, 5, 5);
	do {
		struct stat st;

		ck_assert_int_lt(clock_now_ns(), end);
		uv_run(&loop, UV_RUN_ONCE);
		json_decref(all);
		all = stat(told, &st) == 0 && st.st_size ? all_told() : json_array();
	} while (json_array_size(all) < count);
	uv_close((uv_handle_t *)&tick, NULL);
	uv_run(&loop, UV_RUN_NOWAIT);
	return all;
}

static const char *text_of(const json_t *all, size_t i, const char *key)
{
	return json_string_value(json_object_get(json_array_get(all, i), key));
}

static json_int_t number_of(const json_t *all, size_t i, const char *key)
{
	return json_integer_value(json_object_get(json_array_get(all, i), key));
}

static void check_told(const json_t *all, size_t i, const char *event, int count)
{
	ck_assert_str_eq(text_of(all, i, "event"), event);
	ck_assert_int_eq(number_of(all, i, "count"), count);
	ck_assert_int_eq(number_of(all, i, "number"), (json_int_t)i + 1);
}

static void raise_one(enum event_kind kind, const char *name)
{
	event_raise(&k, &(struct event){.kind = kind, .name = name, .fence = 7}, "%s happened to %s",
		    log_event_name(kind), name);
}

TEST(all_fields)
{
	const struct store_range range = {.space = WIRE_RECORD, .mode = WIRE_SHARED, .from = 3, .to = WIRE_EOF};
	const pid_t pids[] = {11, 12};
	json_t *all, *expected;

	event_raise(&k,
		    &(struct event){.kind = EVENT_HELD_TOO_LONG,
				    .name = "n",
				    .path = "/p\xff\xc3\xa4\n",
				    .range = &range,
				    .fence = 5,
				    .pids = pids,
				    .pid_count = 2,
				    .processes = 9,
				    .command = "sh",
				    .holder = "box-2",
				    .reason = "because",
				    .for_ms = 1500},
		    "a line\n\x1b with %d", 4);
	all = until_told(1);
	expected =
		json_pack("{s:s,s:s,s:s,s:s,s:s,s:I,s:n,s:I,s:[i,i],s:i,s:s,s:s,s:s,s:f,s:s,s:s,s:s,s:i,s:i,s:[]}",
			  "message", "a line?? with 4", "name", "n", "path", "/p???\n", "space", "record", "mode",
			  "shared", "from", (json_int_t)3, "to", "fence", (json_int_t)5, "pids", 11, 12, "processes", 9,
			  "command", "sh", "holder", "box-2", "reason", "because", "seconds", 1.5, "event",
			  "held-too-long", "host", "box-1", "runtime_dir", "/run/x", "number", 1, "count", 1, "others");
	ck_assert_ptr_nonnull(expected);
	json_object_set(expected, "time", json_object_get(json_array_get(all, 0), "time"));
	json_object_set(expected, "last", json_object_get(json_array_get(all, 0), "last"));
	ck_assert_int_gt(number_of(all, 0, "time"), 1700000000);
	ck_assert_msg(json_equal(json_array_get(all, 0), expected), "%s", json_dumps(json_array_get(all, 0), 0));
	json_decref(expected);
	json_decref(all);
}

/* 10,000 at once are one command, which names some and counts all. */
TEST(many_are_one)
{
	json_t *all, *others;
	char name[16];

	ck_assert_ptr_nonnull(freopen("/dev/null", "w", stderr)); /* each is a line of the log */
	for (int i = 0; i < 10000; i++) {
		snprintf(name, sizeof(name), "n%d", i);
		raise_one(EVENT_LEASE_LOST, name);
	}
	raise_one(EVENT_TAKEN_PAST, "other");
	all = until_told(2);
	check_told(all, 0, "lease-lost", 10000);
	ck_assert_str_eq(text_of(all, 0, "name"), "n0");
	others = json_object_get(json_array_get(all, 0), "others");
	ck_assert_uint_eq(json_array_size(others), EVENT_OTHERS);
	ck_assert_str_eq(text_of(others, 6, "name"), "n7");
	check_told(all, 1, "taken-past", 1);
	json_decref(all);
}

/* While the command runs, the store goes and comes: what is told last is how it is. */
TEST(opposites)
{
	json_t *all;

	hold(true);
	raise_one(EVENT_TAKEN_PAST, "first");
	json_decref(until_told(1));
	raise_one(EVENT_STORE_AWAY, "1");
	raise_one(EVENT_LEASE_LOST, "2");
	raise_one(EVENT_STORE_BACK, "3");
	raise_one(EVENT_STORE_AWAY, "4");
	raise_one(EVENT_LEASE_LOST, "5");
	hold(false);
	all = until_told(4);
	check_told(all, 0, "taken-past", 1);
	check_told(all, 1, "lease-lost", 2);
	check_told(all, 2, "store-back", 1);
	check_told(all, 3, "store-away", 2);
	json_decref(all);
}

TEST(without_a_command)
{
	json_t *all;

	config.on_event = NULL;
	raise_one(EVENT_STORE_AWAY, "1");
	config.on_event = command; /* a reload */
	raise_one(EVENT_STORE_BACK, "2");
	all = until_told(1);
	ck_assert_str_eq(text_of(all, 0, "event"), "store-back");
	json_decref(all);
	raise_one(EVENT_STORE_AWAY, "3");
	config.on_event = NULL; /* another one, before it was told */
	for (int i = 0; i < 50; i++) {
		usleep(3000);
		uv_run(&loop, UV_RUN_NOWAIT);
	}
	all = all_told();
	ck_assert_uint_eq(json_array_size(all), 1);
	json_decref(all);
}

/* The parent's notes: as many as there is room for, in order; further ones are left out. */
TEST(deeds)
{
	struct table_head *head = calloc(1, sizeof(*head));
	struct family family = {0};
	struct deed deed;
	char text[32];
	json_t *all;

	ck_assert_ptr_nonnull(head);
	table = (struct table){.fd = -1, .head = head, .deeds = deeds_new()};
	ck_assert_ptr_nonnull(table.deeds);
	for (pid_t pid = 1; pid <= 100; pid++)
		ck_assert_int_eq(family_add(&family, pid), 0);
	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < DEEDS_MAX + 5; i++)
			deeds_add(&table, EVENT_HOLDERS_KILLED, SLOTS_IN(TABLE_LOST), &family, 100 + i, "deed %zu", i);
		for (uint32_t i = 0; i < DEEDS_MAX; i++) {
			snprintf(text, sizeof(text), "deed %u", i);
			ck_assert(deeds_take(&table, &deed));
			ck_assert_str_eq(deed.text, text);
			ck_assert(deed.kind == EVENT_HOLDERS_KILLED && deed.processes == 100 + i && deed.ino == 0);
			ck_assert(deed.pid_count == DEEDS_PIDS && deed.pids[DEEDS_PIDS - 1] == DEEDS_PIDS);
		}
		ck_assert(!deeds_take(&table, &deed));
	}
	deeds_add(&table, EVENT_HOLDERS_FROZEN, SLOTS_SURE_UNTIL, &family, 100, "frozen");
	event_take_deeds(&k);
	all = until_told(1);
	check_told(all, 0, "holders-frozen", 1);
	ck_assert_str_eq(text_of(all, 0, "message"), "frozen");
	ck_assert_int_eq(number_of(all, 0, "processes"), 100);
	ck_assert_uint_eq(json_array_size(json_object_get(json_array_get(all, 0), "pids")), DEEDS_PIDS);
	json_decref(all);
	family_free(&family);
	table.deeds = NULL;
	deeds_add(&table, EVENT_HOLDERS_FROZEN, SLOTS_SURE_UNTIL, &family, 1, "without memory for notes");
	ck_assert(!deeds_take(&table, &deed));
	free(head);
}

/* The parent counts over all its keepers, and leaves nothing out when the notes are full. */
TEST(deeds_counts)
{
	struct table of = {.fd = -1, .deeds = deeds_new()};
	int status;
	pid_t pid;

	ck_assert_ptr_nonnull(of.deeds);
	for (int keeper = 1; keeper <= 2; keeper++) {
		deeds_count(&of, DEEDS_FREEZES, 1);
		deeds_count(&of, DEEDS_LOST_KILL, 1000);
		pid = fork();
		if (pid == 0)
			_exit(deeds_counted(&of, DEEDS_FREEZES) != (uint64_t)keeper ||
			      deeds_counted(&of, DEEDS_LOST_KILL) != 1000 * (uint64_t)keeper ||
			      deeds_counted(&of, DEEDS_HANGS) != 0);
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert_int_eq(status, 0);
	}
	of.deeds = NULL;
	deeds_count(&of, DEEDS_FREEZES, 1);
	ck_assert_uint_eq(deeds_counted(&of, DEEDS_FREEZES), 0);
}

/* --- the hook --- */

static char said[HOOK_SAID_BYTES];
static int ended;

static void on_ended(void *arg, const char *line)
{
	snprintf(said, sizeof(said), "%s", line);
	ended++;
}

static const struct {
	const char *script, *said;
} ends[] = {
	{"true", ""},
	{"exit 3", "/bin/sh ended with status 3"},
	{"echo one; echo two >&2; echo; exit 1", "/bin/sh ended with status 1: one\ntwo"},
	{"kill -TERM $$", "/bin/sh was killed by signal 15"},
	{"sleep 1000", "/bin/sh was killed: it had not ended after 500 ms"},
	{"setsid sh -c 'trap \"\" TERM HUP; sleep 1000 & sleep 1000' >/dev/null 2>&1 & exit 0",
	 "/bin/sh has ended, but what it had started was killed after 500 ms"},
	{"(trap '' TERM; sleep 0.1) & exit 0", ""},
	{"head -c 1000000 /dev/zero | tr '\\0' x; exit 0", ""},
	{"exec >&- 2>&- <&-; exit 4", "/bin/sh ended with status 4"},
	{"[ \"$(cat)\" = 'the text' ]", ""},
};

TEST_EACH(how_it_ends, ROWS(ends))
{
	char *words[] = {"/bin/sh", "-c", (char *)ends[_i].script, NULL}, *env[] = {"X=y", NULL};
	struct hook hook;

	ended = 0;
	hook_init(&hook, &loop, on_ended, NULL);
	hook.limit_ms = 500;
	ck_assert(!hook_is_running(&hook));
	ck_assert_int_eq(hook_start(&hook, words, env, "the text", 8), 0);
	ck_assert(hook_is_running(&hook));
	while (!ended)
		uv_run(&loop, UV_RUN_ONCE);
	ck_assert_str_eq(said, ends[_i].said);
	ck_assert(!hook_is_running(&hook));
	ck_assert_int_eq(waitpid(-1, NULL, 0), -1); /* no zombie */
	hook_stop(&hook);
	uv_run(&loop, UV_RUN_DEFAULT);
}

TEST(left_while_it_runs)
{
	char *words[] = {"/bin/sh", "-c", "sleep 0.3", NULL}, *env[] = {NULL};
	struct hook hook;
	ended = 0;
	hook_init(&hook, &loop, on_ended, NULL);
	ck_assert_int_eq(hook_start(&hook, words, env, "", 0), 0);
	hook_stop(&hook);
	uv_run(&loop, UV_RUN_DEFAULT); /* ends at once */
	ck_assert_int_eq(ended, 0);
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], HOOK_RUN_EVENT) == 0)
		return runevent_main(argc - 2, argv + 2);
	return suite_run();
}
