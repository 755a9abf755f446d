/* The metrics: see metrics.h. docs/operating.md and dflock(1) list the same names (scripts/check-docs.sh compares). */
#include "cli/metrics.h"

#define PAGE                                                                                                                    \
	" Lock calls that a lease of this host covers already go through the shared page and never reach the keeper: they are " \
	"not counted."

const struct metric metrics_table[] = {
	/* dflock itself */
	{"up", METRIC_GAUGE, {NULL}, "1: the keeper answered. 0: none runs, or it does not answer."},
	{"build_info", METRIC_GAUGE, {"program", "version"}, "Always 1; which versions of dflock and dflockd run."},

	/* the keeper */
	{"start_time_seconds", METRIC_GAUGE, {NULL}, "When the keeper started. Its counters begin at 0 then."},
	{"keeper_restarts_total",
	 METRIC_COUNTER,
	 {NULL},
	 "Keepers that died and were started again. Survives a keeper: the parent counts."},
	{"keeper_hangs_total",
	 METRIC_COUNTER,
	 {NULL},
	 "Keepers that did nothing and were killed. Survives a keeper: the parent counts."},
	{"unsupervised", METRIC_GAUGE, {NULL}, "1: the keeper's parent was killed and none can be started."},
	{"connections", METRIC_GAUGE, {NULL}, "Connections of programs and operators, one for each question or pin."},
	{"connections_max", METRIC_GAUGE, {NULL}, "How many connections there may be; one user gets a quarter."},
	{"connections_accepted_total", METRIC_COUNTER, {NULL}, "Connections that were accepted."},

	/* leases */
	{"leases", METRIC_GAUGE, {"space", "state"}, "Leases of this host; docs/design.md, section 5, has the states."},
	{"leases_max", METRIC_GAUGE, {NULL}, "How many leases there may be, of all spaces and states."},
	{"page_leases",
	 METRIC_GAUGE,
	 {NULL},
	 "Open leases in the shared page. Which programs use them is not known: reading a page tells no other process."},
	{"lease_grants_total", METRIC_COUNTER, {"space"}, "Leases that the store granted to this host."},
	{"lease_hold_seconds",
	 METRIC_HISTOGRAM,
	 {"space"},
	 "From the grant of a lease until it was given back or lost. A lock under it was held for at most so long; how long "
	 "exactly is not known, since unlocking needs no message."},
	{"lease_recall_seconds",
	 METRIC_HISTOGRAM,
	 {"space"},
	 "From the moment that another host wanted a lease until it was handed over: the time for which holders here kept "
	 "other hosts waiting."},
	{"handovers_total",
	 METRIC_COUNTER,
	 {"space"},
	 "Leases that were given back, or shrunk to shared, because another host wanted them."},
	{"leases_lost_total",
	 METRIC_COUNTER,
	 {"reason"},
	 "Leases that were lost: taken (not renewed in time), forgotten (the store lost its memory), broken (by dflock "
	 "break), damaged (the table of a dead keeper could not be read). Their holders end as on_lost says."},
	{"held_too_long_total", METRIC_COUNTER, {NULL}, "Locks that were held for longer than warn_after_ms."},

	/* lock calls */
	{"waiters", METRIC_GAUGE, {"space"}, "Lock calls that wait for a lease." PAGE},
	{"lock_wait_seconds",
	 METRIC_HISTOGRAM,
	 {"space"},
	 "Lock calls that the keeper granted, and how long each waited for the answer." PAGE},
	{"lock_busy_total",
	 METRIC_COUNTER,
	 {"space"},
	 "Lock calls that did not wait and got EWOULDBLOCK because another host had the lock."},
	{"lock_refusals_total",
	 METRIC_COUNTER,
	 {"reason"},
	 "Lock calls and tests that the keeper refused (ENOLCK), and connections that it turned away."},
	{"lock_deadlocks_total", METRIC_COUNTER, {NULL}, "Lock calls that got EDEADLK because of a circle over hosts."},
	{"lock_abandoned_total", METRIC_COUNTER, {NULL}, "Lock calls whose program went away while it waited."},
	{"calls_under_way",
	 METRIC_GAUGE,
	 {NULL},
	 "Lock calls of programs under the net that were granted, and whose threads were not seen out of them: most have ended."},
	{"calls_seen_out_total",
	 METRIC_COUNTER,
	 {NULL},
	 "Threads that were seen out of such calls, since another host wanted the lock."},
	{"waited_too_long_total", METRIC_COUNTER, {NULL}, "Lock calls that waited for longer than wait_warn_ms."},

	/* past dflock */
	{"locks_past", METRIC_GAUGE, {NULL}, "Locks on protected files that are held without a lease."},
	{"taken_past_total", METRIC_COUNTER, {NULL}, "Locks on protected files that were found without a lease."},

	/* renewing */
	{"beats_total",
	 METRIC_COUNTER,
	 {"result"},
	 "Beats that renew the leases of this host; requests for leases renew, too, and are not counted."},
	{"deadline_left_seconds",
	 METRIC_GAUGE,
	 {NULL},
	 "For how long the leases are sure. 0: over. Without leases nothing is renewed, and it runs down to 0."},
	{"ttl_seconds", METRIC_GAUGE, {NULL}, "ttl_ms of the configuration: leases are renewed three times in it."},
	{"frozen_processes", METRIC_GAUGE, {NULL}, "Processes that are stopped until the store answers."},
	{"freezes_total",
	 METRIC_COUNTER,
	 {NULL},
	 "How often holders were frozen. Survives a keeper: the parent counts."},
	{"ended_processes_total",
	 METRIC_COUNTER,
	 {"reason", "signal"},
	 "Processes that got a signal to end: lost (their lease was), broken (by dflock break), stuck (could not be frozen "
	 "in time), expired (on_lost is kill), held_too_long (kill_after_ms). One that gets SIGTERM and then SIGKILL counts "
	 "under both. All but held_too_long survive a keeper."},

	/* the store */
	{"store_up", METRIC_GAUGE, {NULL}, "1: connected to the store."},
	{"store_grace", METRIC_GAUGE, {NULL}, "1: the store is in grace and grants nothing new."},
	{"store_connects_total", METRIC_COUNTER, {NULL}, "Connections to the store that were made."},
	{"store_disconnects_total", METRIC_COUNTER, {NULL}, "Connections to the store that broke."},
	{"store_requests_total", METRIC_COUNTER, {"operation"}, "Round trips to the store that began."},
	{"store_request_failures_total",
	 METRIC_COUNTER,
	 {"reason"},
	 "Round trips that ended with an error, or without an answer (with replicas: too few have acknowledged it)."},
	{"store_request_seconds",
	 METRIC_HISTOGRAM,
	 {NULL},
	 "Round trips that were answered, and how long that took; with replicas, until enough of them have it."},
	{"store_memory_losses_total",
	 METRIC_COUNTER,
	 {NULL},
	 "How often the store came back without its memory, as another incarnation."},

	/* rules */
	{"rules_hosts",
	 METRIC_GAUGE,
	 {"rules"},
	 "Other keepers in the store whose rules have the same digest as this one's, another one, or are not known."},
	{"rules_compared_timestamp_seconds",
	 METRIC_GAUGE,
	 {NULL},
	 "When dflock_rules_hosts was found out; 0: not so far. Looked at when metrics are read, every 15 minutes at most."},
	{"config_refused", METRIC_GAUGE, {NULL}, "1: the configuration file is not in force, and older rules are."},
	{.name = NULL}};
