/* See look.h. */
#include "keeper/guard/look.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sysmacros.h>

#include "keeper/guard/slots.h"
#include "keeper/guard/table_notes.h"
#include "keeper/guard/table_words.h"
#include "keeper/kernel/census.h"
#include "keeper/log.h"

static bool look_relies_on_nothing(const struct look *look, const struct holder *h)
{
	const struct holders_file *file = &look->claims.files[h->file];

	return look->first && !family_has(look->first, h->pid) &&
	       table_has_caller(
		       look->table,
		       &(struct table_caller){.pid = h->pid, .space = h->space, .dev = file->dev, .ino = file->ino});
}

bool look_spares(const struct look *look, const struct claim *claim, pid_t pid)
{
	uint32_t slot = slots_tag_slot(claim->tag);
	uid_t owner;

	/* The first test needs no system call. */
	return table_spares(look->table, slot, (uid_t)-1) && family_owner(pid, &owner) &&
	       table_spares(look->table, slot, owner);
}

/* Is there a claim for which this lock makes the process count? */
static bool look_counts(const struct look *look, const struct holder *h)
{
	const struct claim *claim;
	size_t next = SIZE_MAX;

	while ((claim = claims_next(&look->claims, h->file, h->space, h->from, h->to, &next)))
		if (!look_spares(look, claim, h->pid))
			return true;
	return false;
}

int look_add(struct look *look, pid_t pid)
{
	size_t before = family_count(look->family);
	int ret = family_add(look->family, pid);

	if (ret == 0 && look->found && family_count(look->family) > before)
		look->found->cb(look->found->arg, pid);
	look->last = pid;
	return ret;
}

/* The holder of this lock cannot be stopped: notes that on the claims that the lock is under. */
static void look_mark(struct look *look, const struct holder *h)
{
	const struct claim *claim;
	size_t next = SIZE_MAX;

	while ((claim = claims_next(&look->claims, h->file, h->space, h->from, h->to, &next)))
		look->beyond[claims_index(&look->claims, claim)] = true;
}

int look_holder(void *arg, const struct holder *h)
{
	struct look *look = arg;
	int ret;

	if (h->how != HOLDER_SHOWN && h->sight == SIGHT_BEYOND)
		look_mark(look, h);
	if (h->how == HOLDER_NOBODY || !look_counts(look, h))
		return 0;
	if (h->pid == look->last) /* a process's locks come one after the other */
		return HOLDERS_LATER;
	if (h->how == HOLDER_SHOWN && look_relies_on_nothing(look, h))
		return 0;
	ret = look_add(look, h->pid);
	return ret ? ret : HOLDERS_LATER;
}

int look_begin(struct look *look, unsigned which)
{
	return slots_claims(look->table, which, &look->claims);
}

void look_end(struct look *look)
{
	claims_free(&look->claims);
	free(look->beyond);
}

/* --- the search --- */

static struct holders_search look_ask(struct look *look)
{
	return (struct holders_search){.files = look->claims.files,
				       .count = look->claims.file_count,
				       .ignore_pid = look->keeper,
				       .how = HOLDERS_AT_ONCE,
				       .cb = look_holder,
				       .arg = look};
}

int look_search(struct look *look)
{
	struct holders_search ask = look_ask(look);

	return ask.count ? holders_search(&ask) : 0;
}

static void look_log(const struct table_slot *slot)
{
	char subject[64];

	snprintf(subject, sizeof(subject), "%llx:%llx", (unsigned long long)slot->dev, (unsigned long long)slot->ino);
	log_about(LINE_NOT_STOPPABLE, &(struct log_about){.subject = subject},
		  "a lock on inode %llu of device %u:%u is held, but no process can be stopped for it: "
		  "the process that took it has ended, and its descriptor is on its way through a socket, or the "
		  "keeper may not look into the process that has it; `dflock status` names the lock",
		  (unsigned long long)slot->ino, major(slot->dev), minor(slot->dev));
}

static void look_publish(const struct look *look)
{
	for (size_t i = 0; i < claims_count(&look->claims); i++) {
		uint64_t tag = claims_at(&look->claims, i)->tag, generation = slots_tag_generation(tag);
		uint32_t number = slots_tag_slot(tag);
		struct table_slot *slot = &look->table->slots[number];

		if (look->beyond[i] && slot->hidden_said != generation)
			look_log(slot);
		if (look->beyond[i])
			table_put64(&slot->hidden_said, generation);
		table_set_hidden(look->table, number, generation, look->beyond[i]);
	}
}

int look_search_all(struct look *look)
{
	struct holders_search ask = look_ask(look);
	int ret;

	look->beyond = calloc(claims_count(&look->claims) + 1, sizeof(*look->beyond));
	ret = look->beyond ? census_take(&look->claims, &ask) : -ENOMEM;
	if (!ret)
		look_publish(look);
	return ret;
}

void look_forget(struct table *table)
{
	uint32_t used = table_used(table);

	for (uint32_t i = 0; i < used; i++) {
		if (table->slots[i].hidden_said)
			table_put64(&table->slots[i].hidden_said, 0);
		if (table->slots[i].hidden)
			table_set_hidden(table, i, 0, false);
	}
}
