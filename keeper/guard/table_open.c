/*
 * Opening the table of leases (table.h): what is under its name may be of an earlier keeper of this version, of another version,
 * damaged, a copy, or no table at all. A new table is made as leases.new, and takes the name when it is whole. A parent that dies
 * before that leaves the old one, and the next parent does the same again.
 *
 * The leases of a table that no keeper can take up, because its head is damaged or it is of another version, become unsure leases that
 * cannot be read, so that their holders are ended.
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
 * without a sum (table_file.c). This is what table_left.c calls damaged. The parent stops the holders at freeze_at_ns, and goes on to look
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
 * Processes that an earlier parent stopped by SIGSTOP are noted in the new table if pid and start time are those of a process
 * that runs: the next parent continues or ends them.
 */
#include "keeper/guard/table.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "keeper/guard/table_file.h"
#include "keeper/guard/table_words.h"
#include "keeper/kernel/family.h"

#define TTL_MAX_NS (3600000 * NS_PER_MS) /* no configuration may say more (config.c) */

/* --- leases that cannot be taken up --- */

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
	struct table *to; /* the new table */
	int fd;           /* the old one, and its head: where things are */
	const struct table_head *head;
	size_t believed; /* bytes of a slot */
	uint32_t slots;  /* of the file */
	uint32_t leases; /* taken: they have the first slots */
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
	return rescue_read(r, r->head->head_bytes + (uint64_t)i * r->head->slot_bytes, slot, r->believed);
}

/* Of a table with a damaged head: is it one of this boot? 0, -EUCLEAN or -errno. */
static int rescue_prove(const struct rescue *r)
{
	struct table_slot slot;

	for (uint32_t i = 0; i < r->slots; i++) {
		int ret = rescue_read_slot(r, i, &slot);

		if (ret < 0)
			return ret;
		if (slot.fence && slot.sum == table_slot_sum(&slot, table_word_generation(slot.word), r->to->boot))
			return 0;
	}
	return -EUCLEAN;
}

static bool rescue_is_lease(const struct table_slot *slot)
{
	unsigned state = slot->word & 0xff;

	return state != TABLE_FREE && state != TABLE_ASKED && state != TABLE_RETURNED; /* mutant: rescue-lease */
}

/* As one that cannot be read, for all locks on its file. */
static int rescue_take(struct rescue *r, const struct table_slot *from)
{
	uint32_t slot = r->leases;
	int ret = slot < r->to->room ? 0 : slot < TABLE_SLOTS ? table_file_grow(r->to, slot) : -EFBIG;

	if (ret < 0)
		return ret;
	r->leases++;
	r->to->slots[slot] = (struct table_slot){.word = table_word(TABLE_UNSURE, WIRE_EXCLUSIVE, 1),
						 .dev = from->dev,
						 .ino = from->ino,
						 .kernel_dev = from->kernel_dev,
						 .kernel_ino = from->kernel_ino,
						 .on_lost = from->on_lost,
						 .space = TABLE_ANY_SPACE};
	return 0;
}

static int rescue_leases(struct rescue *r)
{
	struct table_slot slot;
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && i < r->slots; i++) {
		ret = rescue_read_slot(r, i, &slot);
		if (ret == 0 && rescue_is_lease(&slot))
			ret = rescue_take(r, &slot);
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
	struct table_signalled *to = r->to->head->signalled;
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && i < r->head->signalled_count && i < TABLE_SIGNALLED; i++) {
		ret = rescue_read(r, r->head->signalled_at + (uint64_t)i * sizeof(*to), to, sizeof(*to));
		if (ret == 0 && rescue_is_note(to))
			to++;
		else
			memset(to, 0, sizeof(*to));
	}
	return ret;
}

static int rescue_begin(struct rescue *r)
{
	uint64_t head_bytes = r->head->head_bytes, slots;
	struct stat st;

	if (fstat(r->fd, &st) != 0)
		return -errno;
	if (head_bytes < TABLE_HEAD_PROMISED || r->head->slot_bytes < TABLE_SLOT_PROMISED)
		return -EUCLEAN;
	slots = (uint64_t)st.st_size > head_bytes ? ((uint64_t)st.st_size - head_bytes) / r->head->slot_bytes : 0;
	r->slots = slots < RESCUE_SLOTS ? (uint32_t)slots : RESCUE_SLOTS;
	return 0;
}

/*
 * Takes the leases of the file `fd`, which this user's keepers alone could write, into the table, which has none. old: the promised
 * part of another version's head of this boot; NULL: that of this version, and it is damaged. *leases: how many.
 *
 * 0; -EUCLEAN: nothing says that this was a table of this boot; -errno.
 */
static int table_rescue(struct table *t, int fd, const struct table_head *old, uint32_t *leases)
{
	struct rescue r = {.to = t,
			   .fd = fd,
			   .head = old ? old : t->head,
			   .believed = old ? TABLE_SLOT_PROMISED : sizeof(struct table_slot)};
	int ret = rescue_begin(&r);

	if (ret == 0 && !old)
		ret = rescue_prove(&r); /* mutant: rescue-ours */
	if (ret == 0)
		ret = rescue_leases(&r);
	if (ret == 0)
		ret = rescue_signalled(&r);
	*leases = r.leases;
	if (ret < 0 || !old)
		return ret; /* without times nothing is sure: table_open() */
	t->head->time_dev = old->time_dev;
	t->head->time_ino = old->time_ino;
	t->head->freeze_at_ns = old->freeze_at_ns;
	t->head->deadline_ns = old->deadline_ns;
	t->head->pins_until_ns = old->pins_until_ns;
	return 0;
}

/* --- the file --- */

/* Identifies the clock of the table's times within the boot: CLOCK_BOOTTIME differs between time namespaces. */
static void own_clock(uint64_t *dev, uint64_t *ino)
{
	struct stat st;

	*dev = *ino = 0;
	if (stat("/proc/self/ns/time", &st) != 0)
		return;
	*dev = st.st_dev;
	*ino = st.st_ino;
}

/* Under a name of its own: nothing looks at a table that is not whole (table_file_open()). */
static int table_file_make(struct table *t, const char boot[CLOCK_BOOT_BYTES])
{
	struct table_head *h;
	int ret;

	unlinkat(t->dir_fd, TABLE_NEW_NAME, 0);
	t->fd = openat(t->dir_fd, TABLE_NEW_NAME, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (t->fd < 0)
		return -errno;
	ret = table_file_grow(t, 0);
	if (ret == 0)
		ret = table_file_mmap(t);
	if (ret < 0) {
		unlinkat(t->dir_fd, TABLE_NEW_NAME, 0);
		return ret;
	}
	h = t->head; /* zeros */
	h->magic = TABLE_MAGIC;
	h->version = TABLE_VERSION;
	h->head_bytes = TABLE_HEAD_BYTES;
	h->slot_bytes = sizeof(struct table_slot);
	h->signalled_at = offsetof(struct table_head, signalled);
	h->signalled_count = TABLE_SIGNALLED;
	memcpy(h->boot, boot, CLOCK_BOOT_BYTES);
	h->sum = table_head_sum(h);
	own_clock(&h->time_dev, &h->time_ino);
	(void)!getrandom(&h->id, sizeof(h->id), 0);
	return 0;
}

/* What there is under the table's name. */
enum found {
	FOUND_NOTHING, /* or a table of another boot */
	FOUND_TABLE,
	FOUND_OTHER_VERSION,
	FOUND_DAMAGED,
	FOUND_FOREIGN, /* not a file that a parent of this user made */
	FOUND_COPY,    /* of the table of a keeper that may run elsewhere */
};

/*
 * The lock on keeper.lock shows that no other keeper has this table, but not that none has the table that this one is a copy of. The
 * kernel gives no two files on a machine the same numbers at one time. (A copy of the machine has them: store_keep_seat().)
 */
static bool is_copy(const struct table *t, const struct stat *st)
{
	uint64_t file[2];

	return pread(t->fd, file, sizeof(file), offsetof(struct table_head, file_dev)) == sizeof(file) && file[1] &&
	       (file[0] != st->st_dev || file[1] != st->st_ino); /* mutant: table-copy */
}

/* enum found, or -errno. t->fd: the file, or -1. *head: the promised part of it. */
static int find_old(struct table *t, const char boot[CLOCK_BOOT_BYTES], struct table_head *head)
{
	struct stat st;
	ssize_t n;

	t->fd = openat(t->dir_fd, TABLE_NAME, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (t->fd < 0) {
		bool foreign =
			errno == ELOOP || errno == EISDIR || errno == EACCES || errno == ENXIO; /* ENXIO: a socket */

		return foreign ? FOUND_FOREIGN : errno == ENOENT ? FOUND_NOTHING : -errno;
	}
	if (fstat(t->fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077))
		return FOUND_FOREIGN;
	n = pread(t->fd, head, TABLE_HEAD_PROMISED, 0);
	if (n < 0)
		return -errno;
	if (n != TABLE_HEAD_PROMISED || head->magic != TABLE_MAGIC || head->sum != table_head_sum(head))
		return FOUND_DAMAGED;
	if (memcmp(head->boot, boot, sizeof(head->boot)) != 0) /* mutant: table-boot */
		return FOUND_NOTHING;
	if (head->version != TABLE_VERSION || head->head_bytes != TABLE_HEAD_BYTES ||
	    head->slot_bytes != sizeof(struct table_slot))
		return FOUND_OTHER_VERSION;
	if (is_copy(t, &st))
		return FOUND_COPY;
	t->room = table_file_room(t->fd);
	/* A process other than ours may have made it longer, and left holes. */
	return t->room && table_file_allocate(t->fd, 0, table_file_bytes(t)) == 0 ? FOUND_TABLE : FOUND_DAMAGED;
}

/* Corrects the words that this process relies on, whatever wrote them. */
static void check_head(struct table *t)
{
	struct table_head *h = t->head;

	if (h->used > t->room)
		table_put32(&h->used, t->room);
	if (h->caller_count > TABLE_CALLERS)
		table_put32(&h->caller_count, 0);
	if (memchr(h->host, '\0', sizeof(h->host)) == NULL)
		table_put_bytes(h->host, "", 1);
	if (memchr(h->twin, '\0', sizeof(h->twin)) == NULL)
		table_put_bytes(h->twin, "", 1);
	for (unsigned i = 0; i < 2 * TABLE_MEMBERS; i++) {
		char *text = (*TABLE_OF(t, i / 2, incarnations))[i % 2];

		if (memchr(text, '\0', STORE_INC_BYTES) == NULL)
			table_put_bytes(text, "", 1);
	}
}

/* Until when the leases are sure, and when pins end, is not known: as if the leases had run out now. */
static void doubt_times(struct table *t)
{
	int64_t now = clock_now_ns();

	for (unsigned i = 0; i < TABLE_MEMBERS; i++) {
		table_put_ns(TABLE_OF(t, i, freeze_at_ns), now);
		table_put_ns(TABLE_OF(t, i, deadline_ns), now);
	}
	table_put_ns(&t->head->pins_until_ns, INT64_MAX);
}

/* Could a keeper have written them? */
static bool times_can_be(const struct table *t)
{
	for (unsigned i = 0; i < TABLE_MEMBERS; i++) {
		int64_t freeze_at = *TABLE_OF(t, i, freeze_at_ns), deadline = *TABLE_OF(t, i, deadline_ns);

		/* mutant: table-times */
		if (freeze_at < 0 || freeze_at > deadline || deadline > clock_now_ns() + TTL_MAX_NS)
			return false;
	}
	return true;
}

/*
 * In another time namespace the same moment has another, unknown number. So no lease is sure: the holders are stopped
 * now, and go on when the store has confirmed the leases. The end of the pins is not known, either.
 */
static void check_clock(struct table *t)
{
	uint64_t dev, ino;

	own_clock(&dev, &ino);
	if (t->head->time_dev == dev && t->head->time_ino == ino && times_can_be(t)) /* mutant: table-clock */
		return;
	doubt_times(t);
	table_put64(&t->head->time_dev, dev);
	table_put64(&t->head->time_ino, ino);
}

/* A file of which nothing is taken. It may be anything, so it is moved and not linked. */
static int put_aside(struct table *t, char *why, size_t why_size)
{
	if (renameat(t->dir_fd, TABLE_NAME, t->dir_fd, TABLE_BAD_NAME) != 0)
		return -errno;
	snprintf(why, why_size,
		 "the file " TABLE_NAME
		 " is not a table of leases that a keeper of this user has made since the machine "
		 "started: kept as " TABLE_BAD_NAME ", and nothing is taken from it");
	return 0;
}

/* The processes that rely on its leases are another keeper's. */
static int leave_copy(struct table *t, int old_fd, char *why, size_t why_size)
{
	char *host = t->head->twin;

	if (pread(old_fd, host, STORE_HOST_BYTES - 1, offsetof(struct table_head, host)) < 0)
		return -errno;
	snprintf(why, why_size,
		 "the table of leases is a copy of that of the host %.*s, which may be in use: it is kept "
		 "as " TABLE_BAD_NAME ", nothing is taken from it, and this keeper is another host",
		 STORE_HOST_BYTES - 1, host);
	return renameat(t->dir_fd, TABLE_NAME, t->dir_fd, TABLE_BAD_NAME) == 0 ? 0 : -errno;
}

/* A table whose leases the new one has, as lost ones. It keeps its name until the new one takes its place. */
static void keep_copy(struct table *t, int found, const struct table_head *old, uint32_t leases, char *why,
		      size_t why_size)
{
	int len;
	bool kept;

	unlinkat(t->dir_fd, TABLE_BAD_NAME, 0);
	kept = linkat(t->dir_fd, TABLE_NAME, t->dir_fd, TABLE_BAD_NAME, 0) == 0;
	if (found == FOUND_DAMAGED)
		len = snprintf(why, why_size, "the table of leases is damaged");
	else
		len = snprintf(why, why_size, "the table of leases has version %u, this keeper knows version %d",
			       old->version, TABLE_VERSION);
	snprintf(why + len, why_size - (size_t)len,
		 ": %s " TABLE_BAD_NAME
		 "; the processes that hold locks under its leases (%u) are ended, as their rules say (on_lost)",
		 kept ? "kept as" : "it could not be kept as", leases);
}

/* In place of what was found: a table without leases, or with those of the old one as lost ones. */
static int make_anew(struct table *t, const char boot[CLOCK_BOOT_BYTES], int found, const struct table_head *old,
		     char *why, size_t why_size)
{
	uint32_t leases = 0;
	int old_fd = t->fd, ret;

	t->room = 0;
	ret = table_file_make(t, boot);
	if (ret == 0 && (found == FOUND_OTHER_VERSION || found == FOUND_DAMAGED))
		ret = table_rescue(t, old_fd, found == FOUND_OTHER_VERSION ? old : NULL, &leases);
	if (ret == -EUCLEAN || (ret == 0 && found == FOUND_FOREIGN))
		ret = put_aside(t, why, why_size);
	else if (ret == 0 && found == FOUND_COPY)
		ret = leave_copy(t, old_fd, why, why_size);
	else if (ret == 0 && leases)
		keep_copy(t, found, old, leases, why, why_size);
	if (old_fd >= 0)
		close(old_fd);
	if (ret == 0 && renameat(t->dir_fd, TABLE_NEW_NAME, t->dir_fd, TABLE_NAME) != 0)
		ret = -errno;
	if (ret < 0)
		unlinkat(t->dir_fd, TABLE_NEW_NAME, 0);
	return ret;
}

/* From now on a copy of the file is known as one. */
static void own_file(struct table *t)
{
	struct stat st;

	if (fstat(t->fd, &st) != 0)
		return;
	table_put64(&t->head->file_dev, st.st_dev);
	table_put64(&t->head->file_ino, st.st_ino);
}

static int table_open_file(struct table *t, char *why, size_t why_size)
{
	char boot[CLOCK_BOOT_BYTES] = "";
	struct table_head old;
	int ret = clock_boot(boot), found;

	if (ret < 0)
		return ret;
	t->boot = table_sum(boot, CLOCK_BOOT_BYTES); /* slots have it in their sums */
	ret = find_old(t, boot, &old);
	found = ret;
	if (ret >= 0)
		ret = table_file_map_stores(t);
	if (ret < 0 || found == FOUND_TABLE)
		return ret < 0 ? ret : table_file_mmap(t);
	memset(t->others, 0, sizeof(*t->others) * (TABLE_MEMBERS - 1)); /* of a table that is not taken up */
	return make_anew(t, boot, found, &old, why, why_size);
}

/* A lease in a store of which no time is known. */
static bool has_endless(struct table *t)
{
	uint32_t used = table_used(t);

	for (uint32_t i = 0; i < used; i++)
		if (table_is_leased(table_state(t, i)) &&
		    !table_get_ns(TABLE_OF(t, table_slot_member(&t->slots[i]), freeze_at_ns)))
			return true;
	return false;
}

int table_open(struct table *t, int dir_fd, char *why, size_t why_size)
{
	int ret;

	*why = '\0';
	*t = (struct table){.dir_fd = dir_fd, .fd = -1, .text.fd = -1};
	ret = table_open_file(t, why, why_size);
	if (ret < 0) {
		table_file_close(t);
		return ret;
	}
	check_head(t);
	check_clock(t);
	own_file(t);
	table_put32((uint32_t *)&t->head->parent, (uint32_t)getpid());
	table_put32(&t->head->frozen_count, 0);
	table_put32(&t->head->ending, 0);
	underway_open(&t->underway, dir_fd); /* or not: then no call of the net is granted */
	table_unsure(t);
	if (has_endless(t))     /* no lease is sure for ever */
		doubt_times(t); /* mutant: rescue-times */
	return 0;
}
