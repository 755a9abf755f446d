/* See hidden.h. */
#include "keeper/leases/hidden.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"
#include "keeper/log.h"

#define UNSEEN_MOST 4096 /* leases in one look */

struct hidden_row {
	char token[STORE_TOKEN_BYTES];
	bool found;
	pid_t pid;
};

static int hidden_on_holder(struct survey *survey, const struct holder *h)
{
	const struct hidden *u = (const struct hidden *)survey;
	const struct claim *claim;
	size_t next = SIZE_MAX;

	while (h->how != HOLDER_SHOWN && h->sight == SIGHT_BEYOND && (claim = survey_claim(survey, h, &next))) {
		struct hidden_row *row = &u->rows[claim->tag];

		row->pid = row->found ? row->pid : h->pid;
		row->found = true;
	}
	return 0;
}

static void say(struct lease *lease, pid_t pid)
{
	const struct file *file = lease->lock->file;
	char who[64] = "a process that the keeper cannot find or may not look into";

	if (lease->unseen == UNSEEN_SAID)
		return;
	lease->unseen = UNSEEN_SAID;
	if (pid)
		snprintf(who, sizeof(who), "pid %d, which the keeper may not look into", (int)pid);
	log_about(LINE_NOT_STOPPABLE, &(struct log_about){.lock = file->name, .pid = pid},
		  "%s (%s): its lock is held by %s: it cannot be stopped if the store does not answer, and another "
		  "host may then get the lock; see \"unstoppable\" in dflock.conf(5)",
		  file->name, file->path, who);
}

static int hidden_begin(struct survey *survey)
{
	struct keeper *k = survey->all->keeper;
	struct hidden *u = &k->hidden;
	struct lease *lease, *next;

	u->count = u->due_count = 0;
	u->rows = calloc(UNSEEN_MOST, sizeof(*u->rows));
	if (!u->rows)
		return -ENOMEM;
	HASH_ITER (hh, k->leases, lease, next) {
		struct holders_file file = file_searched(lease->lock->file);

		if (lease->unseen != UNSEEN_DUE)
			continue;
		if (u->count == UNSEEN_MOST) {
			u->due_count++;
			continue;
		}
		lease->unseen = UNSEEN_LEFT_ALONE;
		if (claims_add(&survey->claims, &file, lease->range.space, lease->range.from, lease->range.to,
			       u->count) == 0)
			memcpy(u->rows[u->count++].token, lease->token, sizeof(lease->token));
	}
	return 0;
}

static void hidden_ask(struct keeper *k);

static void hidden_done(struct survey *survey)
{
	struct keeper *k = survey->all->keeper;
	struct hidden *u = &k->hidden;

	for (size_t i = 0; !survey->error && i < u->count; i++) {
		struct lease *lease = u->rows[i].found ? lease_find(k, u->rows[i].token) : NULL;

		if (lease)
			say(lease, u->rows[i].pid);
	}
	free(u->rows);
	u->rows = NULL;
	u->asked = false;
	if (u->due_count)
		hidden_ask(k);
}

static void hidden_ask(struct keeper *k)
{
	struct hidden *u = &k->hidden;

	u->survey = (struct survey){.lazy = true, .begin = hidden_begin, .row = hidden_on_holder, .done = hidden_done};
	u->asked = survey_ask(k, &u->survey) == 0;
}

void hidden_due(struct lease *lease)
{
	struct keeper *k = lease->lock->file->keeper;

	if (lease->unseen != UNSEEN_LEFT_ALONE || k->leaving)
		return;
	lease->unseen = UNSEEN_DUE;
	k->hidden.due_count++;
	if (!k->hidden.asked)
		hidden_ask(k);
}
