/* See relying.h. */
#include "keeper/guard/relying.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "keeper/clock.h"
#include "keeper/guard/manager.h"
#include "keeper/guard/slots.h"
#include "keeper/guard/table.h"
#include "keeper/guard/table_words.h"
#include "keeper/kernel/census.h"
#include "keeper/log.h"

#define LOOK_KIN_PART 4 /* one in so many parts of a long search looks for what the holders have started */

/* --- one look --- */

/* In which store is the lease of this claim? */
static unsigned look_member(const struct look *look, const struct claim *claim)
{
	return table_slot_member(&look->table->slots[slots_tag_slot(claim->tag)]);
}

static bool look_relies_on_nothing(const struct look *look, const struct holder *h, const struct claim *claim)
{
	const struct holders_file *file = &look->claims.files[h->file];
	const uint64_t store = SLOTS_OF(look_member(look, claim));

	/* mutant: look-first */
	return look->first_of & store && !(family_marks(look->first, h->pid) & store) &&
	       table_has_caller(look->table, &(struct table_caller){.pid = h->pid,
								    .space = h->space,
								    .member = look_member(look, claim),
								    .dev = file->dev,
								    .ino = file->ino});
}

/*
 * Is this process left alone where the locks of this claim are concerned? `dflock break` of a user who is not trusted ends
 * processes of that user only. The keeper has looked at that before; but a user could pass the lock to another user's process,
 * or have that map the file, between the keeper's look and this one.
 */
static bool look_spares(const struct look *look, const struct claim *claim, pid_t pid)
{
	uint32_t slot = slots_tag_slot(claim->tag);
	uid_t owner;

	/* The first test needs no system call. */
	return table_spares(look->table, slot, (uid_t)-1) && family_owner(pid, &owner) &&
	       table_spares(look->table, slot, owner);
}

/* A claim for which this lock makes the process count; NULL: there is none. */
static const struct claim *look_counts(const struct look *look, const struct holder *h)
{
	const struct claim *claim;
	size_t next = SIZE_MAX;

	while ((claim = claims_next(&look->claims, h->file, h->space, h->from, h->to, &next)))
		if (!look_spares(look, claim, h->pid))
			return claim;
	return NULL;
}

/* Adds a process, and tells `found` if that is news. 0 or -ENOMEM. */
static int look_add(struct look *look, pid_t pid, uint64_t store)
{
	int ret = family_add(look->family, pid);

	if (ret == 0 && family_mark(look->family, pid, store) && look->found)
		look->found->cb(look->found->arg, pid, store);
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
	const struct claim *claim = NULL;
	uint64_t store;
	int ret;

	if (h->pid == 1 && procfs_is_in_first_namespace()) /* mutant: look-init */
		return 0;
	if (h->how != HOLDER_SHOWN && h->sight == SIGHT_BEYOND)
		look_mark(look, h);
	if (h->how != HOLDER_NOBODY)
		claim = look_counts(look, h);
	if (!claim)
		return 0;
	store = SLOTS_OF(look_member(look, claim));
	if (h->pid == look->last &&
	    family_marks(look->family, h->pid) & store) /* a process's locks come one after the other */
		return HOLDERS_LATER;
	if (h->how == HOLDER_SHOWN && look_relies_on_nothing(look, h, claim))
		return 0;
	look->last = h->pid;
	ret = look_add(look, h->pid, store);
	if (ret)
		return ret;
	if (h->how == HOLDER_SHOWN)
		family_show(look->family, h->pid, h->fd, claim->tag);
	return HOLDERS_LATER;
}

void look_end(struct look *look)
{
	claims_free(&look->claims);
	free(look->beyond);
}

/* What the holders that were found so far have started does not wait for the end of the search: that has no bound once the deadline is over, or
 * a lease is lost. */
static int look_add_kin(struct look *look)
{
	int ret = family_add_descendants(look->family, look->keeper);

	for (size_t i = 0; look->found && i < family_count(look->family); i++) {
		pid_t pid = family_at(look->family, i);

		look->found->cb(look->found->arg, pid, family_marks(look->family, pid));
	}
	return ret;
}

static bool look_is_over(const struct look *look, int64_t now_ns)
{
	return look->due &&
	       (!slots_past(look->table, look->due, now_ns) || (look->until_ns && now_ns > look->until_ns));
}

/* What is left are processes with so many descriptors that the search may take minutes. */
static int look_on_turn(void *arg)
{
	struct look *look = arg;
	int64_t now = clock_now_ns(), passed_ns;
	int ret;

	manager_tick();
	if (look_is_over(look, now)) /* mutant: look-over */
		return -ECANCELED;
	if (now < look->kin_ns)
		return 0;
	ret = look_add_kin(look); /* mutant: look-kin */
	passed_ns = clock_now_ns() - now;
	look->kin_ns = now + passed_ns + LOOK_KIN_PART * passed_ns;
	return ret;
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

/* Adds the processes that have a descriptor with such a lock, and count. unshown: also those whose lock no descriptor shows, which takes
 * longer, since it may ask the kernel for all locks of the machine. 0 or -errno. */
static int look_search(struct look *look, bool unshown)
{
	struct holders_search ask = {.files = look->claims.files,
				     .count = look->claims.file_count,
				     .ignore_pid = look->keeper,
				     .how = HOLDERS_AT_ONCE,
				     .cb = look_holder,
				     .turn = look_on_turn,
				     .arg = look};
	int ret;

	if (!unshown)
		return ask.count ? holders_search(&ask) : 0;
	look->beyond = calloc(claims_count(&look->claims) + 1, sizeof(*look->beyond));
	ret = look->beyond ? census_take(&look->claims, &ask) : -ENOMEM;
	if (!ret)
		look_publish(look);
	return ret;
}

/* The leases in these stores are sure again: takes the marks off their slots. */
static void look_forget(struct table *table, uint64_t stores)
{
	uint32_t used = table_used(table);

	for (uint32_t i = 0; i < used; i++) {
		if (!(stores & SLOTS_OF(table_slot_member(&table->slots[i]))))
			continue;
		if (table->slots[i].hidden_said)
			table_put64(&table->slots[i].hidden_said, 0);
		if (table->slots[i].hidden)
			table_set_hidden(table, i, 0, false);
	}
}

/* --- the processes that rely on locks --- */

/* In which store is the lease under which this call is, of the slots' claims? SLOTS_OF(); 0: under none. */
static uint64_t relying_is_meant(const struct look *look, const struct underway_call *call)
{
	for (size_t i = 0; i < claims_count(&look->claims); i++) {
		const struct claim *c = claims_at(&look->claims, i);

		if (underway_is_on(call, c->file.dev, c->file.ino, c->space, c->from, c->to) &&
		    !look_spares(look, c, call->pid))
			return SLOTS_OF(look_member(look, c));
	}
	return 0;
}

/* A thread that has the number of one that has ended is of another process, which made no such call. */
static int relying_search_calls(struct look *look)
{
	struct underway_call call;
	int ret = 0;

	for (size_t next = 0; ret == 0 && underway_next(&look->table->underway, &next, &call);) {
		uint64_t store = call.pid == look->keeper || family_has_ended(call.thread, call.started)
					 ? 0
					 : relying_is_meant(look, &call);

		if (store)
			ret = look_add(look, call.pid, store);
	}
	return ret;
}

void relying_find(struct relying *r, struct family *family, enum relying_how how, uint64_t which,
		  const struct look_found *found)
{
	struct look look = {.table = r->table,
			    .keeper = r->keeper,
			    .due = which & SLOTS_SURE_UNTIL ? r->due : 0,
			    .until_ns = r->until_ns,
			    .first = &r->first,
			    .first_of = r->first_of,
			    .found = found,
			    .family = family};
	int ret = slots_claims(look.table, which, &look.claims), kin = 0;

	if (ret == 0)
		ret = how == RELYING_CALLS ? relying_search_calls(&look) : look_search(&look, how == RELYING_UNSHOWN);
	look_end(&look);
	if (ret == 0 || ret == -ECANCELED)
		kin = family_add_descendants(family, r->keeper);
	ret = kin < 0 ? kin : ret;
	if (ret < 0 && ret != -ECANCELED && !r->blind)
		log_event(LINE_SEARCH_FAILED, "the processes that hold locks cannot be searched for: %s; tried again",
			  strerror(-ret));
	r->blind = ret < 0;
}

/* The stores for which the first are of another outage. */
static uint64_t relying_stale(struct relying *r)
{
	uint64_t due = r->first_of ? slots_stores(r->table, SLOTS_DUE) : 0, stale = 0;

	for (unsigned i = 0; i < TABLE_MEMBERS; i++)
		if (r->first_of & SLOTS_OF(i) &&
		    (r->due & SLOTS_OF(i) ? r->first_freeze_at[i] != slots_freeze_at_ns(r->table, i)
					  : !(due & SLOTS_OF(i))))
			stale |= SLOTS_OF(i);
	return stale;
}

bool relying_find_first(struct relying *r, const struct look_found *found)
{
	uint64_t stale = relying_stale(r), wanted;

	if (stale)
		look_forget(r->table, stale);
	r->first_of &= ~stale;
	wanted = (r->due | slots_stores(r->table, SLOTS_IN(TABLE_LOST))) & ~r->first_of;
	family_unmark(&r->first, stale | wanted); /* wanted: of a search that was ended early */
	if (!wanted)
		return false;
	for (unsigned i = 0; i < TABLE_MEMBERS; i++)
		if (wanted & SLOTS_OF(i))
			r->first_freeze_at[i] = slots_freeze_at_ns(r->table, i);
	relying_find(r, &r->first, RELYING_CALLS, SLOTS_IN(TABLE_HELD) | SLOTS_DUE | wanted,
		     found); /* mutant: first-calls */
	relying_find(r, &r->first, RELYING_SHOWN, SLOTS_IN(TABLE_HELD) | SLOTS_DUE | wanted, found);
	if (!r->blind)
		r->first_of |= wanted;
	return !r->blind;
}
