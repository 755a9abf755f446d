/*
 * The rights of config/rights.h are enough for all that store.h does, and each of them is needed: without it something fails,
 * and one line says which right it is.
 */
#include "config/rights.h"
#include "tests/unit/store_hosts.h"

#define USER          "few"
#define MISSING_BYTES 80

static char said[32768]; /* all that the store told the keepers, a line each */

static void note(const char *line)
{
	ck_assert_ptr_null(strchr(line, '\n'));
	size_t used = strlen(said);
	snprintf(said + used, sizeof(said) - used, "%s%s", line, *line ? "\n" : "");
}

/* Asks, and keeps what the answer complains of. The store may be down, or go down. */
#define try(call)                                                                                                      \
	({                                                                                                             \
		enum store_status tried = ask(call);                                                                   \
		note(answer.error);                                                                                    \
		tried;                                                                                                 \
	})

static void on_rules(void *arg, const struct store_rules *rules, const char *error)
{
	struct asked *asked = arg;

	snprintf(asked->error, sizeof(asked->error), "%s", error ? error : "");
	asked->answers++;
}

static void try_acquire(struct host *h, unsigned n, int64_t rest_ms, const char *key)
{
	struct store_acquire w = want(n, WIRE_EXCLUSIVE);

	w.rest_ms = rest_ms;
	w.key = key;
	try(store_acquire(h->store, &w, on_answer, &answer));
}

static void try_release(struct host *h, unsigned n, bool unused)
{
	try(store_release(h->store, NAME, token(n), unused, on_answer, &answer));
}

static void try_locks(void)
{
	static const char key[] = "string dflock:{0}:jobs"; /* one that the user may use, since it is dflock's */
	struct store_blocker silent = {.host = "host-z", .beat = 0};
	struct store_message who = {.kind = STORE_MSG_WHO, .name = NAME};

	try_acquire(&a, 1, 0, NULL);
	try_acquire(&b, 2, 0, NULL);
	try(store_confirm(a.store, NAME, token(1), 1, on_answer, &answer));
	try(store_shrink(a.store, NAME, token(1), on_answer, &answer));
	try_release(&a, 1, false);
	try_release(&b, 2, false);
	try_acquire(&a, 3, 60000, NULL);
	try_release(&a, 3, true);
	try(store_beat(a.store, 0, 0, on_answer, &answer));
	try_acquire(&a, 5, 0, key);
	try_acquire(&b, 6, 0, key);
	try(store_beat(a.store, 0, 1, on_answer, &answer));
	try_release(&b, 6, true);
	try_release(&a, 5, true);
	store_watch_key(a.store, "string x");
	store_unwatch_key(a.store, "string x");
	try(store_sweep(a.store, &silent, on_answer, &answer));
	try(store_give_up(a.store, &silent, on_answer, &answer));
	strcpy(who.token, token(4));
	store_tell(a.store, "host-b", &who); /* no answer: on_note() */
	command("SCRIPT FLUSH");
	try(store_beat(b.store, 0, 0, on_answer, &answer));
}

static void try_what_people_ask(void)
{
	struct store_posting posting = {.place = "p", .digest = "0123456789abcdef", .text = "x", .keep_ms = 60000};

	try(store_post_rules(a.store, &posting, on_answer, &answer));
	try(store_read_rules(b.store, "q", "1111111111111111", on_rules, &answer));
	try(store_try_write(a.store, on_answer, &answer));
	try(store_dump(a.store, &on_dump, &answer));
	json_decref(dumped);
	dumped = NULL;
	try(store_leave(b.store, on_answer, &answer));
}

/* All that keepers do, as USER. `pings`: until the connection for messages was tried. */
static void try_all(bool pings)
{
	said[0] = '\0';
	config.user = USER;
	config.password = "x";
	config.database = 3;
	start_ttl(&a, "host-a", 300);
	start_ttl(&b, "host-b", 300);
	wait_until((a.ups || a.downs) && (b.ups || b.downs));
	if (a.ups && b.ups) {
		try(store_open(a.store, STORE_OPEN_NEW, "", on_answer, &answer));
		try(store_open(a.store, STORE_OPEN_FORCED, "", on_answer, &answer));
		try_locks();
		try_what_people_ask();
		int64_t until = server_clock_ms() + (pings ? LIMIT_MS : 0);
		while (!a.downs && server_clock_ms() < until)
			uv_run(&loop, UV_RUN_ONCE);
	}
	note(a.why);
	note(b.why);
	note(a.note);
	note(b.note);
	stop(&a);
	stop(&b);
}

/* Gives the user all rights but the one with this index; the two behind the commands are keys and channels. */
static void give_rights(size_t without, char missing[MISSING_BYTES])
{
	struct config_store all = {.database = 3, .keys = true};
	const char *words[RIGHTS_MAX + 2];
	size_t count = rights_of_server(&all, words);

	words[count] = RIGHTS_KEYS;
	words[count + 1] = RIGHTS_CHANNELS;
	command("ACL SETUSER %s reset on >x resetchannels &__keyspace@3__:x -@all", USER);
	*missing = '\0';
	for (size_t i = 0; i < count + 2; i++) {
		char right[64];
		snprintf(right, sizeof(right), "%s%s", i < count ? "+" : "", words[i]);
		if (i == without)
			snprintf(missing, MISSING_BYTES, "the right %s ", right);
		else
			command("ACL SETUSER %s %s", USER, right);
	}
}

/* The last round: with all of them. */
TEST_EACH(without_one, RIGHTS_MAX + 3)
{
	const bool all = _i == RIGHTS_MAX + 2;
	char missing[MISSING_BYTES];
	bool named = false;

	give_rights((size_t)_i, missing);
	if (!*missing && !all)
		return; /* there are not so many */
	try_all(strcmp(missing, "the right +ping ") == 0);
	if (all)
		ck_assert_str_eq(said, "");
	for (char *line = strtok(said, "\n"); line; line = strtok(NULL, "\n"))
		if (strstr(line, missing) && strstr(line, "`dflock doctor --acl`"))
			named = true;
	ck_assert_msg(named || all, "nothing says that %sis missing", missing);
}
