/*
 * See deeds.h. A ring: the parent alone moves `written`, the keeper that runs moves `taken`. There is one keeper at a time;
 * a keeper that was killed and does not end (leftover.c) executes nothing any more.
 */
#include "keeper/guard/deeds.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "keeper/guard/slots.h"

struct deeds *deeds_new(void)
{
	struct deeds *deeds =
		mmap(NULL, sizeof(*deeds), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (deeds == MAP_FAILED)
		return NULL;
	mlock(deeds, sizeof(*deeds)); /* or not: see supervise.c */
	return deeds;
}

/* The file of all these slots; false: there is none, or more than one. */
static bool deeds_file(struct table *table, uint64_t which, uint64_t *dev, uint64_t *ino)
{
	uint32_t used = table_used(table);
	bool found = false;

	for (uint32_t i = 0; i < used; i++) {
		struct table_view view;

		if (!(which & SLOTS_IN(table_state(table, i))))
			continue;
		table_view(table, i, &view);
		if (found && (view.file.dev != *dev || view.file.ino != *ino))
			return false;
		*dev = view.file.dev;
		*ino = view.file.ino;
		found = true;
	}
	return found;
}

void deeds_put(struct table *table, struct deed *d, const struct log_about *about, const char *format, ...)
{
	struct deeds *deeds = table->deeds;
	uint32_t written;
	va_list args;

	va_start(args, format);
	vsnprintf(d->text, sizeof(d->text), format, args);
	va_end(args);
	log_about(d->kind, about, "%s", d->text);
	if (!deeds)
		return;
	written = deeds->written;
	if (written - __atomic_load_n(&deeds->taken, __ATOMIC_ACQUIRE) >= DEEDS_MAX)
		return;
	deeds->all[written % DEEDS_MAX] = *d;
	__atomic_store_n(&deeds->written, written + 1, __ATOMIC_RELEASE);
}

void deeds_add(struct table *table, enum event_kind kind, uint64_t which, const struct family *family, size_t processes,
	       const char *format, ...)
{
	struct deed d = {.kind = kind, .processes = (uint32_t)processes};
	char subject[64], text[DEEDS_TEXT_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (!deeds_file(table, which, &d.dev, &d.ino))
		d.dev = d.ino = 0;
	snprintf(subject, sizeof(subject), "%llx:%llx", (unsigned long long)d.dev, (unsigned long long)d.ino);
	while (d.pid_count < family_count(family) && d.pid_count < DEEDS_PIDS) {
		d.pids[d.pid_count] = family_at(family, d.pid_count);
		d.pid_count++;
	}
	deeds_put(table, &d, &(struct log_about){.subject = d.ino ? subject : NULL}, "%s", text);
}

void deeds_count(struct table *table, enum deeds_count which, uint64_t n)
{
	if (table->deeds)
		__atomic_fetch_add(&table->deeds->counts[which], n, __ATOMIC_RELAXED);
}

uint64_t deeds_counted(const struct table *table, enum deeds_count which)
{
	return table->deeds ? __atomic_load_n(&table->deeds->counts[which], __ATOMIC_RELAXED) : 0;
}

bool deeds_take(struct table *table, struct deed *out)
{
	struct deeds *deeds = table->deeds;
	uint32_t taken = deeds ? deeds->taken : 0;

	if (!deeds || taken == __atomic_load_n(&deeds->written, __ATOMIC_ACQUIRE))
		return false;
	*out = deeds->all[taken % DEEDS_MAX];
	__atomic_store_n(&deeds->taken, taken + 1, __ATOMIC_RELEASE);
	return true;
}
