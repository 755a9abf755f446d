/* See control_fit.h. */
#include "keeper/callers/control_fit.h"

#include <utlist.h>

#include "keeper/callers/configfile.h"
#include "keeper/callers/lookup.h"
#include "keeper/callers/session.h"
#include "keeper/leases/deadline.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/queue.h"

static void fit_tell(struct session *s, const struct store_reply *reply)
{
	struct keeper *k = s->keeper;
	char why[WIRE_REASON_BYTES];

	if (reply->status == STORE_OK && store_in_grace(k->store)) {
		session_refuse(s, "the store %s is in grace and grants no new locks: wait, or see `dflock init`",
			       store_server(k->store));
	} else if (reply->status == STORE_OK) {
		session_reply(s, WIRE_OK, NULL, -1);
	} else if (reply->status == STORE_UNREACHABLE) {
		deadline_trouble(k, why, sizeof(why));
		session_reply(s, WIRE_WOULD_BLOCK, why, -1);
	} else {
		session_refuse(s, "the store %s takes no new locks: %s", store_server(k->store),
			       reply->error ? reply->error : "it does not say why");
	}
}

/* Answers all that wait: one answer of the store is as good as another. So one question to it is under way at a time, however
 * many jobs start, and however often a user asks and hangs up. */
static void on_fit_tried(void *arg, const struct store_reply *reply)
{
	struct keeper *k = arg;
	struct session *s, *next;

	k->sessions->fit_asked = false;
	DL_FOREACH_SAFE (k->sessions->all, s, next)
		if (s->state == SESSION_FIT)
			fit_tell(s, reply);
	queue_settle(k);
}

static void fit_ask_store(struct session *s)
{
	struct keeper *k = s->keeper;
	const struct configfile *file = k->configfile;

	/* A change that was seen once is mostly taken over in the next second. */
	if (file->state != CONFIGFILE_SAME && file->state != CONFIGFILE_CHANGED) {
		session_refuse(s, "%s is not in force: %s", k->config->path, file->why);
		return;
	}
	if (k->leaving) {
		session_refuse(s, "the keeper ends");
		return;
	}
	if (!store_is_up(k->store)) {
		fit_tell(s, &(struct store_reply){.status = STORE_UNREACHABLE});
		return;
	}
	session_enter(s, SESSION_FIT);
	if (k->sessions->fit_asked)
		return;
	k->sessions->fit_asked = true;
	store_try_write(k->store, on_fit_tried, k);
}

void control_fit(struct session *s)
{
	if (configfile_is_ours(s->keeper, &s->request.config, s->request.config_path))
		fit_ask_store(s);
	else
		lookup_await_config(s, fit_ask_store);
}
