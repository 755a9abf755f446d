/* See slots.h. */
#include "keeper/guard/slots.h"

#define SLOTS_AS_SOME (SLOTS_AS(ON_LOST_FREEZE) | SLOTS_AS(ON_LOST_KILL) | SLOTS_AS(ON_LOST_WARN))

static bool slot_is_meant(const struct fence_slot *slot, unsigned which)
{
	if (!(which & SLOTS_IN(__atomic_load_n(&slot->state, __ATOMIC_ACQUIRE))))
		return false;
	return !(which & SLOTS_AS_SOME) || which & SLOTS_AS(__atomic_load_n(&slot->on_lost, __ATOMIC_RELAXED));
}

static uint32_t slots_used(const struct fence *fence)
{
	return __atomic_load_n(&fence->used, __ATOMIC_ACQUIRE);
}

bool slots_any(const struct fence *fence, unsigned which)
{
	uint32_t used = slots_used(fence);

	for (uint32_t i = 0; i < used; i++)
		if (slot_is_meant(&fence->slots[i], which))
			return true;
	return false;
}

void slots_set(struct fence *fence, unsigned which, enum fence_state to)
{
	uint32_t used = slots_used(fence);

	for (uint32_t i = 0; i < used; i++)
		if (slot_is_meant(&fence->slots[i], which))
			fence_set(fence, i, to);
}

int slots_claims(const struct fence *fence, unsigned which, struct claims *claims)
{
	uint32_t used = slots_used(fence);
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && i < used; i++) {
		const struct fence_slot *slot = &fence->slots[i];
		struct holders_file file;

		if (!slot_is_meant(slot, which))
			continue;
		file.kernel_ino = __atomic_load_n(&slot->kernel_ino, __ATOMIC_ACQUIRE);
		file.kernel_dev = slot->kernel_dev;
		file.dev = slot->dev;
		file.ino = slot->ino;
		ret = claims_add(claims, &file, slot->space, slot->from, slot->to, i);
	}
	return ret == 0 ? claims_build(claims) : ret;
}

int64_t slots_freeze_at_ns(const struct fence *fence)
{
	return __atomic_load_n(&fence->freeze_at_ns, __ATOMIC_ACQUIRE);
}

int64_t slots_deadline_ns(const struct fence *fence)
{
	return __atomic_load_n(&fence->deadline_ns, __ATOMIC_RELAXED);
}

void slots_tell_frozen(struct fence *fence, unsigned count)
{
	__atomic_store_n(&fence->frozen_count, count, __ATOMIC_RELEASE);
}
