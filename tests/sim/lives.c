/*
 * The lives of slots of the table of leases, as events of docs/model/table.pml: a letter for each store into a slot, and for what happens to
 * the keeper meanwhile. docs/model/replay.py asks the model whether it can do the same.
 *
 *   f t    the range        n z    the fence; none        s    the sum
 *   A H U R L O    the word: asked, held, unsure, returned, lost, free        M    ... and shared from now on
 *   X K    the keeper died; the next one has the table
 *
 * The keeper's stores are seen as they happen. What the parent moves is seen when somebody looks next: before the keeper's next store, when a
 * keeper dies or starts. A life ends with O; what the run's end or a power cut leaves is a beginning of one.
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "tests/sim/sim.h"

#define SLOTS  512
#define EVENTS 60

#define BYTES (1 << 20) /* of one run at once: several processes append to the file */

static FILE *lives_file;

static struct life {
	char events[EVENTS + 1];
	uint64_t word; /* as it was seen last */
	bool cut;      /* not to be told: longer, or a parent died meanwhile */
} lives[SIM_HOSTS][SLOTS];

static void add(struct life *life, char event)
{
	size_t length = strlen(life->events);

	if (length == EVENTS)
		life->cut = true;
	else
		life->events[length] = event;
}

static void end(struct life *life)
{
	if (*life->events && !life->cut)
		fprintf(lives_file, "%s\n", life->events);
	*life = (struct life){.word = life->word};
}

static void look(struct life *life, uint64_t word)
{
	static const char letters[] = "OAHURL";
	enum table_state state = table_word_state(word);

	/* From ENDING the parent goes on to FREE: mostly nobody looks in between. */
	if (state != table_word_state(life->word) && state != TABLE_ENDING)
		add(life, letters[state]);
	else if (state != TABLE_FREE && table_word_mode(word) != table_word_mode(life->word))
		add(life, 'M');
	life->word = word;
	if (state == TABLE_FREE)
		end(life);
}

static void look_at_all(struct host *host)
{
	for (uint32_t i = 0; i < host->table.head->used && i < SLOTS; i++)
		if (host->table.slots[i].word != lives[host->id][i].word)
			look(&lives[host->id][i], host->table.slots[i].word);
}

void lives_store(struct host *host, const void *at, uint64_t value)
{
	const char *slots = (const char *)host->table.slots;
	size_t offset = (size_t)((const char *)at - slots), slot = offset / sizeof(struct table_slot);
	struct life *life;

	if (!lives_file || (const char *)at < slots || slot >= host->table.room || slot >= SLOTS)
		return;
	life = &lives[host->id][slot];
	look_at_all(host);
	switch (offset % sizeof(struct table_slot)) {
	case offsetof(struct table_slot, from):
		add(life, 'f');
		break;
	case offsetof(struct table_slot, to):
		add(life, 't');
		break;
	case offsetof(struct table_slot, fence):
		add(life, value ? 'n' : 'z');
		break;
	case offsetof(struct table_slot, sum):
		add(life, 's');
		break;
	}
}

int lives_open(const char *path)
{
	lives_file = fopen(path, "ae");
	return lives_file && setvbuf(lives_file, NULL, _IOFBF, BYTES) == 0 ? 0 : -1;
}

void lives_keeper(struct host *host, char event)
{
	if (!lives_file || !host->table.head)
		return;
	look_at_all(host);
	for (int i = 0; i < SLOTS; i++)
		if (*lives[host->id][i].events)
			add(&lives[host->id][i], event);
}

void lives_cut(struct host *host)
{
	for (int i = 0; lives_file && i < SLOTS; i++) {
		struct life *life = &lives[host->id][i];

		end(life);
		life->cut = table_word_state(life->word) != TABLE_FREE;
	}
}

void lives_forget(struct host *host)
{
	lives_cut(host);
	memset(lives[host->id], 0, sizeof(lives[host->id]));
}

void lives_end(void)
{
	for (int h = 0; lives_file && h < SIM_HOSTS; h++)
		lives_cut(&sim_hosts[h]);
	if (lives_file)
		fflush(lives_file);
}
