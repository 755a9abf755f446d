/* See stopped.h. */
#include "keeper/guard/stopped.h"

#include <signal.h>
#include <stdlib.h>

#include "keeper/clock.h"

#define SIGNALLED_ANCESTORS 64                 /* of one process */
#define SIGNALLED_KIN_NS    (5000 * NS_PER_MS) /* so long after SIGCONT a parent may still stop itself */
#define SIGNALLED_AGAIN_NS  (50 * NS_PER_MS)   /* between two looks for such processes */

static struct table_signalled *signalled_find(const struct signalled *s, pid_t pid, enum table_noted noted)
{
	for (size_t i = 0; i < s->room; i++)
		if (s->noted[i].pid == pid && (!pid || s->noted[i].noted == noted))
			return &s->noted[i];
	return NULL;
}

static bool signalled_has(const struct signalled *s, const struct procfs_stat *stat, enum table_noted noted)
{
	const struct table_signalled *found = signalled_find(s, stat->pid, noted);

	return found && found->started == stat->started;
}

/* If there is no room for the note, the next parent takes the process for one that was stopped before. */
void signalled_add(struct signalled *s, const struct procfs_stat *stat, enum table_noted noted)
{
	struct table_signalled *entry = signalled_find(s, stat->pid, noted);

	if (!entry)
		entry = signalled_find(s, 0, noted);
	if (!entry || (noted != TABLE_OURS && entry >= s->noted + s->room / 2))
		return;
	entry->started = stat->started;
	entry->noted = noted;
	__atomic_store_n(&entry->pid, stat->pid, __ATOMIC_RELEASE);
}

static bool signalled_has_kin(const struct signalled *s, const struct procfs_stat *stat)
{
	return signalled_has(s, stat, TABLE_KIN) || signalled_has(s, stat, TABLE_STOPPED_KIN);
}

static bool signalled_has_any(const struct signalled *s, enum table_noted noted)
{
	for (size_t i = 0; i < s->room; i++)
		if (s->noted[i].pid && s->noted[i].noted == noted)
			return true;
	return false;
}

static void signalled_drop(struct table_signalled *entry)
{
	__atomic_store_n(&entry->pid, 0, __ATOMIC_RELEASE);
}

void signalled_init(struct signalled *s, struct table_signalled *noted, size_t room)
{
	*s = (struct signalled){.noted = noted, .room = room};
	for (size_t i = 0; i < room; i++)
		if (noted[i].pid && family_started(noted[i].pid) != noted[i].started)
			signalled_drop(&noted[i]); /* it has ended, and perhaps another has its number */
	if (!signalled_has_any(s, TABLE_OURS) &&
	    (signalled_has_any(s, TABLE_KIN) ||
	     signalled_has_any(s, TABLE_STOPPED_KIN))) /* the earlier parent died while it watched them */
		s->kin_until_ns = clock_now_ns() + SIGNALLED_KIN_NS;
}

void signalled_note_kin(struct signalled *s, const struct procfs_stat *kin)
{
	if (signalled_has_kin(s, kin))
		return;
	signalled_add(s, kin, TABLE_KIN);
	for (size_t i = 0; i < s->before_count; i++)
		if (s->before[i].state == 'T' && (s->before[i].group == kin->group || s->before[i].pid == kin->pid))
			signalled_add(s, &s->before[i], TABLE_BEFORE);
}

void signalled_note(struct signalled *s, pid_t pid)
{
	struct procfs_stat stat;

	if (!s->before && family_all(&s->before, &s->before_count) < 0)
		s->before_count = 0;
	if (!family_stat(pid, &stat))
		return;
	signalled_add(s, &stat, TABLE_OURS);
	for (int i = 0; i < SIGNALLED_ANCESTORS && stat.parent > 1 && family_stat(stat.parent, &stat); i++)
		signalled_note_kin(s, &stat);
}

void signalled_forget(struct signalled *s, pid_t pid)
{
	struct table_signalled *entry = signalled_find(s, pid, TABLE_OURS);

	if (entry)
		signalled_drop(entry);
}

void signalled_continue(struct signalled *s, pid_t pid)
{
	kill(pid, SIGCONT);
	signalled_forget(s, pid);
	s->kin_until_ns = clock_now_ns() + SIGNALLED_KIN_NS;
	s->kin_looked_ns = 0;
	free(s->before);
	s->before = NULL;
	s->before_count = 0;
}

/* Goes by the process groups as they are now. */
static bool signalled_is_kin(const struct signalled *s, const struct procfs_stat *p, const struct procfs_stat *all,
			     size_t count)
{
	if (signalled_has_kin(s, p))
		return true;
	for (size_t i = 0; i < count; i++)
		if (all[i].group == p->group &&
		    signalled_has(s, &all[i], TABLE_STOPPED_KIN)) /* mutant: signalled-group */
			return true;
	return false;
}

/* By SIGSTOP, but neither by ours nor before it. */
static bool signalled_has_stopped(const struct signalled *s, const struct procfs_stat *p)
{
	return p->state == 'T' && (!p->stop_signal || p->stop_signal == SIGSTOP) && !signalled_has(s, p, TABLE_OURS) &&
	       !signalled_has(s, p, TABLE_BEFORE);
}

void signalled_note_stopped(struct signalled *s, const struct procfs_stat *all, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (signalled_has(s, &all[i], TABLE_KIN) && signalled_has_stopped(s, &all[i]))
			signalled_find(s, all[i].pid, TABLE_KIN)->noted = TABLE_STOPPED_KIN;
}

bool signalled_is_to_go_on(const struct signalled *s, const struct procfs_stat *p, const struct procfs_stat *all,
			   size_t count)
{
	return signalled_has_stopped(s, p) && signalled_is_kin(s, p, all, count);
}

static void signalled_forget_kin(struct signalled *s)
{
	for (size_t i = 0; i < s->room; i++)
		if (s->noted[i].pid && s->noted[i].noted != TABLE_OURS)
			signalled_drop(&s->noted[i]);
	s->kin_until_ns = 0;
}

bool signalled_continue_kin(struct signalled *s)
{
	int64_t now = clock_now_ns();
	struct procfs_stat *all;
	size_t count;

	/* su(1) that is continued continues its child. */
	if (!s->kin_until_ns || signalled_has_any(s, TABLE_OURS))
		return false;
	if (now - s->kin_looked_ns < SIGNALLED_AGAIN_NS)
		return true;
	s->kin_looked_ns = now;
	if (family_all(&all, &count) < 0)
		count = 0;
	signalled_note_stopped(s, all, count);
	for (size_t i = 0; i < count; i++)
		if (signalled_is_to_go_on(s, &all[i], all, count))
			kill(all[i].pid, SIGCONT);
	free(all);
	if (now > s->kin_until_ns)
		signalled_forget_kin(s);
	return s->kin_until_ns != 0;
}
