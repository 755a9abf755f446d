/*
 * See farewell.h.
 *
 * The path comes from the link /proc/PID/fd/FD, which the kernel answers without asking a file server: the slots have no
 * names. The search that found the process has noted the descriptor. The parent has stopped a process that it kills, so the
 * descriptor is still there. A process that the parent asks to end runs on: if it has closed the file meanwhile,
 * the line may name another file or say the number of the inode.
 */
#include "keeper/guard/farewell.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "keeper/clock.h"
#include "keeper/guard/lastwords.h"
#include "keeper/guard/slots.h"
#include "wire/text.h"

#define FAREWELL_PATH    400 /* bytes of a path that are shown */
#define FAREWELL_LINE    900
#define FAREWELL_PARENTS 64 /* ancestors of one process that are looked at */

static void farewell_path(pid_t pid, int fd, const struct table_view *view, char out[FAREWELL_PATH])
{
	char link[64];
	ssize_t len;

	snprintf(link, sizeof(link), "/proc/%d/fd/%d", (int)pid, fd);
	len = readlink(link, out, FAREWELL_PATH - 1);
	if (len <= 0) {
		snprintf(out, FAREWELL_PATH, "inode %llu of device %u:%u", (unsigned long long)view->file.ino,
			 major(view->file.dev), minor(view->file.dev));
		return;
	}
	out[len] = '\0';
	text_make_printable(out, (size_t)len);
}

static const char *farewell_why(const struct table_view *view)
{
	switch (view->why) {
	case TABLE_WHY_TAKEN:
		return "its lease was not renewed in time, and the store gave it up: another host may have had the "
		       "lock";
	case TABLE_WHY_FORGOTTEN:
		return "the store lost its memory, and the lease had run out or could not be put back: it cannot "
		       "be known whether another host has had the lock";
	case TABLE_WHY_BROKEN:
		return "an operator took it away with `dflock break`";
	case TABLE_WHY_KEY:
		return "a Redis client has had its key (redis_key), or may have had it";
	default:
		return "the keeper that had its lease has ended, and no other has taken it up in time";
	}
}

static void farewell_line(enum farewell_end how, const char *file, const struct table_view *view,
			  char out[FAREWELL_LINE])
{
	if (how == FAREWELL_LOST && view->why == TABLE_WHY_BROKEN)
		snprintf(out, FAREWELL_LINE, "%s: the lock is gone: %s; this process is killed", file,
			 farewell_why(view));
	else if (how == FAREWELL_LOST)
		snprintf(out, FAREWELL_LINE,
			 "%s: the lock was lost: %s; this process is killed (on_lost, see dflockd(8))", file,
			 farewell_why(view));
	else
		snprintf(out, FAREWELL_LINE,
			 "%s: the lock is about to be lost: the store has not answered, and the lease runs out; this "
			 "process is %s (on_lost = \"kill\", see dflockd(8))",
			 file, how == FAREWELL_ASK ? "asked to end by SIGTERM" : "killed");
}

/* For a process that has no descriptor with such a lock: the line of an ancestor that has one. NULL: there is none. */
static const char *farewell_to(const struct table *table, const struct family *family, enum farewell_end how, pid_t pid)
{
	char file[FAREWELL_PATH], line[FAREWELL_LINE];
	struct procfs_stat stat = {.parent = pid};
	struct table_view view;
	uint64_t tag;
	int fd = -1;

	for (int i = 0; fd < 0 && i <= FAREWELL_PARENTS; i++) {
		pid = stat.parent;
		fd = family_shown(family, pid, &tag);
		if (fd < 0 && (pid <= 1 || !family_stat(pid, &stat)))
			return NULL;
	}
	if (fd < 0)
		return NULL;
	table_view(table, slots_tag_slot(tag), &view);
	farewell_path(pid, fd, &view, file);
	farewell_line(how, file, &view, line);
	return strdup(line);
}

int farewell_ms(struct table *table)
{
	int64_t now = clock_now_ns();
	struct slots_times times;
	int64_t left = slots_first(table, slots_stores(table, SLOTS_SURE_UNTIL), now, &times)
			       ? (times.deadline_ns - now) / NS_PER_MS / 10
			       : -1;

	return left < 0 || left > LASTWORDS_MS ? LASTWORDS_MS : (int)left;
}

bool farewell(struct table *table, const struct family *family, enum farewell_end how, bool last)
{
	size_t count = family_count(family);
	struct lastword *words = calloc(count + 1, sizeof(*words));
	bool told;

	for (size_t i = 0; words && i < count; i++)
		words[i] = (struct lastword){.pid = family_at(family, i),
					     .line = farewell_to(table, family, how, family_at(family, i))};
	told = !words || lastwords(words, count, farewell_ms(table), last);
	for (size_t i = 0; words && i < count; i++)
		free((char *)words[i].line);
	free(words);
	return told;
}
