/* See logname.h. */
#include "keeper/logname.h"

#include <stddef.h>
#include <syslog.h>

static const struct logname {
	const char *name;
	int level;
} lognames[LOGNAME_KINDS] = {
	[EVENT_LEASE_LOST] = {"lease-lost", LOG_ERR},
	[EVENT_HOLDERS_FROZEN] = {"holders-frozen", LOG_ERR},
	[EVENT_HOLDERS_THAWED] = {"holders-thawed", LOG_INFO},
	[EVENT_HOLDERS_KILLED] = {"holders-killed", LOG_ERR},
	[EVENT_STORE_AWAY] = {"store-away", LOG_ERR},
	[EVENT_STORE_BACK] = {"store-back", LOG_INFO},
	[EVENT_TAKEN_PAST] = {"taken-past", LOG_WARNING},
	[EVENT_HELD_TOO_LONG] = {"held-too-long", LOG_WARNING},
	[EVENT_WAITED_TOO_LONG] = {"waited-too-long", LOG_WARNING},
	[LINE_LOCK_REFUSED] = {"lock-refused", LOG_WARNING},
	[LINE_QUESTION_REFUSED] = {"question-refused", LOG_INFO},
	[LINE_MALFORMED_QUESTION] = {"malformed-question", LOG_WARNING},
	[LINE_DEADLOCK] = {"deadlock", LOG_INFO},
	[LINE_TAKEN_BEFORE] = {"taken-before", LOG_INFO},
	[LINE_TAKEN_PAST_OVER] = {"taken-past-over", LOG_INFO},
	[LINE_PROBE_FAILED] = {"probe-failed", LOG_WARNING},
	[LINE_CALL_UNDER_WAY] = {"call-under-way", LOG_WARNING},
	[LINE_SEARCH_FAILED] = {"search-failed", LOG_ERR},
	[LINE_PROCESS_KILLED] = {"process-killed", LOG_ERR},
	[LINE_NOT_STOPPABLE] = {"not-stoppable", LOG_ERR},
	[LINE_NOT_ENDED] = {"not-ended", LOG_WARNING},
	[LINE_STORE_CONNECTED] = {"store-connected", LOG_INFO},
	[LINE_STORE_DISCONNECTED] = {"store-disconnected", LOG_WARNING},
	[LINE_STORE_NONSENSE] = {"store-nonsense", LOG_WARNING},
	[LINE_STORE_REFUSED] = {"store-refused", LOG_ERR},
	[LINE_STORE_MEMORY_LOST] = {"store-memory-lost", LOG_ERR},
	[LINE_STORE_OPENED] = {"store-opened", LOG_INFO},
	[LINE_GRACE_OVER] = {"grace-over", LOG_INFO},
	[LINE_LEASES_RUN_OUT] = {"leases-run-out", LOG_ERR},
	[LINE_LEASES_UNSURE] = {"leases-unsure", LOG_WARNING},
	[LINE_LEASE_KEPT] = {"lease-kept", LOG_WARNING},
	[LINE_LEASE_NOT_KEPT] = {"lease-not-kept", LOG_INFO},
	[LINE_LEASE_TAKEN_UP] = {"lease-taken-up", LOG_INFO},
	[LINE_LEASE_BROKEN] = {"lease-broken", LOG_WARNING},
	[LINE_KEY_PUT_BACK] = {"key-put-back", LOG_WARNING},
	[LINE_BREAK_REFUSED] = {"break-refused", LOG_WARNING},
	[LINE_HOST_DEAD] = {"host-dead", LOG_WARNING},
	[LINE_HOST_GIVEN_UP] = {"host-given-up", LOG_WARNING},
	[LINE_HOST_SWEPT] = {"host-swept", LOG_INFO},
	[LINE_RULES_NOT_SHARED] = {"rules-not-shared", LOG_WARNING},
	[LINE_CONFIG_TAKEN_OVER] = {"config-taken-over", LOG_INFO},
	[LINE_CONFIG_NOT_IN_FORCE] = {"config-not-in-force", LOG_WARNING},
	[LINE_CONFIG_IN_FORCE_AGAIN] = {"config-in-force-again", LOG_INFO},
	[LINE_CONFIG_COPY_FAILED] = {"config-copy-failed", LOG_WARNING},
	[LINE_RELOAD_REFUSED] = {"reload-refused", LOG_ERR},
	[LINE_COMMAND_FAILED] = {"command-failed", LOG_WARNING},
	[LINE_NAMES_UNUSABLE] = {"names-unusable", LOG_ERR},
	[LINE_GRANTS_NOT_KEPT] = {"grants-not-kept", LOG_WARNING},
	[LINE_LOG_LEVEL] = {"log-level", LOG_INFO},
	[LINE_KEEPER_SERVES] = {"keeper-serves", LOG_INFO},
	[LINE_KEEPER_CANNOT_START] = {"keeper-cannot-start", LOG_ERR},
	[LINE_KEEPER_ENDS] = {"keeper-ends", LOG_INFO},
	[LINE_KEEPER_WAITS] = {"keeper-waits", LOG_WARNING},
	[LINE_KEEPER_DIED] = {"keeper-died", LOG_ERR},
	[LINE_KEEPER_HANGS] = {"keeper-hangs", LOG_ERR},
	[LINE_KEEPER_LEFT_BEHIND] = {"keeper-left-behind", LOG_ERR},
	[LINE_PARENT_KILLED] = {"parent-killed", LOG_ERR},
	[LINE_PARENT_SWAPPABLE] = {"parent-swappable", LOG_WARNING},
	[LINE_INHERITED_LIMIT] = {"inherited-limit", LOG_WARNING},
	[LINE_TABLE_DAMAGED] = {"table-damaged", LOG_ERR},
	[LINE_HOST_TWICE] = {"host-twice", LOG_ERR},
	[LINE_FRONT_FAILED] = {"front-failed", LOG_ERR},
	[LINE_LINES_LOST] = {"lines-lost", LOG_WARNING},
	[LINE_DEBUG] = {"", LOG_DEBUG},
};

static const struct {
	enum event_kind kinds[3]; /* the last may be there twice */
	bool each;
} logname_states[] = {
	{{EVENT_HOLDERS_FROZEN, EVENT_HOLDERS_THAWED, EVENT_HOLDERS_THAWED}, false},
	{{EVENT_STORE_AWAY, EVENT_STORE_BACK, EVENT_STORE_BACK}, false},
	{{LINE_STORE_DISCONNECTED, LINE_STORE_CONNECTED, LINE_STORE_CONNECTED}, false},
	{{LINE_STORE_MEMORY_LOST, LINE_GRACE_OVER, LINE_GRACE_OVER}, false},
	{{LINE_CONFIG_NOT_IN_FORCE, LINE_CONFIG_IN_FORCE_AGAIN, LINE_CONFIG_TAKEN_OVER}, false},
	{{LINE_LEASE_KEPT, LINE_LEASE_NOT_KEPT, LINE_LEASE_NOT_KEPT}, true},
	{{EVENT_TAKEN_PAST, LINE_TAKEN_PAST_OVER, LINE_TAKEN_PAST_OVER}, true},
};

const char *logname_of(enum event_kind kind)
{
	return lognames[kind].name;
}

int logname_level(enum event_kind kind)
{
	return lognames[kind].level;
}

unsigned logname_state(enum event_kind kind, bool *each)
{
	for (unsigned i = 0; i < sizeof(logname_states) / sizeof(*logname_states); i++)
		for (unsigned j = 0; j < sizeof(logname_states[i].kinds) / sizeof(logname_states[i].kinds[0]); j++)
			if (logname_states[i].kinds[j] == kind) {
				*each = logname_states[i].each;
				return i + 1;
			}
	return 0;
}
