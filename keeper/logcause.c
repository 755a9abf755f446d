/* See logline.h. */
#include "keeper/logline.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>

#define NS_PER_S 1000000000ll

#define LOG_ROW(kind, name, level) [kind] = {name, level},
static const struct {
	const char *name;
	int level;
} log_kinds[LOGNAME_KINDS] = {LOG_EVENTS(LOG_ROW) LOG_LINES(LOG_ROW)};

const char *logname_of(enum event_kind kind)
{
	return log_kinds[kind].name;
}

int logname_level(enum event_kind kind)
{
	return log_kinds[kind].level;
}

/* Kinds that say states of one thing, of which the latest holds; `each`: of one thing for each subject. */
static const struct {
	enum event_kind kinds[3]; /* the last may be there twice */
	bool each;
} logcause_states[] = {
	{{EVENT_HOLDERS_FROZEN, EVENT_HOLDERS_THAWED, EVENT_HOLDERS_THAWED}, false},
	{{EVENT_STORE_AWAY, EVENT_STORE_BACK, EVENT_STORE_BACK}, false},
	{{LINE_STORE_DISCONNECTED, LINE_STORE_CONNECTED, LINE_STORE_CONNECTED}, false},
	{{LINE_STORE_MEMORY_LOST, LINE_GRACE_OVER, LINE_GRACE_OVER}, false},
	{{LINE_CONFIG_NOT_IN_FORCE, LINE_CONFIG_IN_FORCE_AGAIN, LINE_CONFIG_TAKEN_OVER}, false},
	{{LINE_LEASE_KEPT, LINE_LEASE_NOT_KEPT, LINE_LEASE_NOT_KEPT}, true},
	{{EVENT_TAKEN_PAST, LINE_TAKEN_PAST_OVER, LINE_TAKEN_PAST_OVER}, true},
};

/* The row of the states that the kind is one of; -1: it is none. */
static int logcause_state(enum event_kind kind)
{
	for (int i = 0; i < (int)(sizeof(logcause_states) / sizeof(*logcause_states)); i++)
		for (int j = 0; j < 3; j++)
			if (logcause_states[i].kinds[j] == kind)
				return i;
	return -1;
}

static bool logcause_is_running(const struct logcause *cause, int64_t now_ns)
{
	return cause->used && now_ns - cause->said_ns < LOGCAUSE_NS;
}

/* Is it about the subject ("": none)? */
static bool logcause_is_about(const struct logcauses *c, size_t i, const char *subject)
{
	return c->all[i].used && strncmp(c->texts[i].subject, subject, LOGCAUSE_BYTES - 1) == 0;
}

static bool logcause_is_free(const struct logcause *cause, int64_t now_ns)
{
	return !cause->used || (!cause->missed && !logcause_is_running(cause, now_ns));
}

/* The line's cause; makes it. */
static size_t logcause_find(struct logcauses *c, const struct log_line *line, int64_t now_ns)
{
	const char *subject = line->subject ? line->subject : "";
	size_t free = LOGCAUSE_ALL, count = 0;

	for (size_t i = LOGNAME_KINDS; i < LOGCAUSE_ALL; i++) {
		const struct logcause *cause = &c->all[i];

		if (cause->kind == line->kind && cause->site == line->site && cause->store == line->store &&
		    logcause_is_about(c, i, subject))
			return i;
		if (logcause_is_free(cause, now_ns))
			free = free < LOGCAUSE_ALL ? free : i;
		else
			count += cause->kind == line->kind;
	}
	if (free == LOGCAUSE_ALL || (*subject && count >= LOGCAUSE_EACH)) {
		c->all[line->kind].others = true;
		return line->kind;
	}
	c->all[free] = (struct logcause){
		.kind = line->kind, .store = line->store, .site = line->site, .is_lock = line->is_lock};
	snprintf(c->texts[free].subject, LOGCAUSE_BYTES, "%s", subject);
	return free;
}

static enum event_kind logcause_kind(size_t i, const struct logcause *cause)
{
	if (i < LOGNAME_KINDS)
		return (enum event_kind)i;
	return cause->kind < LOGNAME_KINDS ? (enum event_kind)cause->kind : LINE_DEBUG;
}

/* Do both say states of one thing? */
static bool logcause_same_thing(const struct logcauses *c, size_t i, size_t j)
{
	int state = logcause_state(logcause_kind(i, &c->all[i]));

	if (i == j || state < 0 || state != logcause_state(logcause_kind(j, &c->all[j])) ||
	    c->all[i].store != c->all[j].store)
		return false;
	if (!logcause_states[state].each)
		return true;
	if (i < LOGNAME_KINDS || j < LOGNAME_KINDS)
		return i < LOGNAME_KINDS && j < LOGNAME_KINDS;
	return logcause_is_about(c, j, c->texts[i].subject);
}

__attribute__((format(printf, 2, 3))) static void logcause_add(char more[LOGCAUSE_MORE], const char *format, ...)
{
	size_t len = strlen(more);
	va_list args;

	va_start(args, format);
	vsnprintf(more + len, LOGCAUSE_MORE - len, format, args);
	va_end(args);
}

static void logcause_add_times(char more[LOGCAUSE_MORE], const char *name, unsigned times)
{
	logcause_add(more, "%s%s%s", *more ? ", " : " (", name, *name ? " " : "");
	if (times == 1)
		logcause_add(more, "once");
	else
		logcause_add(more, "%u times", times);
}

/* What the line stands for that is written now: `times` lines of its cause, and those of other states before it, which are then
 * told. */
static void logcause_tell(struct logcauses *c, size_t i, unsigned times, int64_t now_ns, char more[LOGCAUSE_MORE])
{
	struct logcause *cause = &c->all[i];
	int64_t since = cause->missed ? cause->said_ns : now_ns;

	more[0] = '\0';
	if (cause->missed)
		logcause_add_times(more, "", times);
	for (size_t j = 0; j < LOGCAUSE_ALL; j++) {
		struct logcause *other = &c->all[j];

		if (!other->used || !other->missed || !logcause_same_thing(c, i, j))
			continue;
		logcause_add_times(more, logname_of(logcause_kind(j, other)), other->missed);
		since = other->said_ns < since ? other->said_ns : since;
		other->missed = 0;
	}
	if (*more)
		logcause_add(more, " in the last %lld s", (long long)((now_ns - since + NS_PER_S / 2) / NS_PER_S));
	if (*more && cause->others)
		logcause_add(more, ", of several causes");
	if (*more && now_ns - cause->latest_ns >= NS_PER_S)
		logcause_add(more, ", the last %lld s ago", (long long)((now_ns - cause->latest_ns) / NS_PER_S));
	if (*more)
		logcause_add(more, ")");
	cause->missed = 0;
	cause->others = false;
	cause->said_ns = now_ns;
	cause->used = true;
}

bool logcause_admit(struct logcauses *c, const struct log_line *line, bool always, int64_t now_ns,
		    char more[LOGCAUSE_MORE])
{
	size_t i = logcause_find(c, line, now_ns);
	struct logcause *cause = &c->all[i];

	cause->number = ++c->number;
	cause->latest_ns = now_ns;
	if (always || !logcause_is_running(cause, now_ns)) {
		logcause_tell(c, i, cause->missed + 1, now_ns, more);
		return true;
	}
	cause->pid = line->pid;
	if (snprintf(c->texts[i].text, LOGCAUSE_BYTES, "%s", line->text) >= LOGCAUSE_BYTES)
		memcpy(c->texts[i].text + LOGCAUSE_BYTES - 4, "...", 4);
	if (i < LOGNAME_KINDS) /* of the latest line */
		snprintf(c->texts[i].subject, LOGCAUSE_BYTES, "%s", line->subject ? line->subject : "");
	cause->is_lock = line->subject && line->is_lock;
	cause->missed++;
	return false;
}

/* A later state of the same thing waits, too: that one is told, and counts this one. */
static bool logcause_is_past(const struct logcauses *c, size_t i)
{
	for (size_t j = 0; j < LOGCAUSE_ALL; j++)
		if (c->all[j].used && c->all[j].missed && c->all[j].number > c->all[i].number &&
		    logcause_same_thing(c, i, j))
			return true;
	return false;
}

bool logcause_due(struct logcauses *c, bool flush, int64_t now_ns, struct log_line *line, char more[LOGCAUSE_MORE])
{
	for (size_t i = 0; i < LOGCAUSE_ALL; i++) {
		struct logcause *cause = &c->all[i];

		if (!cause->used || !cause->missed || (!flush && logcause_is_running(cause, now_ns)) ||
		    logcause_is_past(c, i))
			continue;
		c->texts[i].text[LOGCAUSE_BYTES - 1] = c->texts[i].subject[LOGCAUSE_BYTES - 1] = '\0';
		*line = (struct log_line){.kind = logcause_kind(i, cause),
					  .subject = *c->texts[i].subject ? c->texts[i].subject : NULL,
					  .is_lock = cause->is_lock,
					  .pid = cause->pid,
					  .text = c->texts[i].text};
		logcause_tell(c, i, cause->missed, now_ns, more);
		return true;
	}
	return false;
}
