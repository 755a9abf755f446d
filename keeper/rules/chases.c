/* See chases.h. */
#include "keeper/rules/chases.h"

#include <stddef.h>
#include <string.h>

static uint64_t mix(uint64_t id, const void *data, size_t size)
{
	const unsigned char *p = data;

	for (size_t i = 0; i < size; i++)
		id = (id ^ p[i]) * 1099511628211u;
	return id;
}

/* If two chases have the same hash by chance, one of them is late. */
static uint64_t chase_id(const struct store_chase *c, uint64_t dev, uint64_t ino)
{
	const uint64_t numbers[] = {(uint64_t)c->pid,        c->youngest,          dev, ino, (uint64_t)c->range.mode,
				    (uint64_t)c->range.from, (uint64_t)c->range.to};
	uint64_t id = mix(14695981039346656037u, c->host, strlen(c->host) + 1);

	return mix(mix(id, c->token, strlen(c->token) + 1), numbers, sizeof(numbers));
}

bool chases_follow(struct chases *chases, const struct store_chase *chase, uint64_t dev, uint64_t ino, int64_t now_ns,
		   int64_t for_ns)
{
	uint64_t id = chase_id(chase, dev, ino);
	size_t room = CHASES_SEEN;

	for (size_t i = 0; i < CHASES_SEEN; i++) {
		if (chases->seen[i].until_ns <= now_ns)
			room = i;
		else if (chases->seen[i].id == id)
			return false;
	}
	if (room == CHASES_SEEN)
		return false;
	chases->seen[room].id = id;
	chases->seen[room].until_ns = now_ns + for_ns;
	return true;
}
