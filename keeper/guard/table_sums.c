/* See table_sums.h. */
#include "keeper/guard/table_sums.h"

#include <stddef.h>

uint64_t table_sum(const void *data, size_t bytes)
{
	const unsigned char *p = data;
	uint64_t sum = 14695981039346656037ull;

	for (size_t i = 0; i < bytes; i++)
		sum = (sum ^ p[i]) * 1099511628211ull;
	return sum;
}

uint64_t table_head_sum(const struct table_head *head)
{
	return table_sum(head, offsetof(struct table_head, sum));
}

uint64_t table_slot_sum(const struct table_slot *s, uint64_t generation, uint64_t boot)
{
	const uint64_t words[] = {generation,        s->fence,        s->dev,   s->ino, boot,
				  (uint64_t)s->from, (uint64_t)s->to, s->space, s->uid};
	uint64_t sum = 14695981039346656037ull;

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		sum = (sum ^ words[i]) * 1099511628211ull ^ sum >> 29;
	return sum ? sum : 1; /* 0 is no user's (table_earlier.c) */
}
