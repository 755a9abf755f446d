#include "store/internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *store_need(void *memory)
{
	if (memory)
		return memory;
	fputs("dflockd: out of memory\n", stderr);
	abort();
}

static void set_arg(struct request *r, int i, char *text)
{
	free(r->argv[i]);
	r->argv[i] = store_need(text);
}

static void add(struct request *r, char *text)
{
	if (r->argc == REQUEST_ARGS)
		abort();
	set_arg(r, r->argc++, text);
}

void request_word(struct request *r, const char *word)
{
	add(r, strdup(word));
}

void request_add(struct request *r, const char *format, ...)
{
	va_list args;
	char *text;

	va_start(args, format);
	if (vasprintf(&text, format, args) < 0)
		text = NULL;
	va_end(args);
	add(r, text);
}

static struct request *request_new(struct store *s)
{
	struct request *r = store_need(calloc(1, sizeof(*r)));

	r->store = s;
	r->script = -1;
	return r;
}

struct request *request_command(struct store *s, const char *command)
{
	struct request *r = request_new(s);

	request_word(r, command);
	return r;
}

struct request *request_script(struct store *s, enum script_id script, const char *name)
{
	struct request *r = request_new(s);

	r->script = (int)script;
	r->binding = script_is_binding(script) && config_acknowledgements(s->config) > 0;
	request_word(r, "EVALSHA");
	request_word(r, s->sha[script]);
	request_add(r, "%d", script_keys(script));
	request_word(r, STORE_KEYS "store");
	request_word(r, STORE_KEYS "hosts");
	if (name)
		request_add(r, STORE_LOCK_KEY "%s", name);
	request_word(r, s->incarnation);
	return r;
}

static void request_free(struct request *r)
{
	for (int i = 0; i < r->argc; i++)
		free(r->argv[i]);
	freeReplyObject(r->reply);
	free(r);
}

void request_end(struct request *r, enum store_status status, const char *error)
{
	r->done(r, NULL, status, error);
	request_free(r);
}

/* ---- the answer ---- */

static int send_it(struct request *r);

/* The server has forgotten the script (SCRIPT FLUSH, a new server behind a proxy): EVAL brings it back. */
static bool send_whole(struct request *r)
{
	if (r->script < 0 || r->sent_whole)
		return false;
	r->sent_whole = true;
	set_arg(r, 0, strdup("EVAL"));
	set_arg(r, 1, script_text((enum script_id)r->script, r->store->redis7));
	return send_it(r) == 0;
}

/* An error reply. */
static void take_error(struct request *r)
{
	struct store *s = r->store;
	char line[REPLY_LINE_BYTES];

	switch (reply_explain(r->reply->str, line)) {
	case REPLY_ERROR_NOSCRIPT:
		if (send_whole(r))
			return;
		break;
	case REPLY_ERROR_UNREACHABLE:
		store_down(s, "%s", line);
		request_end(r, STORE_UNREACHABLE, line);
		return;
	case REPLY_ERROR_HERE:
		break;
	}
	request_end(r, STORE_ERROR, line);
}

static void take_reply(struct request *r)
{
	if (r->reply->type == REDIS_REPLY_ERROR) {
		take_error(r);
		return;
	}
	r->done(r, r->reply, STORE_OK, NULL);
	request_free(r);
}

void request_acknowledged(struct request *r, bool enough)
{
	if (enough)
		take_reply(r);
	else
		request_end(r, STORE_UNREACHABLE, r->store->error);
}

static void on_reply(void *arg, const redisReply *reply)
{
	struct request *r = arg;

	if (!reply) {
		if (r->binding)
			acks_forget(r);
		request_end(r, STORE_UNREACHABLE, r->store->error);
		return;
	}
	freeReplyObject(r->reply); /* NOSCRIPT */
	r->reply = link_keep_reply(r->store->commands);
	if (!r->binding)
		take_reply(r);
}

static int send_it(struct request *r)
{
	struct link *link = r->store->commands; /* NULL: another reply that came with this one has broken it */
	int err = link ? link_send(link, r->argc, (const char *const *)r->argv, on_reply, r) : -ENOTCONN;

	if (err == 0 && r->binding)
		acks_await(r);
	return err;
}

const char *request_nonsense(struct request *r)
{
	store_down(r->store,
		   "the answer to %s is none that dflock's scripts give: is this the store of another version?",
		   r->script < 0 ? r->argv[0] : script_name((enum script_id)r->script));
	return r->store->error;
}

/* ---- sending ---- */

void request_end_refused(struct store *s)
{
	struct request *r = s->refused, *next;

	s->refused = NULL;
	s->refused_last = &s->refused;
	for (; r; r = next) {
		next = r->next;
		request_end(r, r->status, r->error);
	}
}

static void on_soon(uv_timer_t *timer)
{
	request_end_refused(timer->data);
}

void request_refuse(struct request *r, request_done *done, enum store_status status, const char *error)
{
	struct store *s = r->store;

	r->done = done;
	r->status = status;
	snprintf(r->error, sizeof(r->error), "%s", error);
	r->next = NULL;
	*s->refused_last = r;
	s->refused_last = &r->next;
	/* Not 0 ms: a caller that asks again from its callback would keep the loop in its timers. */
	if (s->state != STORE_FREED && !uv_is_active((uv_handle_t *)&s->soon))
		uv_timer_start(&s->soon, on_soon, 1, 0);
}

void request_send_early(struct request *r, request_done *done)
{
	r->done = done;
	int err = send_it(r);
	if (err)
		request_refuse(r, done, STORE_UNREACHABLE, uv_strerror(err));
}

void request_send(struct request *r, request_done *done)
{
	if (r->store->state == STORE_UP)
		request_send_early(r, done);
	else
		request_refuse(r, done, STORE_UNREACHABLE, r->store->error);
}
