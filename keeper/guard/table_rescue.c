/*
 * See table_rescue.h.
 *
 * Why holders are ended. A keeper renews a lease by its token, which is in the text area, under the host's name. With a
 * damaged head neither the name nor the area's number can be trusted; another version may have them anywhere. So the leases
 * run out, and promise 3 asks that no process goes on under them. They are not confirmed under a guess: a token that the
 * store accepts from the wrong host would be worse than a job that ends.
 *
 * What may be believed. The file has the table's name in the runtime directory, belongs to this user, and no other user can
 * write it (find_old()). Then:
 *   - The promised part of the head has a sum. If it fits, so does what it says: boot, version, where the slots are. A table
 *     of another boot is void: no process of then is left.
 *   - If it does not fit, even the boot is unknown. But each lease has a sum of its own, and the boot is part of that
 *     (table_slot_sum()). One slot whose sum fits shows that the file is a table of this version and this boot, and so all
 *     its slots count, those that are damaged, too. Without such a slot nothing suggests that there was a lease: the
 *     file may be anything, and what it says must not end a process. (A table with nothing but slots that were asked for
 *     is put aside, too: no process relies on these.)
 * A table whose head is damaged and that is of another version is not recognised.
 *
 * Why no process relies on a lease afterwards. Each lease becomes an unsure one, for all locks on its file, without text and
 * without a sum (table_file.c). This is what table_earlier.c calls damaged. The parent stops the holders at freeze_at_ns, and goes on to look
 * for new ones; the keeper waits until the last pin has ended, serves nobody meanwhile, and loses the leases; the parent
 * ends the holders. freeze_at_ns and pins_until_ns are those of the other version. With a damaged head, nothing is sure: the
 * holders are stopped at once, and pins may be as long as any configuration allows. All leases of the table are lost, so "all
 * locks on the file" ends no process that a range would have spared, unless that process took its lock without a lease.
 *
 * The new table names no host, so the next keeper is a new host for the store. The old host's beat has stopped for good: its
 * leases go to others when it has been silent for a ttl, like those of a machine that died.
 *
 * A crash. All this is done in a file that no process looks at, before it takes the name of the old table in one step. A
 * parent that dies before that leaves the old table; one that dies after it leaves a table of this version with damaged
 * leases, which the next parent and keeper go on with.
 *
 * dflock 0.1 had two files in place of the table: "fence", which the parent read, and "journal" with tokens and names. Of the fence
 * the same is taken as of a table of another version; its pins ended before its freeze_at_ns.
 *
 * Processes that an earlier parent stopped by SIGSTOP are noted in the new table if pid and start time are those of a process
 * that runs: the next parent continues or ends them.
 */
#include "keeper/guard/table_rescue.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "keeper/guard/table_sums.h"
#include "keeper/kernel/family.h"

#define RESCUE_SLOTS (1u << 20) /* of another version; more are not looked at */

#define PROMISED_AT(type, field, at) _Static_assert(offsetof(struct type, field) == (at), "promised: " #field)
PROMISED_AT(table_head, version, 8);
PROMISED_AT(table_head, head_bytes, 12);
PROMISED_AT(table_head, slot_bytes, 16);
PROMISED_AT(table_head, signalled_at, 20);
PROMISED_AT(table_head, signalled_count, 24);
PROMISED_AT(table_head, boot, 32);
PROMISED_AT(table_head, sum, 72);
PROMISED_AT(table_head, time_dev, 80);
PROMISED_AT(table_head, time_ino, 88);
PROMISED_AT(table_head, freeze_at_ns, 96);
PROMISED_AT(table_head, deadline_ns, 104);
PROMISED_AT(table_head, pins_until_ns, 112);
PROMISED_AT(table_head, id, 120);
PROMISED_AT(table_slot, word, 0);
PROMISED_AT(table_slot, dev, 8);
PROMISED_AT(table_slot, ino, 16);
PROMISED_AT(table_slot, kernel_dev, 24);
PROMISED_AT(table_slot, kernel_ino, 32);
PROMISED_AT(table_slot, on_lost, 40);
PROMISED_AT(table_slot, space, 44);
_Static_assert(TABLE_FREE == 0 && TABLE_ASKED == 1 && TABLE_RETURNED == 4, "promised: states that are no leases");
_Static_assert(sizeof(struct table_signalled) == 16, "promised: struct table_signalled");

struct rescue {
	int fd;
	uint64_t boot;
	const struct rescue_to *to;
	uint64_t head_bytes, slot_bytes; /* where the file has its slots: as struct table_head says it */
	uint64_t signalled_at;
	uint32_t signalled_count;
	uint32_t slots;  /* of the file */
	size_t believed; /* bytes of a slot */
};

/* Zeros for what the file does not have. */
static int rescue_read(const struct rescue *r, uint64_t at, void *out, size_t bytes)
{
	ssize_t n = pread(r->fd, out, bytes, (off_t)at);

	if (n < 0)
		return -errno;
	memset((char *)out + n, 0, bytes - (size_t)n);
	return 0;
}

static int rescue_read_slot(const struct rescue *r, uint32_t i, struct table_slot *slot)
{
	memset(slot, 0, sizeof(*slot));
	return rescue_read(r, r->head_bytes + i * r->slot_bytes, slot, r->believed);
}

static bool rescue_is_lease(const struct table_slot *slot)
{
	unsigned state = slot->word & 0xff;

	return state != TABLE_FREE && state != TABLE_ASKED && state != TABLE_RETURNED; /* mutant: rescue-lease */
}

static bool rescue_proves(const struct rescue *r, const struct table_slot *slot)
{
	return slot->fence && slot->sum == table_slot_sum(slot, table_word_generation(slot->word), r->boot);
}

/* Of a table with a damaged head: is it one of this boot? 1, 0 or -errno. */
static int rescue_is_ours(const struct rescue *r)
{
	struct table_slot slot;
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && i < r->slots; i++) {
		ret = rescue_read_slot(r, i, &slot);
		if (ret == 0 && rescue_proves(r, &slot))
			return 1;
	}
	return ret;
}

static int rescue_leases(const struct rescue *r)
{
	struct table_slot slot;
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && i < r->slots; i++) {
		ret = rescue_read_slot(r, i, &slot);
		if (ret == 0 && rescue_is_lease(&slot))
			ret = r->to->lease(r->to->arg, &slot);
	}
	return ret;
}

/* Is it a note of a process that runs? */
static bool rescue_is_note(const struct table_signalled *s)
{
	struct procfs_stat stat;

	return s->pid > 0 && s->noted <= TABLE_STOPPED_KIN && family_stat(s->pid, &stat) &&
	       stat.started == s->started; /* mutant: rescue-signalled */
}

static int rescue_signalled(const struct rescue *r)
{
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && i < r->signalled_count && i < TABLE_SIGNALLED; i++) {
		struct table_signalled s;

		ret = rescue_read(r, r->signalled_at + (uint64_t)i * sizeof(s), &s, sizeof(s));
		if (ret == 0 && rescue_is_note(&s))
			r->to->signalled(r->to->arg, &s);
	}
	return ret;
}

static int rescue_begin(struct rescue *r, const struct table_head *head, bool damaged)
{
	struct stat st;
	uint64_t slots;

	r->believed = damaged ? sizeof(struct table_slot) : TABLE_SLOT_PROMISED;
	r->head_bytes = head->head_bytes;
	r->slot_bytes = head->slot_bytes;
	r->signalled_at = head->signalled_at;
	r->signalled_count = head->signalled_count;
	if (fstat(r->fd, &st) != 0)
		return -errno;
	if (r->head_bytes < TABLE_HEAD_PROMISED || r->slot_bytes < TABLE_SLOT_PROMISED)
		return -EUCLEAN;
	slots = (uint64_t)st.st_size > r->head_bytes ? ((uint64_t)st.st_size - r->head_bytes) / r->slot_bytes : 0;
	r->slots = slots < RESCUE_SLOTS ? (uint32_t)slots : RESCUE_SLOTS;
	return 0;
}

int table_rescue(int fd, const struct table_head *head, bool damaged, uint64_t boot, const struct rescue_to *to)
{
	struct rescue r = {.fd = fd, .boot = boot, .to = to};
	int ret = rescue_begin(&r, head, damaged);

	if (ret == 0 && damaged) {
		ret = rescue_is_ours(&r); /* mutant: rescue-ours */
		ret = ret == 0 ? -EUCLEAN : ret < 0 ? ret : 0;
	}
	if (ret == 0)
		ret = rescue_leases(&r);
	return ret == 0 ? rescue_signalled(&r) : ret;
}

/* --- dflock 0.1 --- */

#define FENCE_MAGIC 0x3565636e65666c64ull

struct fence_slot {
	uint32_t state; /* 0: free. Any other one: a lease */
	uint32_t space, hidden, hidden_said;
	uint64_t dev, ino, kernel_dev, kernel_ino;
	int64_t from, to;
	uint32_t on_lost, why;
};

struct fence_head {
	uint64_t magic;
	char boot[CLOCK_BOOT_BYTES];
	int32_t parent;
	uint32_t ending;
	int64_t alive, freeze_at_ns, deadline_ns;
	uint32_t used, first;
	uint64_t busy[TABLE_SLOTS / 64];
	uint32_t frozen_count;
	struct table_signalled signalled[TABLE_SIGNALLED];
	int64_t callers_ns;
	uint32_t caller_count;
	struct table_caller callers[TABLE_CALLERS];
};
_Static_assert(sizeof(struct fence_slot) == 72 && sizeof(struct fence_head) == 98416 &&
		       offsetof(struct fence_head, freeze_at_ns) == 64 &&
		       offsetof(struct fence_head, signalled) == 8288,
	       "as dflock 0.1.0 has it");

static int fence_leases(const struct rescue *r)
{
	struct fence_slot s;
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && i < r->slots; i++) {
		ret = rescue_read(r, r->head_bytes + (uint64_t)i * sizeof(s), &s, sizeof(s));
		if (ret == 0 && s.state)
			ret = r->to->lease(r->to->arg, &(struct table_slot){.dev = s.dev,
									    .ino = s.ino,
									    .kernel_dev = s.kernel_dev,
									    .kernel_ino = s.kernel_ino,
									    .on_lost = s.on_lost});
	}
	return ret == 0 ? rescue_signalled(r) : ret;
}

static int fence_read(struct rescue *r, const char boot[CLOCK_BOOT_BYTES], int64_t *pins_until_ns)
{
	struct fence_head head;
	struct stat st;
	int ret;

	if (fstat(r->fd, &st) != 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077))
		return -EUCLEAN;
	ret = rescue_read(r, 0, &head, offsetof(struct fence_head, busy));
	if (ret < 0)
		return ret;
	if (head.magic != FENCE_MAGIC)
		return -EUCLEAN;
	if (memcmp(head.boot, boot, CLOCK_BOOT_BYTES) != 0) /* mutant: fence-boot */
		return 0;
	r->slots = head.used < TABLE_SLOTS ? head.used : TABLE_SLOTS;
	*pins_until_ns = head.freeze_at_ns;
	return fence_leases(r);
}

int table_rescue_fence(int dir_fd, const char boot[CLOCK_BOOT_BYTES], const struct rescue_to *to,
		       int64_t *pins_until_ns)
{
	struct rescue r = {.to = to,
			   .head_bytes = sizeof(struct fence_head),
			   .signalled_at = offsetof(struct fence_head, signalled),
			   .signalled_count = TABLE_SIGNALLED};
	int ret;

	r.fd = openat(dir_fd, TABLE_FENCE_NAME, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (r.fd < 0)
		return errno == ENOENT ? 0 : errno == ELOOP ? -EUCLEAN : -errno;
	ret = fence_read(&r, boot, pins_until_ns);
	close(r.fd);
	return ret;
}
