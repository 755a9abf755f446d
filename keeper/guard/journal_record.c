/* See journal_record.h. */
#include "keeper/guard/journal_record.h"

#include <stdlib.h>
#include <string.h>

uint32_t record_sum(const struct record *r)
{
	const unsigned char *p = (const unsigned char *)&r->kind;
	const unsigned char *end = (const unsigned char *)r + r->bytes;
	uint32_t sum = 2166136261u;

	for (; p < end; p++)
		sum = (sum ^ *p) * 16777619u;
	return sum;
}

struct record *record_make(enum record_kind kind, const struct journal_entry *e)
{
	size_t name = kind == RECORD_ADD ? strlen(e->name) + 1 : 0;
	size_t path = kind == RECORD_ADD ? strlen(e->path) + 1 : 0;
	size_t bytes = (sizeof(struct record) + name + path + 7) & ~(size_t)7;
	struct record *r = calloc(1, bytes);

	if (!r)
		return NULL;
	r->bytes = bytes;
	r->kind = kind;
	r->space = e->range.space;
	r->mode = e->range.mode;
	r->from = e->range.from;
	r->to = e->range.to;
	r->fence = e->fence;
	r->dev = e->dev;
	r->ino = e->ino;
	memcpy(r->token, e->token, sizeof(r->token));
	r->name_bytes = name;
	r->path_bytes = path;
	if (name) {
		memcpy(r->text, e->name, name);
		memcpy(r->text + name, e->path, path);
	}
	r->sum = record_sum(r);
	return r;
}

bool record_ok(const struct record *r, size_t room)
{
	uint32_t sum;

	if (room < sizeof(*r) || r->bytes < sizeof(*r) || r->bytes > RECORD_MAX || r->bytes > room || r->bytes % 8)
		return false;
	sum = record_sum(r);
	if ((r->sum != sum && r->sum != ~sum) || r->token[STORE_TOKEN_BYTES - 1] != '\0')
		return false;
	if (r->space >= WIRE_SPACES || r->mode >= WIRE_MODES)
		return false;
	if (r->kind != RECORD_ADD)
		return r->kind == RECORD_FENCE || r->kind == RECORD_REMOVE;
	return r->name_bytes > 1 && r->name_bytes <= LOCK_NAME_BYTES && r->path_bytes > 1 &&
	       sizeof(*r) + r->name_bytes + r->path_bytes <= r->bytes && r->text[r->name_bytes - 1] == '\0' &&
	       r->text[r->name_bytes + r->path_bytes - 1] == '\0';
}

bool record_torn(const struct record *r, size_t room)
{
	if (room < sizeof(*r))
		return true;
	return r->bytes > room && r->bytes <= RECORD_MAX && r->bytes % 8 == 0;
}

void record_entry(const struct record *r, struct journal_entry *e)
{
	*e = (struct journal_entry){.range = {.space = r->space, .mode = r->mode, .from = r->from, .to = r->to},
				    .fence = r->fence,
				    .dev = r->dev,
				    .ino = r->ino,
				    .path = r->text + r->name_bytes};
	memcpy(e->token, r->token, sizeof(e->token));
	memcpy(e->name, r->text, r->name_bytes);
}
