/* See control.h. */
#include "keeper/callers/control.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "keeper/callers/configfile.h"
#include "keeper/callers/configwatch.h"
#include "keeper/callers/control_break.h"
#include "keeper/callers/control_fit.h"
#include "keeper/callers/control_init.h"
#include "keeper/callers/control_stop.h"
#include "keeper/callers/metrics.h"
#include "keeper/callers/session.h"
#include "keeper/callers/status.h"
#include "keeper/callers/who.h"
#include "keeper/leases/keeper.h"
#include "keeper/log.h"

/* --- reload --- */

static void on_reload_looked_at(struct configwatch_wait *wait, struct configfile_look *look)
{
	struct session *s = (struct session *)((char *)wait - offsetof(struct session, look));
	char why[WIRE_REASON_BYTES];

	if (!look)
		session_refuse(s, "%s: its file system has not answered the keeper for %d s", s->keeper->config->path,
			       CONFIGWATCH_SLOW_MS / 1000);
	else if (look->read == 0 && !look->fresh) /* another session's reload took it over */
		session_reply(s, WIRE_OK, NULL, -1);
	else if (configfile_reload(s->keeper, look, s->request.flags & WIRE_F_FORCE, why, sizeof(why)) == 0)
		session_reply(s, WIRE_OK, NULL, -1);
	else
		session_refuse(s, "%s", why);
}

static void control_reload(struct session *s)
{
	session_enter(s, SESSION_RELOADING);
	configwatch_wait(s->keeper, &s->look, true, on_reload_looked_at);
}

/* --- the level of the log --- */

static void control_log_level(struct session *s, const char *text)
{
	bool show = strcmp(text, "show") == 0, back = strcmp(text, "default") == 0;
	int level = config_log_level(text);
	char said[WIRE_REASON_BYTES];
	enum log_by by;

	if (!show && !back && level < 0) {
		session_refuse(s, "\"%.40s\" is no level of the log; expected " CONFIG_LOG_LEVELS " or \"default\"",
			       text);
		return;
	}
	if (!show)
		log_set_level(LOG_BY_COMMAND, level);
	level = log_level(&by);
	snprintf(said, sizeof(said), "%s (%s)", config_log_level_name(level), log_by_name(by));
	if (!show)
		log_event(LINE_LOG_LEVEL, "the log has another level, as pid %d (uid %u) wants: %s", (int)s->peer.pid,
			  (unsigned)s->peer.uid, said);
	session_reply(s, WIRE_OK, said, -1);
}

/* --- questions --- */

void control_question(struct session *s, const char *text)
{
	const unsigned int op = s->request.op;
	uid_t uid = s->peer.uid;

	/* Every user may see the level. */
	if (!(op == WIRE_LOG_LEVEL && strcmp(text, "show") == 0) && op != WIRE_PING && op != WIRE_STATUS &&
	    op != WIRE_METRICS && op != WIRE_WHO && op != WIRE_FIT && op != WIRE_BREAK && uid != 0 &&
	    uid != geteuid()) {
		session_refuse(s, "only root or the keeper's user may do that");
		return;
	}
	if ((op == WIRE_STATUS || op == WIRE_METRICS || op == WIRE_WHO) && session_has_unread(s)) {
		session_refuse(s, "the answer to the question before was not read so far");
		return;
	}
	switch (op) {
	case WIRE_STATUS:
		status_start(s);
		return;
	case WIRE_METRICS:
		metrics_answer(s);
		return;
	case WIRE_WHO:
		who_start(s, text);
		return;
	case WIRE_RELOAD:
		control_reload(s);
		return;
	case WIRE_STOP:
		control_stop(s);
		return;
	case WIRE_INIT:
		control_init(s);
		return;
	case WIRE_BREAK:
	case WIRE_END_REST:
	case WIRE_GIVE_UP:
		control_break(s, text);
		return;
	case WIRE_LOG_LEVEL:
		control_log_level(s, text);
		return;
	case WIRE_FIT:
		control_fit(s);
		return;
	default:
		session_reply(s, WIRE_OK, NULL, -1);
		return;
	}
}
