/*
 * See log.h.
 *
 * The memory that parent and keeper share: each writes on its own side only, except for the parent when the keeper has ended.
 * A keeper that was killed while it wrote leaves at worst one line that is cut, or a wrong count.
 */
#include "keeper/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <syslog.h>

#include "config/config.h"
#include "keeper/clock.h"
#include "keeper/logline.h"
#include "wire/text.h"

#define LOG_HOST_BYTES 128

enum log_side { LOG_PARENT, LOG_KEEPER, LOG_SIDES };

/* What parent and keeper share. */
struct log_common {
	int levels[LOG_BYS]; /* level + 1; 0: none */
	char host[LOG_HOST_BYTES];
	struct {
		uint64_t unwritten;
		int error; /* of the latest of these */
	} sides[LOG_SIDES];
};

struct log_memory {
	struct log_common common;
	struct logcauses causes[LOG_SIDES];
};

static struct log_common alone; /* until log_init(), and if there is no memory to share; then each line is written */
static struct log_common *common = &alone;
static struct logcauses *causes; /* of both sides */
static enum log_side side = LOG_PARENT;
static struct logsink sink = LOGSINK_BEGIN;

void log_make_one_line(char *text)
{
	for (char *p = text; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			*p = '?';
	text_make_printable(text, strlen(text));
}

const char *log_event_name(enum event_kind kind)
{
	return logname_of(kind);
}

/* --- the level --- */

void log_set_level(enum log_by by, int level)
{
	__atomic_store_n(&common->levels[by], level + 1, __ATOMIC_RELAXED);
}

int log_level(enum log_by *by)
{
	for (int i = LOG_BYS - 1; i > LOG_BY_DEFAULT; i--) {
		int level = __atomic_load_n(&common->levels[i], __ATOMIC_RELAXED) - 1;

		if (level < 0)
			continue;
		if (by)
			*by = (enum log_by)i;
		return level;
	}
	if (by)
		*by = LOG_BY_DEFAULT;
	return LOG_INFO;
}

const char *log_by_name(enum log_by by)
{
	static const char *const names[LOG_BYS] = {
		[LOG_BY_DEFAULT] = "default",
		[LOG_BY_CONFIGURATION] = "log_level",
		[LOG_BY_ENVIRONMENT] = "DFLOCK_LOG",
		[LOG_BY_COMMAND] = "dflock log-level",
	};

	return names[by];
}

/* --- writing --- */

static int log_send(const struct log_line *line, const char *more)
{
	char text[LOGSINK_TEXT_BYTES], host[LOG_HOST_BYTES];
	struct log_line whole = *line;

	snprintf(text, sizeof(text), "%s%s", line->text, more);
	log_make_one_line(text);
	whole.text = text;
	snprintf(host, sizeof(host), "%.*s", LOG_HOST_BYTES - 1, common->host);
	return logsink_write(&sink, &whole, host);
}

/* False: there is still no room. */
static bool log_tell_unwritten(enum log_side of)
{
	char text[128];

	if (!common->sides[of].unwritten)
		return true;
	snprintf(text, sizeof(text), "%llu lines of this log could not be written: %s",
		 (unsigned long long)common->sides[of].unwritten, strerror(common->sides[of].error));
	if (log_send(&(struct log_line){.kind = LINE_LINES_LOST, .text = text}, "") < 0)
		return false;
	common->sides[of].unwritten = 0;
	return true;
}

static void log_write(const struct log_line *line, const char *more)
{
	int ret = log_tell_unwritten(side) ? log_send(line, more) : -common->sides[side].error;

	if (ret == 0)
		return;
	common->sides[side].error = -ret;
	common->sides[side].unwritten++;
}

/* What is left to be told, of which the level wants to know. */
static void log_tell_due(enum log_side of, bool flush)
{
	struct log_line line;
	char more[LOGCAUSE_MORE];
	int64_t now = clock_now_ns();

	while (causes && logcause_due(&causes[of], flush, now, &line, more))
		if (logname_level(line.kind) <= log_level(NULL))
			log_write(&line, more);
}

uint64_t log_unwritten(void)
{
	return common->sides[LOG_PARENT].unwritten + common->sides[LOG_KEEPER].unwritten;
}

void log_tick(void)
{
	log_tell_due(side, false);
	log_tell_unwritten(side);
}

void log_flush(void)
{
	log_tell_due(side, true);
	log_tell_unwritten(side);
}

__attribute__((format(printf, 3, 0))) static void log_line(enum event_kind kind, const struct log_about *about,
							   const char *format, va_list args)
{
	char text[2048], more[LOGCAUSE_MORE] = "";
	struct log_line line = {.kind = kind, .site = format, .text = text};
	int level = log_level(NULL), len = 0;

	if (logname_level(kind) > level)
		return;
	if (about) {
		line.subject = about->lock ? about->lock : about->subject;
		line.is_lock = about->lock != NULL;
		line.store = about->store;
		line.pid = about->pid;
	}
	if (kind < EVENT_KINDS)
		len = snprintf(text, sizeof(text), "event=%s: ", logname_of(kind));
	vsnprintf(text + len, sizeof(text) - (size_t)len, format, args);
	log_make_one_line(text);
	if (kind == LINE_DEBUG || !causes ||
	    logcause_admit(&causes[side], &line, level == LOG_DEBUG, clock_now_ns(), more))
		log_write(&line, more);
}

void log_event(enum event_kind kind, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	log_line(kind, NULL, format, args);
	va_end(args);
}

void log_about(enum event_kind kind, const struct log_about *about, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	log_line(kind, about, format, args);
	va_end(args);
}

void log_process(enum event_kind kind, pid_t pid, const char *format, ...)
{
	char subject[32];
	va_list args;

	snprintf(subject, sizeof(subject), "pid %d", (int)pid);
	va_start(args, format);
	log_line(kind, &(struct log_about){.subject = subject, .pid = pid}, format, args);
	va_end(args);
}

void log_debug(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	log_line(LINE_DEBUG, NULL, format, args);
	va_end(args);
}

/* --- start and end --- */

void log_init(bool foreground, const char *environment)
{
	struct log_memory *memory =
		mmap(NULL, sizeof(*memory), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int level = environment ? config_log_level(environment) : -1;

	if (memory != MAP_FAILED) {
		common = &memory->common;
		causes = memory->causes;
	}
	logsink_open(&sink, foreground, LOGSINK_JOURNAL, LOGSINK_SYSLOG);
	log_set_level(LOG_BY_ENVIRONMENT, level);
	if (environment && *environment && level < 0)
		log_event(LINE_LOG_LEVEL, "DFLOCK_LOG is \"%.40s\"; expected " CONFIG_LOG_LEVELS, environment);
}

void log_stay_resident(void)
{
	if (causes)
		mlock(&causes[LOG_PARENT], sizeof(causes[LOG_PARENT]));
}

void log_begin_keeper(void)
{
	side = LOG_KEEPER;
}

void log_keeper_ended(void)
{
	log_tell_due(LOG_KEEPER, true);
	log_tell_unwritten(LOG_KEEPER);
}

void log_set_host(const char *host)
{
	snprintf(common->host, sizeof(common->host), "%s", host);
}
