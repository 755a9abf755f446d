/*
 * See postgresql.h: connecting. Looking up names and speaking with Kerberos block in libpq, so all of it is in a thread. An attempt belongs to
 * its thread until the loop is told that it has ended; only `gone` is written by both, and then the thread gives the connection up. So
 * neither waits for the other. A look-up that hangs keeps its thread: as long as one does, no other attempt begins, since the
 * pool of threads is the whole keeper's.
 *
 * libpq goes on to the next server of a list when one refuses, but waits for one that is silent as long as TCP does. So each attempt begins with
 * another one, until one has served.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/postgresql/postgresql.h"

#define MAX_LEFT 2

/* Of what the configuration says: lists with an item for each server. */
static const char *const attempt_lists[] = {"host", "hostaddr", "port"};
#define LISTS (sizeof(attempt_lists) / sizeof(*attempt_lists))

struct attempt {
	uv_work_t work;
	atomic_bool gone; /* given up: nobody waits for it */
	struct postgresql *p;
	void (*done)(struct postgresql *p, const char *error);
	char *info, *password, timeout[24]; /* libpq's words; password NULL: none of ours */
	char *lists[LISTS];                 /* ditto; NULL: it has none */
	PGconn *conn;
};

/* True: nothing to wait for any more. */
static bool attempt_wait(struct attempt *a, PostgresPollingStatusType for_what)
{
	struct pollfd fd = {.fd = PQsocket(a->conn), .events = for_what == PGRES_POLLING_READING ? POLLIN : POLLOUT};

	while (!atomic_load(&a->gone))
		if (poll(&fd, 1, 100) != 0)
			return true;
	return false;
}

static void attempt_in_thread(uv_work_t *work)
{
	static const char *const words[] = {
		"dbname",           "host", "hostaddr", "port", "password", "fallback_application_name",
		"tcp_user_timeout", NULL};
	struct attempt *a = work->data;
	const char *values[] = {a->info,     a->lists[0], a->lists[1], a->lists[2],
				a->password, "dflock",    a->timeout,  NULL};
	PostgresPollingStatusType state = PGRES_POLLING_WRITING;

	a->conn = PQconnectStartParams(words, values, 1);
	if (!a->conn || PQstatus(a->conn) == CONNECTION_BAD)
		return;
	while (state != PGRES_POLLING_OK && state != PGRES_POLLING_FAILED && attempt_wait(a, state))
		state = PQconnectPoll(a->conn);
}

static void attempt_free(struct attempt *a)
{
	PQfinish(a->conn);
	free(a->info);
	for (size_t i = 0; i < LISTS; i++)
		free(a->lists[i]);
	if (a->password)
		explicit_bzero(a->password, strlen(a->password));
	free(a->password);
	free(a);
}

static void attempt_on_end(uv_work_t *work, int status)
{
	struct attempt *a = work->data;
	struct postgresql *p = a->p;
	const char *error = "no memory";

	(void)status;
	if (atomic_load(&a->gone)) {
		p->left--;
		if (!p->store && !p->left) /* it was freed */
			free(p);
		attempt_free(a);
		return;
	}
	p->attempt = NULL;
	if (a->conn && PQstatus(a->conn) == CONNECTION_OK) {
		p->conn = a->conn;
		a->conn = NULL;
		error = NULL;
	} else if (a->conn) {
		error = PQerrorMessage(a->conn);
	}
	a->done(p, error);
	attempt_free(a);
}

/* The list from this item on, and then the others. */
static char *attempt_list(const char *list, unsigned turn)
{
	const char *at = list;
	unsigned count = 1;
	char *turned;

	for (const char *c = list; *c; c++)
		count += *c == ',';
	for (turn %= count; turn; turn--)
		at = strchr(at, ',') + 1;
	if (asprintf(&turned, "%s%s%.*s", at, at > list ? "," : "", at > list ? (int)(at - list) - 1 : 0, list) < 0)
		store_need(NULL);
	return turned;
}

static void attempt_set_lists(struct attempt *a, unsigned turn)
{
	PQconninfoOption *options = PQconninfoParse(a->info, NULL), *o;

	for (o = options; o && o->keyword; o++)
		for (size_t i = 0; o->val && i < LISTS; i++)
			if (strcmp(o->keyword, attempt_lists[i]) == 0)
				a->lists[i] = attempt_list(o->val, turn);
	PQconninfoFree(options);
}

void postgresql_attempt(struct postgresql *p, void (*done)(struct postgresql *p, const char *error))
{
	const struct config_store *config = p->store->config;
	struct attempt *a;

	if (p->left >= MAX_LEFT) {
		done(p, "earlier attempts still look up a name, or wait for Kerberos");
		return;
	}
	a = store_need(calloc(1, sizeof(*a)));
	a->work.data = a;
	a->p = p;
	a->done = done;
	a->info = store_need(strdup(config->postgresql));
	attempt_set_lists(a, p->turn++);
	if (config->password)
		a->password = store_need(strdup(config->password));
	snprintf(a->timeout, sizeof(a->timeout), "%" PRId64, config->connect_ms);
	p->attempt = a;
	if (uv_queue_work(p->store->loop, &a->work, attempt_in_thread, attempt_on_end) != 0)
		store_need(NULL);
}

void postgresql_give_up(struct postgresql *p)
{
	if (!p->attempt)
		return;
	p->left++;
	atomic_store(&p->attempt->gone, true);
	p->attempt = NULL;
}

/* ---- what the configuration says ---- */

void postgresql_forget_environment(void)
{
	for (char **at = environ; *at;) {
		char *name = store_need(strndup(*at, strcspn(*at, "=")));

		if (strncmp(name, "PG", 2) == 0 && unsetenv(name) == 0)
			at = environ;
		else
			at++;
		free(name);
	}
}

/* Without user, passwords and files. */
void postgresql_name(struct store *s)
{
	static const char *const shown[] = {"host", "hostaddr", "port", "dbname", "service"};
	PQconninfoOption *options = PQconninfoParse(s->config->postgresql, NULL), *o;
	size_t len = (size_t)snprintf(s->server, sizeof(s->server), "postgresql");

	for (o = options; o && o->keyword; o++)
		for (size_t i = 0; o->val && i < sizeof(shown) / sizeof(*shown); i++)
			if (strcmp(o->keyword, shown[i]) == 0 && len < sizeof(s->server))
				len += (size_t)snprintf(s->server + len, sizeof(s->server) - len, " %s=%s", o->keyword,
							o->val);
	PQconninfoFree(options);
}
