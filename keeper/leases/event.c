/* See event.h. */
#include "keeper/leases/event.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <utlist.h>

#include "keeper/guard/deeds.h"
#include "keeper/kernel/hook.h"
#include "keeper/leases/keeper.h"

#define EVENT_PIDS 64

/* Events of one kind that wait for the command. */
struct event_entry {
	enum event_kind kind;
	json_t *first;  /* the fields of the first; becomes the document */
	json_t *others; /* those of the next EVENT_OTHERS */
	json_int_t count;
	time_t last;
	struct event_entry *prev, *next;
};

struct events {
	struct event_entry *waiting; /* at most one of each kind */
	struct hook hook;
	uv_timer_t gather;
	json_int_t number;          /* of the event that was told last */
	char said[HOOK_SAID_BYTES]; /* what the log says of the command; "": it worked the last time */
};

static void event_next(struct keeper *k);

/* --- the document --- */

/* Names may be any bytes, and JSON has none but UTF-8. */
static json_t *event_text(const char *text)
{
	json_t *value = json_string(text);
	char *copy = value ? NULL : strdup(text);

	for (char *p = copy; p && *p; p++)
		if ((unsigned char)*p >= 0x80)
			*p = '?';
	if (copy)
		value = json_string(copy);
	free(copy);
	return value;
}

static void event_set_text(json_t *doc, const char *key, const char *text)
{
	if (text && *text)
		json_object_set_new(doc, key, event_text(text));
}

static void event_set_number(json_t *doc, const char *key, int64_t number)
{
	if (number)
		json_object_set_new(doc, key, json_integer(number));
}

static void event_set_range(json_t *doc, const struct store_range *range)
{
	if (!range)
		return;
	event_set_text(doc, "space", range->space == WIRE_FLOCK ? "flock" : "record");
	event_set_text(doc, "mode", range->mode == WIRE_SHARED ? "shared" : "exclusive");
	json_object_set_new(doc, "from", json_integer(range->from));
	json_object_set_new(doc, "to", range->to == WIRE_EOF ? json_null() : json_integer(range->to));
}

static void event_set_processes(json_t *doc, const struct event *e)
{
	size_t shown = e->pid_count < EVENT_PIDS ? e->pid_count : EVENT_PIDS;
	json_t *pids;

	event_set_number(doc, "processes", (int64_t)(e->processes ? e->processes : e->pid_count));
	if (!shown)
		return;
	pids = json_array();
	for (size_t i = 0; i < shown; i++)
		json_array_append_new(pids, json_integer(e->pids[i]));
	json_object_set_new(doc, "pids", pids);
}

static json_t *event_fields(const struct event *e, const char *message, time_t now)
{
	json_t *doc = json_object();

	json_object_set_new(doc, "time", json_integer(now));
	event_set_text(doc, "message", message);
	event_set_text(doc, "name", e->name);
	event_set_text(doc, "path", e->path);
	event_set_range(doc, e->range);
	event_set_number(doc, "fence", (int64_t)e->fence);
	event_set_processes(doc, e);
	event_set_text(doc, "command", e->command);
	event_set_text(doc, "holder", e->holder);
	event_set_text(doc, "reason", e->reason);
	if (e->for_ms)
		json_object_set_new(doc, "seconds", json_real((double)e->for_ms / 1000));
	return doc;
}

/* The caller frees it. NULL: no memory left. */
static char *event_document(const struct keeper *k, const struct event_entry *entry)
{
	json_t *doc = entry->first;

	event_set_text(doc, "event", log_event_name(entry->kind));
	event_set_text(doc, "host", k->host);
	event_set_text(doc, "runtime_dir", k->runtime_dir);
	json_object_set_new(doc, "number", json_integer(k->events->number));
	json_object_set_new(doc, "count", json_integer(entry->count));
	json_object_set_new(doc, "last", json_integer(entry->last));
	json_object_set(doc, "others", entry->others);
	return json_dumps(doc, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(12));
}

/* --- the command --- */

static void event_entry_free(struct keeper *k, struct event_entry *entry)
{
	DL_DELETE(k->events->waiting, entry);
	json_decref(entry->first);
	json_decref(entry->others);
	free(entry);
}

/* The same trouble is in the log once, until the command has worked again. */
static void event_say_trouble(struct keeper *k, const char *said)
{
	struct events *events = k->events;

	if (*said && strcmp(said, events->said) != 0)
		log_event(LINE_COMMAND_FAILED, "on_event: %s", said);
	snprintf(events->said, sizeof(events->said), "%s", said);
}

static void on_event_told(void *arg, const char *said)
{
	event_say_trouble(arg, said);
	event_next(arg);
}

static int event_run(struct keeper *k, const struct event_entry *entry)
{
	char kind[64], config[PATH_MAX + 16], dir[PLACE_DIR_BYTES + 32];
	char *env[] = {kind, config, dir, NULL}, *text;
	int ret;

	snprintf(kind, sizeof(kind), "DFLOCK_EVENT=%s", log_event_name(entry->kind));
	snprintf(config, sizeof(config), "DFLOCK_CONFIG=%s", k->config->path);
	snprintf(dir, sizeof(dir), "DFLOCK_RUNTIME_DIR=%s", k->runtime_dir);
	k->events->number++;
	text = event_document(k, entry);
	if (!text)
		return -ENOMEM;
	ret = hook_start(&k->events->hook, k->config->on_event, env, text, strlen(text));
	free(text);
	return ret;
}

/* Starts the command for the first event that waits; without a command in force, there is no event to tell. */
static void event_next(struct keeper *k)
{
	struct events *events = k->events;

	while (events->waiting && !hook_is_running(&events->hook)) {
		int ret = k->config->on_event ? event_run(k, events->waiting) : 0;
		char said[HOOK_SAID_BYTES];

		if (ret < 0) {
			snprintf(said, sizeof(said), "%.300s cannot be started: %s", k->config->on_event[0],
				 strerror(-ret));
			event_say_trouble(k, said);
		}
		event_entry_free(k, events->waiting);
	}
}

static void on_event_gathered(uv_timer_t *timer)
{
	event_next(timer->data);
}

/* --- raising --- */

static enum event_kind event_opposite(enum event_kind kind)
{
	switch (kind) {
	case EVENT_STORE_AWAY:
		return EVENT_STORE_BACK;
	case EVENT_STORE_BACK:
		return EVENT_STORE_AWAY;
	case EVENT_HOLDERS_FROZEN:
		return EVENT_HOLDERS_THAWED;
	case EVENT_HOLDERS_THAWED:
		return EVENT_HOLDERS_FROZEN;
	default:
		return kind;
	}
}

static struct event_entry *event_waiting(const struct events *events, enum event_kind kind)
{
	struct event_entry *entry;

	DL_FOREACH (events->waiting, entry)
		if (entry->kind == kind)
			return entry;
	return NULL;
}

static void event_add(struct keeper *k, const struct event *e, const char *message)
{
	struct events *events = k->events;
	struct event_entry *entry = event_waiting(events, e->kind);
	time_t now = time(NULL);

	if (!entry) {
		entry = calloc(1, sizeof(*entry));
		if (!entry)
			return; /* the log has it */
		entry->kind = e->kind;
		entry->first = event_fields(e, message, now);
		entry->others = json_array();
		DL_APPEND(events->waiting, entry);
	} else {
		if (json_array_size(entry->others) < EVENT_OTHERS)
			json_array_append_new(entry->others, event_fields(e, message, now));
		if (event_waiting(events, event_opposite(e->kind)) != entry) { /* behind it */
			DL_DELETE(events->waiting, entry);
			DL_APPEND(events->waiting, entry);
		}
	}
	entry->count++;
	entry->last = now;
	if (!hook_is_running(&events->hook) && !uv_is_active((uv_handle_t *)&events->gather))
		uv_timer_start(&events->gather, on_event_gathered, EVENT_GATHER_MS, 0);
}

static bool event_is_wanted(const struct keeper *k)
{
	return k->events && k->config->on_event;
}

void event_raise(struct keeper *k, const struct event *e, const char *format, ...)
{
	char message[2048];
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	log_about(e->kind,
		  &(struct log_about){.lock = e->name, .store = e->store, .pid = e->pid_count ? e->pids[0] : 0}, "%s",
		  message);
	log_make_one_line(message);
	if (event_is_wanted(k))
		event_add(k, e, message);
}

/* The file that the parent names by its inode; a lost lease's may be known no more. */
static void event_name_file(struct keeper *k, const struct deed *deed, struct event *e)
{
	const struct file *file = deed->ino ? file_find(k, deed->dev, deed->ino) : NULL;
	const struct lost_lease *lost;

	if (file && !e->name) {
		e->name = file->name;
		e->path = file->path;
	}
	DL_FOREACH (k->lost.all, lost)
		if (!e->name && deed->ino && lost->file.dev == deed->dev && lost->file.ino == deed->ino) {
			e->name = lost->name;
			e->path = lost->path;
		}
}

void event_take_deeds(struct keeper *k)
{
	struct deed deed;

	while (deeds_take(k->table, &deed)) {
		const struct order *o = deed.order ? order_at(k->table, deed.order - 1) : NULL;
		struct event e = {.kind = deed.kind,
				  .name = o ? o->name : NULL,
				  .path = o ? o->path : NULL,
				  .pids = deed.pids,
				  .pid_count = deed.pid_count,
				  .processes = deed.processes,
				  .for_ms = o ? o->held_ms : 0,
				  .reason = o ? "held for longer than kill_after_ms" : NULL};

		event_name_file(k, &deed, &e);
		if (event_is_wanted(k))
			event_add(k, &e, deed.text);
	}
}

/* --- start and end --- */

int event_start(struct keeper *k)
{
	struct events *events = calloc(1, sizeof(*events));

	if (!events)
		return -ENOMEM;
	hook_init(&events->hook, k->loop, on_event_told, k);
	uv_timer_init(k->loop, &events->gather);
	events->gather.data = k;
	k->events = events;
	return 0;
}

void event_stop(struct keeper *k)
{
	struct events *events = k->events;
	unsigned left = 0;
	struct event_entry *entry;

	event_next(k);
	DL_FOREACH (events->waiting, entry)
		left++;
	if (left)
		log_event(LINE_COMMAND_FAILED, "on_event: the keeper ends; %u kinds of events are not told", left);
	while (events->waiting)
		event_entry_free(k, events->waiting);
	hook_stop(&events->hook);
	uv_close((uv_handle_t *)&events->gather, NULL);
}

void event_free(struct keeper *k)
{
	free(k->events);
	k->events = NULL;
}
