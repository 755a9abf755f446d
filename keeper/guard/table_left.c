/*
 * See table.h.
 *
 * Damage. A granted lease whose text or sum does not fit cannot be renewed by any keeper: it is lost, and the holders
 * of every lock on its file are killed, since its range may be wrong, too. The other leases go on. A lease that was
 * only asked for, or goes back, needs only its token; without that it is dropped, and the store's recall of an unknown
 * token clears it.
 *
 * The host's name and the incarnation are strings, which take several stores. So the name's first byte is written last.
 * The incarnation has two places: the one that is not in use is written, and then the count, which selects it.
 */
#include "keeper/guard/table.h"

#include <stdio.h>
#include <string.h>

#include "keeper/guard/table_file.h"
#include "keeper/guard/table_text.h"
#include "keeper/guard/table_words.h"

static bool is_range(const struct table_slot *s)
{
	return table_slot_space(s) < WIRE_SPACES && s->from >= 0 && s->to > s->from;
}

static bool is_asked(enum table_state state)
{
	return state == TABLE_ASKED || state == TABLE_RETURNED; /* mutant: table-asked */
}

/* Tells of a lease that can be read. */
static bool is_whole(const struct table *t, uint32_t slot, struct table_text *text)
{
	const struct table_slot *s = &t->slots[slot];
	uint64_t generation = table_word_generation(s->word);
	unsigned mode = s->word >> 8 & 0xff;

	return (s->word & 0xff) < TABLE_STATES && mode < WIRE_MODES && s->fence && is_range(s) &&
	       s->sum == table_slot_sum(s, generation, t->boot) &&
	       table_text_get(t, slot, generation, text); /* mutant: table-whole */
}

/* Tells of a lease that was asked for: its range may be half written. */
static bool is_known(const struct table *t, uint32_t slot, struct table_text *text)
{
	return table_slot_space(&t->slots[slot]) < WIRE_SPACES &&
	       table_text_get(t, slot, table_word_generation(t->slots[slot].word), text);
}

static bool table_tell_entry(struct table *t, uint32_t slot, const struct table_text *text, table_entry_cb *cb,
			     void *arg)
{
	const struct table_slot *s = &t->slots[slot];
	bool unsure = !is_asked(table_state(t, slot));
	struct table_entry entry = {.slot = slot,
				    .unsure = unsure,
				    .forgotten =
					    unsure && s->incarnation != *TABLE_OF(t, table_slot_member(s), incarnation),
				    .token = text->token,
				    .name = text->name,
				    .path = text->path,
				    .range = {.space = table_slot_space(s),
					      .mode = table_word_mode(s->word),
					      .from = is_range(s) ? s->from : 0,
					      .to = is_range(s) ? s->to : WIRE_EOF},
				    .fence = s->fence,
				    .dev = s->dev,
				    .ino = s->ino,
				    .uid = s->uid,
				    .member = table_slot_member(s)};

	return cb(arg, &entry);
}

static void take_up_asked(struct table *t, uint32_t slot, table_entry_cb *cb, void *arg)
{
	struct table_text text;

	table_return(t, slot);
	if (!is_known(t, slot, &text) || !table_tell_entry(t, slot, &text, cb, arg))
		table_vacate(t, slot);
}

/* False: damaged; or the keeper has no memory for it, which then counts as damaged, too. */
static bool take_up_lease(struct table *t, uint32_t slot, table_entry_cb *cb, void *arg)
{
	struct table_text text;

	table_doubt(t, slot);
	if (!is_whole(t, slot, &text))
		return false;
	if (table_tell_entry(t, slot, &text, cb, arg))
		return true;
	table_put64(&t->slots[slot].sum, 0);
	return false;
}

int table_take_up(struct table *t, table_entry_cb *cb, void *arg, unsigned *damaged)
{
	uint32_t used = table_used(t);
	int ret;

	*damaged = 0;
	for (uint32_t i = 0; i < used; i++) /* first: an unknown state counts as damage */
		if ((t->slots[i].word & 0xff) >= TABLE_STATES || (t->slots[i].word >> 8 & 0xff) >= WIRE_MODES)
			table_put64(&t->slots[i].sum, 0);
	ret = table_text_open(t);
	for (uint32_t i = 0; ret == 0 && i < used; i++) {
		enum table_state state = table_state(t, i);

		if (is_asked(state))
			take_up_asked(t, i, cb, arg);
		else if (state == TABLE_HELD || state == TABLE_UNSURE)
			*damaged += !take_up_lease(t, i, cb, arg);
	}
	return ret;
}

/* All locks on the file, in both spaces: it is not known which lock it was. */
static void lose_whole_file(struct table *t, uint32_t slot)
{
	table_put32(&t->slots[slot].space, TABLE_ANY_SPACE | table_slot_member(&t->slots[slot]) << TABLE_MEMBER_SHIFT);
	table_lose(t, slot, TABLE_WHY_UNKNOWN);
}

void table_lose_damaged(struct table *t)
{
	uint32_t used = table_used(t);
	struct table_text text;

	for (uint32_t i = 0; i < used; i++) {
		enum table_state state = table_state(t, i);

		if ((state == TABLE_HELD || state == TABLE_UNSURE) && !is_whole(t, i, &text))
			lose_whole_file(t, i);
	}
}

/* --- the host --- */

void table_host(struct table *t, char host[STORE_HOST_BYTES])
{
	if (t->head->host[0]) {
		memcpy(host, t->head->host, STORE_HOST_BYTES);
		return;
	}
	table_put_bytes(t->head->host + 1, host + 1, strlen(host)); /* mutant: table-host */
	table_put_bytes(t->head->host, host, 1);
}

/* A keeper that dies in between has the host's id still, and is told again. */
void table_disown(struct table *t)
{
	struct table_head *h = t->head;
	uint32_t used = table_used(t);
	int64_t now = clock_now_ns();

	for (uint32_t i = 0; i < used; i++) {
		enum table_state state = table_state(t, i);

		if (is_asked(state))
			table_vacate(t, i); /* mutant: disown-asked */
		else if (state == TABLE_HELD || state == TABLE_UNSURE)
			table_put64(&t->slots[i].sum, 0); /* mutant: disown */
	}
	for (unsigned i = 0; i < TABLE_MEMBERS; i++) {
		table_put_ns(TABLE_OF(t, i, deadline_ns), now);
		table_put_ns(TABLE_OF(t, i, freeze_at_ns), now);
	}
	table_put_bytes(h->twin, h->host, sizeof(h->twin));
	table_put_bytes(h->host, "", 1);
}

void table_forget_twin(struct table *t)
{
	table_put_bytes(t->head->twin, "", 1);
}

void table_forget_host(struct table *t)
{
	table_put_bytes(t->head->host, "", 1);
}

const char *table_incarnation(const struct table *t, unsigned member)
{
	return (*TABLE_OF(t, member, incarnations))[*TABLE_OF(t, member, incarnation) % 2];
}

void table_set_incarnation(struct table *t, unsigned member, const char *incarnation)
{
	uint64_t next = *TABLE_OF(t, member, incarnation) + 1;
	char text[STORE_INC_BYTES] = "";

	if (strcmp(incarnation, table_incarnation(t, member)) == 0)
		return;
	snprintf(text, sizeof(text), "%s", incarnation);
	table_put_bytes((*TABLE_OF(t, member, incarnations))[next % 2], text,
			sizeof(text)); /* mutant: table-incarnation */
	table_put64(TABLE_OF(t, member, incarnation), next);
}
