/*
 * See table.h. The transitions of a slot, and why a crash at any store leaves a true table.
 *
 * Who writes. The keeper writes a slot in the states FREE to UNSURE and RETURNED, and makes it LOST; from then on only
 * the parent writes it, until it is FREE. The parent also makes HELD slots UNSURE, but only while no keeper runs. So a
 * word has one writer at a time, and a slot passes from one writer to the other only when it is FREE (see `busy`,
 * below). In the keeper that is the loop; while a probe is armed, its thread (leases/early.c).
 *
 * Order. Every store is a release (table_words.h). A process that is killed at a store has done all stores before it,
 * and none after it. So a process that reads the word of a slot also sees all that was stored before it.
 *
 *   transition       stores, in this order                    what it precedes
 *   ask              busy bit, used, text, range, file, ...,   the acquire is sent
 *     FREE->ASKED    word(ASKED, mode, generation + 1)
 *   grant            range, kernel numbers, fence,             a caller is told; the page shows it
 *     ASKED->HELD    incarnation, sum, word(HELD)
 *   doubt            word(UNSURE)                              the store is asked whether it stands
 *     HELD->UNSURE
 *   confirm          incarnation                               hold
 *   hold             word(HELD)                                it opens again
 *     UNSURE->HELD
 *   share            word(same state, SHARED)                  the shrink is sent
 *   return           word(RETURNED)                            the release is sent
 *     any->RETURNED
 *   free             word(FREE), busy bit                      the slot is taken again
 *     ->FREE
 *   lose             why, word(LOST)                           the parent is told
 *     ->LOST
 *   the parent:      word(ENDING) .. kill .. word(FREE),       the slot is taken again
 *     LOST->FREE     busy bit
 *
 * The keeper dies at ...       the parent sees                   the next keeper does
 *   ask, before the word       a free slot                       nothing: the store was not asked
 *   ask, after it; grant,      ASKED: no lease                   gives it back by its token. Nobody was told of it, for the
 *     before the word                                            word HELD comes before that; the store may or may not have
 *                                                                granted it. Range and fence may be half written: neither
 *                                                                is needed for that
 *   grant, after the word      HELD, with all of the range       confirms it with its fence
 *   doubt, hold                HELD or UNSURE: the same, for     confirms it, as it does both
 *                              the keeper is dead
 *   confirm, before the word   UNSURE                            puts it back if its incarnation is an earlier one than the
 *                                                                table's, else asks whether it stands; both may be repeated
 *   share, before the word     exclusive                         the shrink was not sent: an exclusive lease like others
 *   share, after it            shared                            never opens it as an exclusive one: it confirms it, and
 *                                                                shrinks it (again) if the store still has it as exclusive
 *   return, before the word    the lease                         the release was not sent: a lease like others
 *   return, after it           no lease: it was tested free, or  sends the release (again), whether or not it was sent. It
 *                              another one covers it             never opens it, though the store may still have it
 *   free, before the word      no lease                          releases it once more: the store says that it has gone
 *   free, before the bit       a free slot                       finds the bits anew (table_file_find_busy())
 *   lose, before the word      the lease, unsure                 asks the store, which says again that it has gone
 *   lose, after it             LOST: kills and frees             nothing: the parent does it, or the next parent
 * The parent dies between ENDING and FREE: the next parent takes ENDING for LOST, and kills once more.
 *
 * No process takes half a slot for a lease: table_ask() and table_grant() write while the word says FREE or ASKED, and
 * in these states only the writer reads the rest. A reader that began earlier (table_view()) reads the word again after
 * it has read the rest: any store of another lease's values comes after word(FREE), so the word has changed.
 *
 * The keeper may use a slot again while the parent searches /proc for holders of the slot's earlier lease. What the
 * parent then writes about that lease (hidden) carries the earlier generation, so it does not count for the new lease.
 * The parent's own transitions (LOST to ENDING to FREE) are between states that the keeper does not touch.
 *
 * busy: taken slots have their bit set before anything else is written, and cleared after word(FREE). A slot is taken only
 * if its bit is clear and its word is FREE. So the keeper skips the slot from the parent's word(FREE) until the parent
 * has cleared the bit, and the parent never clears the bit of a new lease.
 */
#include "keeper/guard/table.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "keeper/guard/table_file.h"
#include "keeper/guard/table_text.h"
#include "keeper/guard/table_words.h"

static uint64_t word_of(const struct table *t, uint32_t slot)
{
	return table_get64(&t->slots[slot].word);
}

bool table_in_use(struct table *t)
{
	uint32_t used = table_used(t);

	for (uint32_t w = 0; w * 64 < used; w++) {
		uint64_t bits = table_get64(&t->head->busy[w]);

		for (; bits; bits &= bits - 1) {
			uint32_t i = w * 64 + (uint32_t)__builtin_ctzll(bits);

			if (i < used && table_is_leased(table_state(t, i)))
				return true;
		}
	}
	return false;
}

unsigned table_frozen(const struct table *t)
{
	return table_get32(&t->head->frozen_count);
}

/* --- taking a slot, and freeing it --- */

/* Looks at most at 1,024 words of bits, and mostly at one. */
static uint32_t find_free(const struct table *t)
{
	uint32_t words = TABLE_SLOTS / 64, first = table_get32(&t->head->first) / 64 % words;

	for (uint32_t n = 0; n < words; n++) {
		uint32_t w = (first + n) % words;
		uint64_t free_bits = ~table_get64(&t->head->busy[w]);

		for (; free_bits; free_bits &= free_bits - 1) {
			uint32_t i = w * 64 + (uint32_t)__builtin_ctzll(free_bits);

			if (i >= t->room || table_state(t, i) == TABLE_FREE)
				return i;
		}
	}
	return TABLE_NO_SLOT;
}

static void put_file(struct table_slot *s, const struct holders_file *file)
{
	table_put64(&s->dev, file->dev);
	table_put64(&s->ino, file->ino);
	table_put64(&s->kernel_dev, file->kernel_dev);
	table_put64(&s->kernel_ino, file->kernel_ino);
}

static void put_range(struct table_slot *s, const struct store_range *range, unsigned member)
{
	table_put_ns(&s->from, range->from);
	table_put_ns(&s->to, range->to);
	table_put32(&s->space, range->space | member << TABLE_MEMBER_SHIFT);
}

int table_ask(struct table *t, const struct table_lease *lease, uint32_t *slot)
{
	uint32_t i = find_free(t);
	struct table_slot *s;
	uint64_t generation;
	int ret;

	if (i == TABLE_NO_SLOT)
		return -ENFILE;
	ret = i < t->room ? 0 : table_file_grow(t, i);
	if (ret < 0)
		return ret;
	s = &t->slots[i];
	generation = table_word_generation(s->word) + 1; /* mutant: table-generation */
	ret = table_text_put(t, i, generation, lease->token, lease->name, lease->path);
	if (ret < 0)
		return ret;
	__atomic_thread_fence(__ATOMIC_RELEASE); /* for table_view(): after the word(FREE) of the earlier lease */
	table_set_bits(&t->head->busy[i / 64], 1ull << i % 64); /* mutant: table-busy */
	table_put32(&t->head->first, i + 1);
	if (i >= t->head->used)
		table_put32(&t->head->used, i + 1);
	put_file(s, &lease->file);
	put_range(s, &lease->range, lease->member);
	table_put32(&s->uid, lease->uid);
	table_put32(&s->on_lost, lease->on_lost);
	table_put32(&s->why, TABLE_WHY_UNKNOWN);
	table_put64(&s->broken_by, 0);
	table_put64(&s->fence, 0);
	table_put64(&s->word, table_word(TABLE_ASKED, lease->range.mode, generation));
	*slot = i;
	return 0;
}

static void put_state(struct table *t, uint32_t slot, enum table_state state)
{
	uint64_t word = word_of(t, slot);

	table_put64(&t->slots[slot].word, table_word(state, table_word_mode(word), table_word_generation(word)));
}

static void clear_busy(struct table *t, uint32_t slot)
{
	table_clear_bits(&t->head->busy[slot / 64], 1ull << slot % 64);
	if (slot < table_get32(&t->head->first)) /* both sides write it: a lost store costs a longer search */
		table_put32(&t->head->first, slot);
}

void table_vacate(struct table *t, uint32_t slot)
{
	if (slot == TABLE_NO_SLOT)
		return;
	put_state(t, slot, TABLE_FREE);
	clear_busy(t, slot);
}

/* --- the life of a lease --- */

void table_grant(struct table *t, uint32_t slot, uint64_t fence, const struct store_range *range,
		 const struct holders_file *file)
{
	struct table_slot *s = &t->slots[slot];
	uint64_t generation = table_word_generation(s->word);

	put_range(s, range, table_slot_member(s)); /* mutant: table-granted */
	put_file(s, file);
	table_put64(&s->fence, fence);
	table_put64(&s->incarnation, *TABLE_OF(t, table_slot_member(s), incarnation));
	table_put64(&s->sum, table_slot_sum(s, generation, t->boot)); /* mutant: table-sum */
	table_put64(&s->word, table_word(TABLE_HELD, range->mode, generation));
}

void table_forget_callers(struct table *t, unsigned member)
{
	int64_t *since_ns = TABLE_OF(t, member, callers_ns), freeze_at_ns = *TABLE_OF(t, member, freeze_at_ns);
	struct table_head *h = t->head;

	if (*since_ns == freeze_at_ns) /* mutant: callers-over */
		return;
	for (uint32_t i = 0; i < h->caller_count && i < TABLE_CALLERS; i++)
		if (h->callers[i].member == member)
			table_put32((uint32_t *)&h->callers[i].pid, 0);
	table_put_ns(since_ns, freeze_at_ns);
}

/* A lease that was sure ceases to be. The parent may not have looked since the outage before. */
static void forget_callers(struct table *t, uint32_t slot)
{
	if (table_state(t, slot) == TABLE_HELD) /* mutant: lose-sure */
		table_forget_callers(t, table_slot_member(&t->slots[slot]));
}

void table_doubt(struct table *t, uint32_t slot)
{
	forget_callers(t, slot);
	put_state(t, slot, TABLE_UNSURE);
}

void table_confirm(struct table *t, uint32_t slot)
{
	uint64_t now = *TABLE_OF(t, table_slot_member(&t->slots[slot]), incarnation);

	if (t->slots[slot].incarnation != now)
		table_put64(&t->slots[slot].incarnation, now);
}

void table_hold(struct table *t, uint32_t slot)
{
	put_state(t, slot, TABLE_HELD);
}

void table_share(struct table *t, uint32_t slot)
{
	uint64_t word = word_of(t, slot);

	table_put64(&t->slots[slot].word, table_word(table_word_state(word), WIRE_SHARED,
						     table_word_generation(word))); /* mutant: table-shared */
}

void table_return(struct table *t, uint32_t slot)
{
	if (slot == TABLE_NO_SLOT)
		return;
	put_state(t, slot, TABLE_RETURNED); /* mutant: table-returned */
}

void table_break_for(struct table *t, uint32_t slot, uid_t uid)
{
	table_put64(&t->slots[slot].broken_by, (uint64_t)uid + 1);
}

bool table_spares(const struct table *t, uint32_t slot, uid_t uid)
{
	const struct table_slot *s = &t->slots[slot];
	uint64_t by = table_get64(&s->broken_by);

	return by && table_get32(&s->why) == TABLE_WHY_BROKEN && by != (uint64_t)uid + 1; /* mutant: table-spares */
}

void table_lose(struct table *t, uint32_t slot, enum table_why why)
{
	if (table_on_lost(t, slot) == ON_LOST_WARN && why != TABLE_WHY_BROKEN) { /* mutant: lost */
		table_vacate(t, slot);
		return;
	}
	if (why == TABLE_WHY_BROKEN) /* "warn" is about leases that could not be renewed */
		table_set_on_lost(t, slot, ON_LOST_KILL);
	forget_callers(t, slot);
	table_put32(&t->slots[slot].why, why);
	put_state(t, slot, TABLE_LOST);
}

bool table_is_ending(struct table *t, uint32_t slot, uint64_t generation)
{
	uint64_t word = word_of(t, slot);
	enum table_state state = table_word_state(word);

	return table_word_generation(word) == generation && (state == TABLE_LOST || state == TABLE_ENDING);
}

uint64_t table_generation(const struct table *t, uint32_t slot)
{
	return table_word_generation(word_of(t, slot));
}

void table_set_on_lost(struct table *t, uint32_t slot, enum on_lost on_lost)
{
	if (slot != TABLE_NO_SLOT)
		table_put32(&t->slots[slot].on_lost, on_lost);
}

bool table_learnt(const struct table *t, uint32_t slot, uint64_t *kernel_dev, uint64_t *kernel_ino)
{
	const struct table_slot *s = slot == TABLE_NO_SLOT ? NULL : &t->slots[slot];
	bool known = s && s->kernel_ino;

	*kernel_dev = known ? s->kernel_dev : 0;
	*kernel_ino = known ? s->kernel_ino : 0;
	return known;
}

void table_learn(struct table *t, uint32_t slot, uint64_t kernel_dev, uint64_t kernel_ino)
{
	table_put64(&t->slots[slot].kernel_dev, kernel_dev);
	table_put64(&t->slots[slot].kernel_ino, kernel_ino);
}

/* --- the parent --- */

enum on_lost table_on_lost(const struct table *t, uint32_t slot)
{
	uint32_t on_lost = table_get32(&t->slots[slot].on_lost);

	return on_lost <= ON_LOST_WARN ? (enum on_lost)on_lost : ON_LOST_FREEZE;
}

static void read_view(const struct table_slot *s, uint64_t word, struct table_view *out)
{
	uint32_t space = table_slot_space(s), why = table_get32(&s->why);

	out->state = table_word_state(word);
	out->generation = table_word_generation(word);
	/* kernel_ino first: table_learn() writes it last. */
	out->file.kernel_ino = table_get64(&s->kernel_ino);
	out->file.kernel_dev = table_get64(&s->kernel_dev);
	out->file.dev = table_get64(&s->dev);
	out->file.ino = table_get64(&s->ino);
	out->file.by_number = false;
	out->from = table_get_ns(&s->from);
	out->to = table_get_ns(&s->to);
	out->any_space = space >= WIRE_SPACES;
	out->space = out->any_space ? WIRE_FLOCK : (enum wire_space)space;
	out->why = why < TABLE_WHYS ? (enum table_why)why : TABLE_WHY_UNKNOWN;
}

void table_view(const struct table *t, uint32_t slot, struct table_view *out)
{
	const struct table_slot *s = &t->slots[slot];
	uint64_t word = table_get64(&s->word), again;

	for (;;) {
		read_view(s, word, out);
		out->on_lost = table_on_lost(t, slot);
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		again = table_get64(&s->word);
		if (again == word) /* mutant: table-again */
			break;
		word = again;
	}
	if (out->from < 0 || out->to <= out->from || out->any_space) {
		out->from = 0;
		out->to = WIRE_EOF;
	}
}

bool table_move(struct table *t, uint32_t slot, enum table_state from, enum table_state to)
{
	uint64_t word = word_of(t, slot);

	if (table_word_state(word) != from ||
	    !table_swap64(&t->slots[slot].word, word,
			  table_word(to, table_word_mode(word), table_word_generation(word))))
		return false;
	if (to == TABLE_FREE)
		clear_busy(t, slot);
	return true;
}

void table_unsure(struct table *t)
{
	uint32_t used;

	table_file_find_busy(t);
	used = table_used(t);
	for (uint32_t i = 0; i < used; i++) {
		forget_callers(t, i);
		table_move(t, i, TABLE_HELD, TABLE_UNSURE);
		/* The earlier parent may not have killed all holders. */
		table_move(t, i, TABLE_ENDING, TABLE_LOST); /* mutant: table-ending */
	}
}

/* Is what this process has open still the file of that name? */
static bool is_there(int dir_fd, const char *name, int fd)
{
	struct stat st, open;

	return fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && fstat(fd, &open) == 0 &&
	       st.st_dev == open.st_dev && st.st_ino == open.st_ino;
}

bool table_is_there(const struct table *t, int dir_fd)
{
	return is_there(dir_fd, TABLE_NAME, t->fd) && is_there(dir_fd, TABLE_TEXT_NAME, t->text.fd) &&
	       faccessat(dir_fd, UNDERWAY_NAME, F_OK, AT_SYMLINK_NOFOLLOW) == 0 &&
	       faccessat(dir_fd, TABLE_STORES_NAME, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static int put_file_anew(int dir_fd, const char *name, const void *data, size_t bytes)
{
	int fd, ret = 0;

	unlinkat(dir_fd, TABLE_NEW_NAME, 0);
	fd = openat(dir_fd, TABLE_NEW_NAME, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	for (size_t done = 0; ret == 0 && done < bytes;) {
		ssize_t n = write(fd, (const char *)data + done, bytes - done);

		if (n > 0)
			done += (size_t)n;
		else
			ret = n < 0 && errno == EINTR ? 0 : n < 0 ? -errno : -EIO;
	}
	close(fd);
	if (ret == 0 && renameat(dir_fd, TABLE_NEW_NAME, dir_fd, name) != 0)
		ret = -errno;
	return ret;
}

/* The table last: without it nothing looks at the others. */
int table_restore(struct table *t, int dir_fd)
{
	size_t bytes;
	const void *calls = underway_bytes(&t->underway, &bytes);
	int ret = calls ? put_file_anew(dir_fd, UNDERWAY_NAME, calls, bytes) : 0;

	if (ret == 0)
		ret = put_file_anew(dir_fd, TABLE_STORES_NAME, table_file_stores(t), sizeof(struct table_stores));

	if (ret == 0)
		ret = put_file_anew(dir_fd, TABLE_TEXT_NAME, t->text.map, t->text.bytes);
	table_put64(&t->head->file_ino, 0); /* it is no copy: this file ends with this keeper */
	return ret == 0 ? put_file_anew(dir_fd, TABLE_NAME, t->head, table_file_bytes(t)) : ret;
}

void table_close(struct table *t)
{
	underway_close(&t->underway);
	table_text_close(t);
	table_file_close(t);
}

void table_set_hidden(struct table *t, uint32_t slot, uint64_t generation, bool hidden)
{
	table_put64(&t->slots[slot].hidden, hidden ? generation : 0);
}

bool table_is_hidden(const struct table *t, uint32_t slot)
{
	return slot != TABLE_NO_SLOT && table_get64(&t->slots[slot].hidden) == table_word_generation(word_of(t, slot));
}
