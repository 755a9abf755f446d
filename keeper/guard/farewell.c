/*
 * See farewell.h.
 *
 * The path comes from the link /proc/PID/fd/FD, which the kernel answers without asking a file server: the fence has
 * no names, and the parent none of its own.
 */
#include "keeper/guard/farewell.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "keeper/kernel/holders.h"
#include "keeper/guard/lastwords.h"

#define PATH_SHOWN  400
#define LINE_BYTES  900
#define MAX_PARENTS 64

struct farewell {
	const struct fence *fence;
	struct claims *claims;
	enum farewell_end how;
	struct lastword *words; /* by pid; line NULL: none yet */
	char **own;             /* the lines that are to be freed */
	size_t count;
};

static int compare(const void *a, const void *b)
{
	const struct lastword *x = a, *y = b;

	return x->pid < y->pid ? -1 : x->pid > y->pid;
}

static struct lastword *find(const struct farewell *f, pid_t pid)
{
	const struct lastword key = {.pid = pid};

	return bsearch(&key, f->words, f->count, sizeof(*f->words), compare);
}

static void file_name(const struct holder *h, const struct fence_slot *slot, char out[PATH_SHOWN])
{
	char link[64];
	ssize_t len;

	snprintf(link, sizeof(link), "/proc/%d/fd/%d", (int)h->pid, h->fd);
	len = readlink(link, out, PATH_SHOWN - 1);
	if (len <= 0) {
		snprintf(out, PATH_SHOWN, "inode %llu of device %u:%u", (unsigned long long)slot->ino, major(slot->dev),
			 minor(slot->dev));
		return;
	}
	out[len] = '\0';
	for (char *c = out; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
}

static const char *why(const struct fence_slot *slot)
{
	switch (__atomic_load_n(&slot->why, __ATOMIC_RELAXED)) {
	case FENCE_WHY_TAKEN:
		return "its lease was not renewed in time, and the store gave it up: another host may have had the "
		       "lock";
	case FENCE_WHY_FORGOTTEN:
		return "the store lost its memory, and the lease had run out or could not be put back: nobody can tell "
		       "whether another host has had the lock";
	default:
		return "the keeper that had its lease has ended, and no other has taken it up in time";
	}
}

static void write_line(enum farewell_end how, const char *file, const struct fence_slot *slot, char out[LINE_BYTES])
{
	if (how == FAREWELL_LOST)
		snprintf(out, LINE_BYTES, "%s: the lock was lost: %s; this process is killed (on_lost, see dflockd(8))",
			 file, why(slot));
	else
		snprintf(out, LINE_BYTES,
			 "%s: the lock is about to be lost: the store has not answered, and the lease runs out; this "
			 "process "
			 "is %s (on_lost = \"kill\", see dflockd(8))",
			 file, how == FAREWELL_ASK ? "asked to end by SIGTERM" : "killed");
}

static int on_holder(void *arg, const struct holder *h)
{
	struct farewell *f = arg;
	struct lastword *word = find(f, h->pid);
	size_t next = SIZE_MAX;
	const struct claim *claim = claims_next(f->claims, h->file, h->space, h->from, h->to, &next);
	char file[PATH_SHOWN], line[LINE_BYTES];

	if (!claim)
		return 0;
	if (!word || word->line)
		return HOLDERS_LATER;
	file_name(h, &f->fence->slots[claim->tag], file);
	write_line(f->how, file, &f->fence->slots[claim->tag], line);
	word->line = f->own[word - f->words] = strdup(line);
	return HOLDERS_LATER;
}

/* Who holds nothing was started by one that does, or has but a mapping. */
static const char *inherited(const struct farewell *f, pid_t pid)
{
	struct procfs_stat stat;

	for (int i = 0; i < MAX_PARENTS && pid > 1 && family_stat(pid, &stat); i++) {
		const struct lastword *word = find(f, stat.parent);

		if (word && word->line)
			return word->line;
		pid = stat.parent;
	}
	return NULL;
}

void farewell(const struct fence *fence, struct claims *claims, const struct family *family, enum farewell_end how,
	      pid_t keeper, int ms)
{
	struct farewell f = {.fence = fence, .claims = claims, .how = how};
	struct holders_search ask = {.files = claims->files,
				     .count = claims->file_count,
				     .ignore_pid = keeper,
				     .how = HOLDERS_AT_ONCE,
				     .cb = on_holder,
				     .arg = &f};
	size_t said = 0;

	f.words = calloc(family_count(family) + 1, sizeof(*f.words));
	f.own = calloc(family_count(family) + 1, sizeof(*f.own));
	if (f.words && f.own) {
		for (; f.count < family_count(family); f.count++)
			f.words[f.count].pid = family_at(family, f.count);
		qsort(f.words, f.count, sizeof(*f.words), compare);
		holders_search(&ask);
		for (size_t i = 0; i < f.count; i++)
			if (!f.words[i].line)
				f.words[i].line = inherited(&f, f.words[i].pid);
		for (size_t i = 0; i < f.count; i++)
			if (f.words[i].line)
				f.words[said++] = f.words[i];
		lastwords(f.words, said, ms);
	}
	for (size_t i = 0; f.own && i < f.count; i++)
		free(f.own[i]);
	free(f.words);
	free(f.own);
}
