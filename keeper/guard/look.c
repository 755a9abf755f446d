/* See look.h. */
#include "keeper/guard/look.h"

#include "keeper/guard/slots.h"
#include "keeper/guard/table_notes.h"

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

int look_holder(struct look *look, const struct holder *h)
{
	int ret;

	if (!look_counts(look, h))
		return 0;
	if (h->pid == look->last) /* a process's locks come one after the other */
		return HOLDERS_LATER;
	if (look_relies_on_nothing(look, h))
		return 0;
	ret = look_add(look, h->pid);
	return ret ? ret : HOLDERS_LATER;
}

static int look_on_holder(void *arg, const struct holder *h)
{
	return look_holder(arg, h);
}

int look_begin(struct look *look, unsigned which)
{
	return slots_claims(look->table, which, &look->claims);
}

void look_end(struct look *look)
{
	claims_free(&look->claims);
}

int look_search(struct look *look)
{
	if (!claims_count(&look->claims))
		return 0;
	return holders_search(&(struct holders_search){.files = look->claims.files,
						       .count = look->claims.file_count,
						       .ignore_pid = look->keeper,
						       .how = HOLDERS_AT_ONCE,
						       .cb = look_on_holder,
						       .arg = look});
}
