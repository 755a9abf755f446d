/*
 * See farewell.h.
 *
 * The path comes from the link /proc/PID/fd/FD, which the kernel answers without asking a file server: the slots have no
 * names.
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
#include "keeper/kernel/holders.h"

#define FAREWELL_PATH    400 /* bytes of a path that are shown */
#define FAREWELL_LINE    900
#define FAREWELL_PARENTS 64 /* ancestors of one process that are looked at */

struct farewell {
	struct table *table;
	struct claims claims; /* tag: the slot */
	enum farewell_end how;
	struct lastword *words; /* by pid; line NULL: no line so far */
	size_t count;
};

static int farewell_by_pid(const void *a, const void *b)
{
	const struct lastword *x = a, *y = b;

	return x->pid < y->pid ? -1 : x->pid > y->pid;
}

static struct lastword *farewell_word(const struct farewell *f, pid_t pid)
{
	const struct lastword key = {.pid = pid};

	return bsearch(&key, f->words, f->count, sizeof(*f->words), farewell_by_pid);
}

static void farewell_path(const struct holder *h, const struct table_view *view, char out[FAREWELL_PATH])
{
	char link[64];
	ssize_t len;

	snprintf(link, sizeof(link), "/proc/%d/fd/%d", (int)h->pid, h->fd);
	len = readlink(link, out, FAREWELL_PATH - 1);
	if (len <= 0) {
		snprintf(out, FAREWELL_PATH, "inode %llu of device %u:%u", (unsigned long long)view->file.ino,
			 major(view->file.dev), minor(view->file.dev));
		return;
	}
	out[len] = '\0';
	for (char *c = out; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
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

static int farewell_on_holder(void *arg, const struct holder *h)
{
	struct farewell *f = arg;
	struct lastword *word = farewell_word(f, h->pid);
	size_t next = SIZE_MAX;
	const struct claim *claim = claims_next(&f->claims, h->file, h->space, h->from, h->to, &next);
	char file[FAREWELL_PATH], line[FAREWELL_LINE];
	struct table_view view;

	if (!claim)
		return 0;
	if (!word || word->line)
		return HOLDERS_LATER;
	table_view(f->table, slots_tag_slot(claim->tag), &view);
	farewell_path(h, &view, file);
	farewell_line(f->how, file, &view, line);
	word->line = strdup(line);
	return HOLDERS_LATER;
}

/* For a process that holds no lock itself, or holds it only through a mapping: the line of an ancestor. */
static const char *farewell_of_parent(const struct farewell *f, pid_t pid)
{
	struct procfs_stat stat;

	for (int i = 0; i < FAREWELL_PARENTS && pid > 1 && family_stat(pid, &stat); i++) {
		const struct lastword *word = farewell_word(f, stat.parent);

		if (word && word->line)
			return strdup(word->line);
		pid = stat.parent;
	}
	return NULL;
}

int farewell_ms(const struct table *table)
{
	int64_t left = (slots_deadline_ns(table) - clock_now_ns()) / NS_PER_MS / 10;

	return left < 0 || left > LASTWORDS_MS ? LASTWORDS_MS : (int)left;
}

static bool farewell_write(struct farewell *f, const struct family *family, pid_t keeper, bool last)
{
	struct holders_search ask = {.files = f->claims.files,
				     .count = f->claims.file_count,
				     .ignore_pid = keeper,
				     .how = HOLDERS_AT_ONCE,
				     .cb = farewell_on_holder,
				     .arg = f};

	for (; f->count < family_count(family); f->count++)
		f->words[f->count].pid = family_at(family, f->count);
	qsort(f->words, f->count, sizeof(*f->words), farewell_by_pid);
	holders_search(&ask);
	for (size_t i = 0; i < f->count; i++)
		if (!f->words[i].line)
			f->words[i].line = farewell_of_parent(f, f->words[i].pid);
	return lastwords(f->words, f->count, farewell_ms(f->table), last);
}

bool farewell(struct table *table, unsigned which, const struct family *family, enum farewell_end how, pid_t keeper,
	      bool last)
{
	struct farewell f = {.table = table, .how = how};
	bool told = true;

	if (!family_count(family))
		return true;
	f.words = calloc(family_count(family), sizeof(*f.words));
	if (f.words && slots_claims(table, which, &f.claims) == 0)
		told = farewell_write(&f, family, keeper, last);
	for (size_t i = 0; i < f.count; i++)
		free((char *)f.words[i].line);
	free(f.words);
	claims_free(&f.claims);
	return told;
}
