/* See askers.h. */
#include "keeper/leases/askers.h"

#include <stdlib.h>

#include "keeper/leases/keeper.h"
#include "keeper/leases/inquiry.h"
#include "keeper/leases/probing.h"
#include "keeper/leases/queue.h"

void askers_add(struct lease *lease, const struct asker *asker)
{
	if (!lease->askers)
		lease->askers = calloc(LEASE_MAX_ASKERS, sizeof(*lease->askers));
	if (lease->askers && lease->asker_count < LEASE_MAX_ASKERS)
		lease->askers[lease->asker_count++] = *asker;
}

void askers_tell(struct lease *lease)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < lease->asker_count; i++) {
		const struct asker *asker = &lease->askers[i];
		struct store_range in_use;

		if (inquiry_needed(lease) && inquiry_start(lease, asker))
			continue;
		/* None: it has just become free, and the probe has not said so yet. */
		if (lock_in_the_way(lease, &asker->range, &in_use) == 0)
			lease->askers[kept++] = *asker;
		else
			inquiry_tell_in_use(lease, asker, &in_use);
	}
	lease->asker_count = kept;
	queue_tell_in_use(lease);
}

void askers_forget_shared(struct lease *lease)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < lease->asker_count; i++)
		if (lease->askers[i].range.mode != WIRE_SHARED)
			lease->askers[kept++] = lease->askers[i];
	lease->asker_count = kept;
}

void askers_forget(struct lease *lease)
{
	lease->asker_count = 0;
}
