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
 *
 * The lives of a program and an exclusive lock of its host (docs/model/page.pml), up to the first thing that this model has not: a shared
 * lock, a call that does not wait, locks that rest, a third program, an outage, another parent. Of the keeper, of leases of that lock:
 *
 *   A H R    the word in the table: asked, held, returned        O C    a slot of the page opens, closes
 *   P F      a probe begins; it has the kernel lock              X K    as above
 *
 * and of the program:
 *
 *   q Q    asks, with the kernel lock taken        g    is granted        s    the call succeeds
 *   t d    takes the kernel lock; lets go of it to wait                   u    unlocks
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/sim/sim.h"
#include "wire/page.h"

#define SLOTS  512
#define EVENTS 60

#define BYTES (1 << 20) /* of one run at once: several processes append to the file */

static FILE *lives_file;

static struct life {
	char events[EVENTS + 1];
	uint64_t word;               /* as it was seen last */
	const struct program *other; /* that locks the same file */
	bool cut; /* not to be told: longer, or a parent died meanwhile; of `pages`: told as far as it goes */
} lives[SIM_HOSTS][SLOTS], calls[SIM_PROGRAMS], pages[SIM_PROGRAMS][SIM_FILES];
static unsigned shown[SIM_HOSTS][SIM_FILES]; /* slots of the page that were open */
static bool was_sure[SIM_HOSTS][TABLE_MEMBERS];
static bool has_lock[SIM_PROGRAMS];

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

/* --- of programs and locks --- */

static bool has_page(const struct program *p) { return !p->caught && !p->final; }

/* Of the program with this number, or of all of the host if it is negative. event 0: what follows is not told. */
static void add_page(const struct host *host, int file, int program, char event)
{
	for (int i = 0; i < sim_program_count && file < SIM_FILES; i++) {
		struct life *life = &pages[i][file];

		if (event == 'K' && !*life->events) /* the first keeper, which the model begins with */
			continue;
		if (sim_programs[i].host != host || !has_page(&sim_programs[i]) || (program >= 0 && program != i) ||
		    life->cut)
			continue;
		if (event)
			add(life, event);
		else
			life->cut = true;
	}
}

/* Which of the host's files that is; SIM_FILES: none. */
static int file_of(const struct host *host, uint64_t dev, uint64_t ino)
{
	int file = 0;
	struct stat st;

	while (file < SIM_FILES && (stat(host->files[file], &st) != 0 || st.st_dev != dev || st.st_ino != ino))
		file++;
	return file;
}

static void look_at_page(struct host *host)
{
	const struct page *page = host_page(host);

	for (unsigned i = 0; host->k && i < host->k->member_count; i++) {
		bool sure = !host->k->members[i].deadline.expired;

		for (int file = 0; was_sure[host->id][i] && !sure && file < SIM_FILES; file++)
			add_page(host, file, -1, 0);
		was_sure[host->id][i] = sure;
	}
	for (int file = 0; page && file < SIM_FILES; file++) {
		unsigned *open = &shown[host->id][file], count = 0;
		const struct leases_slot *slots;
		struct stat st;

		if (stat(host->files[file], &st) != 0)
			continue;
		slots = page->leases.slots[leases_bucket(st.st_dev, st.st_ino)];
		for (int i = 0; i < LEASES_IN_BUCKET; i++)
			count += slots[i].entry.open && slots[i].entry.file.ino == st.st_ino &&
				 slots[i].entry.file.dev == st.st_dev && slots[i].entry.range.space == WIRE_FLOCK;
		for (; *open < count; ++*open)
			add_page(host, file, -1, 'O');
		for (; *open > count; --*open)
			add_page(host, file, -1, 'C');
	}
}

static bool is_of_flock(const struct table_slot *slot)
{
	return (slot->space & ((1u << TABLE_MEMBER_SHIFT) - 1)) == WIRE_FLOCK;
}

/* The model has two leases of a lock. Of two that are asked for at once, one is for calls that do not wait. */
static bool are_too_many(const struct host *host, const struct table_slot *slot)
{
	unsigned asked = 0, all = 0;

	for (uint32_t i = 0; i < host->table.head->used; i++) {
		const struct table_slot *s = &host->table.slots[i];

		if (s->dev != slot->dev || s->ino != slot->ino || !is_of_flock(s))
			continue;
		asked += table_word_state(s->word) == TABLE_ASKED;
		all += table_word_state(s->word) != TABLE_FREE;
	}
	return asked > 1 || all > 2;
}

/* A slot of the table has another word than before. */
static void look_at_word(const struct host *host, const struct table_slot *slot)
{
	static const char letters[] = "\0AH\0R\0";
	enum table_state state = table_word_state(slot->word);
	bool other = state >= TABLE_LOST || table_word_mode(slot->word) != WIRE_EXCLUSIVE ||
		     (state == TABLE_UNSURE && host->keeper) || (state == TABLE_ASKED && are_too_many(host, slot));

	if (is_of_flock(slot) && state != TABLE_FREE && (other || letters[state]))
		add_page(host, file_of(host, slot->dev, slot->ino), -1, other ? 0 : letters[state]);
}

/* --- of slots --- */

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
		if (host->table.slots[i].word != lives[host->id][i].word) {
			look_at_word(host, &host->table.slots[i]);
			look(&lives[host->id][i], host->table.slots[i].word);
		}
	look_at_page(host);
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
	for (int file = 0; file < SIM_FILES; file++)
		add_page(host, file, -1, event);
	memset(was_sure[host->id], 0, sizeof(was_sure[host->id]));
}

void lives_probe(struct host *host, int fd, bool shared_will_do, char event)
{
	struct stat st;

	if (!lives_file || fstat(fd, &st) != 0)
		return;
	look_at_all(host);
	add_page(host, file_of(host, st.st_dev, st.st_ino), -1, shared_will_do ? 0 : event);
}

void lives_cut(struct host *host)
{
	for (int i = 0; lives_file && i < SLOTS; i++) {
		struct life *life = &lives[host->id][i];

		end(life);
		life->cut = table_word_state(life->word) != TABLE_FREE;
	}
	for (int file = 0; lives_file && file < SIM_FILES; file++)
		add_page(host, file, -1, 0);
}

void lives_forget(struct host *host)
{
	lives_cut(host);
	memset(lives[host->id], 0, sizeof(lives[host->id]));
	memset(shown[host->id], 0, sizeof(shown[host->id]));
}

void lives_begin(const struct program *p, bool nonblock)
{
	if (!lives_file || p->wants.space != WIRE_FLOCK)
		return;
	look_at_all(p->host);
	has_lock[p->id] = false;
	if (p->wants.mode != WIRE_EXCLUSIVE || p->final || host_at_least_ms_of(program_file_name(p->file)))
		add_page(p->host, p->file, -1, 0);
	else if (nonblock)
		add_page(p->host, p->file, p->id, 0);
	for (int i = 0; i < sim_program_count; i++) { /* the model has one other program */
		struct life *life = &pages[i][p->file];

		life->cut |= i != p->id && sim_programs[i].host == p->host && life->other && life->other != p;
		if (i != p->id && sim_programs[i].host == p->host && !life->other)
			life->other = p;
	}
}

static void page_call(const struct program *p, char event)
{
	if (!lives_file || p->wants.space != WIRE_FLOCK || (event == 'd' && !has_lock[p->id]))
		return;
	if (event == 't' || event == 'd')
		has_lock[p->id] = event == 't';
	look_at_all(p->host);
	add_page(p->host, p->file, p->id, event);
}

void lives_call(const struct program *p, char event)
{
	struct life *life = &calls[p->id];

	if (!p->caught)
		page_call(p, event);
	else if (!lives_file || life->cut)
		return;
	else if (event)
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
	for (int i = 0; lives_file && i < SIM_PROGRAMS; i++)
		for (int file = 0; file < SIM_FILES; file++)
			if (strpbrk(pages[i][file].events, "qQt"))
				fprintf(lives_file, "page %s\n", pages[i][file].events);
	for (int h = 0; lives_file && h < SIM_HOSTS; h++)
		lives_cut(&sim_hosts[h]);
	if (lives_file)
		fflush(lives_file);
}
