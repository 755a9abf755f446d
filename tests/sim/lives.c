/*
 * Lives, as events of the models: docs/model/replay.py asks each model whether it can do the same. The lives of slots of the table of leases
 * (docs/model/table.pml): a letter for each store into a slot, and for what happens to the keeper meanwhile.
 *
 *   f t    the range        n z    the fence; none        s    the sum
 *   A H U R L O    the word: asked, held, unsure, returned, lost, free        M    ... and shared from now on
 *   X K    the keeper died; the next one has the table
 *
 * The keeper's stores are seen as they happen. What the parent moves is seen when somebody looks next: before the keeper's next store, when a
 * keeper dies or starts. A life ends with O; what the run's end or a power cut leaves is a beginning of one.
 *
 * The lives of threads whose calls are caught (docs/model/net.pml), up to an end, a conversion or so many letters:
 *
 *   c    begins a call        n    it ends with its supervisor        g    it is continued
 *   l o    in the kernel: takes the lock; ends or is called back without it        r    returns with the lock        u    unlocks
 *   E x    the entry of the call under way is written, ends        F y    that of an earlier call of the thread
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
} lives[SIM_HOSTS][SLOTS], calls[SIM_PROGRAMS];

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
		fprintf(lives_file, "table %s\n", life->events);
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

void lives_call(const struct program *p, char event)
{
	struct life *life = &calls[p->id];

	if (!lives_file || !p->caught || life->cut)
		return;
	if (event)
		add(life, event);
	else
		life->cut = true;
}

/* What is beyond the last word in front of the entries (underway.c: `used`) does not count. */
void lives_entry(const struct host *host, const void *at, uint64_t value)
{
	size_t bytes;
	const char *file = underway_bytes(&host->table.underway, &bytes);
	const struct underway_call *entries = (const void *)(file + bytes - UNDERWAY_CALLS * sizeof(*entries)), *call;
	const uint64_t *used = (const uint64_t *)entries - 1;

	if (!lives_file || !file || (const char *)at < (const char *)used || (const char *)at >= file + bytes)
		return;
	call = at == used ? &entries[value - 1]
			  : (const void *)((const char *)at - offsetof(struct underway_call, taken));
	if (call >= entries + *used)
		return;
	for (int i = 0; i < sim_program_count; i++)
		if (sim_programs[i].host == host && sim_programs[i].pid == call->thread)
			lives_call(&sim_programs[i],
				   "yxFE"[2 * !!call->taken + (call->number == sim_programs[i].number)]);
}

void lives_end(void)
{
	for (int i = 0; lives_file && i < SIM_PROGRAMS; i++)
		if (*calls[i].events)
			fprintf(lives_file, "net %s\n", calls[i].events);
	for (int h = 0; lives_file && h < SIM_HOSTS; h++)
		lives_cut(&sim_hosts[h]);
	if (lives_file)
		fflush(lives_file);
}
