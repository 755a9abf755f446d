/*
 * See table_file.h. No mapped page is used before posix_fallocate() was called for it: `room` is what this process
 * knows to be allocated, by its own call or by the file's size, which only posix_fallocate() changes. So neither a full
 * file system nor a damaged word of the table leads to SIGBUS. The whole range of addresses is mapped at once, so that
 * the slots never move.
 *
 * A new table is made as leases.new, and takes the name when it is whole. A parent that dies before that leaves the old one,
 * and the next parent does the same again.
 */
#include "keeper/guard/table_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "keeper/guard/table_rescue.h"
#include "keeper/guard/table_sums.h"
#include "keeper/guard/table_words.h"

#define ROOM_STEP  1024 /* slots by which the file grows */
#define HEAD_BYTES TABLE_HEAD_BYTES
#define MAP_BYTES  (HEAD_BYTES + TABLE_SLOTS * sizeof(struct table_slot))

#define TTL_MAX_NS (3600000 * NS_PER_MS) /* no configuration may say more (config.c) */

_Static_assert(sizeof(struct table_slot) == 128, "a slot has two cache lines");

int table_file_allocate(int fd, uint64_t from, uint64_t to)
{
	int error;

	do
		error = posix_fallocate(fd, (off_t)from, (off_t)(to - from));
	while (error == EINTR);
	return -error;
}

const char *table_file_advice(int ret)
{
	return ret == -ENOSPC ? "; make room on the runtime directory's file system" : "";
}

static int table_file_map_opened(int fd, size_t bytes, bool make, void **map)
{
	struct stat st;
	int ret;

	if (fstat(fd, &st) != 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077))
		return -EPERM;
	if (st.st_size != (off_t)bytes && !make)
		return -ENOENT;
	if (st.st_size != (off_t)bytes && ftruncate(fd, 0) != 0)
		return -errno;
	ret = table_file_allocate(fd, 0, bytes);
	if (ret < 0)
		return ret;
	*map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	return *map == MAP_FAILED ? -errno : 0;
}

/* False: the file is void. */
static bool table_file_is_marked(const struct table_file_mark *found, const struct table_file_mark *mark)
{
	return found->magic == mark->magic && found->version == mark->version &&
	       memcmp(found->boot, mark->boot, sizeof(mark->boot)) == 0; /* mutant: file-boot */
}

int table_file_map(int dir_fd, const char *name, uint64_t magic, uint64_t version, size_t bytes, bool make, void **map)
{
	struct table_file_mark mark = {.magic = magic, .version = version};
	const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | (make ? O_CREAT : 0);
	int ret = clock_boot(mark.boot), fd;

	if (ret < 0)
		return ret;
	fd = openat(dir_fd, name, flags, 0600);
	if (fd < 0)
		return -errno;
	ret = table_file_map_opened(fd, bytes, make, map);
	close(fd);
	if (ret < 0 || table_file_is_marked(*map, &mark))
		return ret;
	if (!make) {
		munmap(*map, bytes);
		return -ENOENT;
	}
	memset(*map, 0, bytes);
	memcpy(*map, &mark, sizeof(mark));
	return 0;
}

static uint32_t room_of_file(int fd)
{
	struct stat st;

	if (fstat(fd, &st) != 0 || st.st_size < (off_t)HEAD_BYTES)
		return 0;
	st.st_size = (st.st_size - (off_t)HEAD_BYTES) / (off_t)sizeof(struct table_slot);
	return st.st_size > TABLE_SLOTS ? TABLE_SLOTS : (uint32_t)st.st_size;
}

size_t table_file_bytes(const struct table *t)
{
	return HEAD_BYTES + t->room * sizeof(struct table_slot);
}

int table_file_grow(struct table *t, uint32_t slot)
{
	uint32_t room = (slot / ROOM_STEP + 1) * ROOM_STEP;
	int ret = table_file_allocate(t->fd, t->room ? table_file_bytes(t) : 0,
				      HEAD_BYTES + room * sizeof(struct table_slot));

	if (ret == 0)
		t->room = room;
	return ret;
}

/* The other process may have made the file longer. */
uint32_t table_used(struct table *t)
{
	uint32_t used = table_get32(&t->head->used);

	if (used > t->room)
		t->room = room_of_file(t->fd);
	return used < t->room ? used : t->room; /* mutant: table-room */
}

/* Also finds `used` anew: if that was damaged, no lease may go unseen. */
void table_file_find_busy(struct table *t)
{
	uint32_t used = 0;

	t->room = room_of_file(t->fd);
	for (uint32_t w = 0; w < TABLE_SLOTS / 64; w++) {
		uint64_t bits = 0;

		for (uint32_t i = w * 64; i < w * 64 + 64 && i < t->room; i++)
			if (table_state(t, i) != TABLE_FREE)
				bits |= 1ull << i % 64;
		if (bits)
			used = w * 64 + 64 - (uint32_t)__builtin_clzll(bits);
		if (bits != t->head->busy[w])
			table_put64(&t->head->busy[w], bits);
	}
	table_put32(&t->head->used, used);
	table_put32(&t->head->first, 0);
}

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

static int map_file(struct table *t)
{
	void *map = mmap(NULL, MAP_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, t->fd, 0);

	if (map == MAP_FAILED)
		return -errno;
	t->head = map;
	t->slots = (struct table_slot *)((char *)map + HEAD_BYTES);
	return 0;
}

/* A number for the present boot: slots have it in their sums. */
static uint64_t number_of_boot(const char boot[CLOCK_BOOT_BYTES])
{
	return table_sum(boot, CLOCK_BOOT_BYTES);
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
		ret = map_file(t);
	if (ret < 0) {
		unlinkat(t->dir_fd, TABLE_NEW_NAME, 0);
		return ret;
	}
	h = t->head; /* zeros */
	h->magic = TABLE_MAGIC;
	h->version = TABLE_VERSION;
	h->head_bytes = HEAD_BYTES;
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

	return pread(t->fd, file, sizeof(file), offsetof(struct table_head, file_dev)) == sizeof(file) &&
	       file[1] && (file[0] != st->st_dev || file[1] != st->st_ino); /* mutant: table-copy */
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
	if (head->version != TABLE_VERSION || head->head_bytes != HEAD_BYTES ||
	    head->slot_bytes != sizeof(struct table_slot))
		return FOUND_OTHER_VERSION;
	if (is_copy(t, &st))
		return FOUND_COPY;
	t->room = room_of_file(t->fd);
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
	for (int i = 0; i < 2; i++)
		if (memchr(h->incarnations[i], '\0', sizeof(h->incarnations[i])) == NULL)
			table_put_bytes(h->incarnations[i], "", 1);
}

void table_file_doubt_times(struct table *t)
{
	table_put_ns(&t->head->freeze_at_ns, clock_now_ns());
	table_put_ns(&t->head->deadline_ns, t->head->freeze_at_ns);
	table_put_ns(&t->head->pins_until_ns, INT64_MAX);
}

/* Could a keeper have written them? */
static bool times_can_be(const struct table_head *h)
{
	return h->freeze_at_ns >= 0 && h->freeze_at_ns <= h->deadline_ns &&
	       h->deadline_ns <= clock_now_ns() + TTL_MAX_NS; /* mutant: table-times */
}

/*
 * In another time namespace the same moment has another, unknown number. So no lease is sure: the holders are stopped
 * now, and go on when the store has confirmed the leases. The end of the pins is not known, either.
 */
static void check_clock(struct table *t)
{
	uint64_t dev, ino;

	own_clock(&dev, &ino);
	if (t->head->time_dev == dev && t->head->time_ino == ino && times_can_be(t->head)) /* mutant: table-clock */
		return;
	table_file_doubt_times(t);
	table_put64(&t->head->time_dev, dev);
	table_put64(&t->head->time_ino, ino);
}

static void close_fd(struct table *t)
{
	if (t->fd >= 0)
		close(t->fd);
	t->fd = -1;
	t->room = 0;
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

/* What is taken from the old table. */
struct taken {
	struct table *table; /* the new one */
	uint32_t leases;
	uint32_t slot, signalled; /* where to look for a free one */
};

/* As one that cannot be read, for all locks on its file. */
static int take_lease(void *arg, const struct table_slot *from)
{
	struct taken *taken = arg;
	struct table *t = taken->table;
	uint32_t slot;
	int ret;

	while (taken->slot < t->room && table_state(t, taken->slot) != TABLE_FREE)
		taken->slot++;
	slot = taken->slot;
	ret = slot < t->room ? 0 : slot < TABLE_SLOTS ? table_file_grow(t, slot) : -EFBIG;
	if (ret < 0)
		return ret;
	taken->leases++;
	t->slots[slot] = (struct table_slot){.word = table_word(TABLE_UNSURE, WIRE_EXCLUSIVE, 1),
					     .dev = from->dev,
					     .ino = from->ino,
					     .kernel_dev = from->kernel_dev,
					     .kernel_ino = from->kernel_ino,
					     .on_lost = from->on_lost,
					     .space = TABLE_ANY_SPACE};
	return 0;
}

static void take_signalled(void *arg, const struct table_signalled *from)
{
	struct taken *taken = arg;

	struct table_signalled *to = taken->table->head->signalled;

	while (taken->signalled < TABLE_SIGNALLED && to[taken->signalled].pid)
		taken->signalled++;
	if (taken->signalled < TABLE_SIGNALLED)
		to[taken->signalled] = *from;
}

/* old: its head, of another version; NULL: that is damaged, and nothing is sure. */
static int take_over(struct taken *taken, int fd, const struct table_head *old)
{
	const struct rescue_to to = {.lease = take_lease, .signalled = take_signalled, .arg = taken};
	struct table_head *h = taken->table->head;
	int ret = table_rescue(fd, old ? old : h, !old, taken->table->boot, &to);

	if (ret < 0 || !old)
		return ret; /* without times nothing is sure: table_open() */
	h->time_dev = old->time_dev;
	h->time_ino = old->time_ino;
	h->freeze_at_ns = old->freeze_at_ns;
	h->deadline_ns = old->deadline_ns;
	h->pins_until_ns = old->pins_until_ns;
	return 0;
}

/* In place of what was found: a table without leases, or with those of the old one as lost ones. */
static int make_anew(struct table *t, const char boot[CLOCK_BOOT_BYTES], int found, const struct table_head *old,
		     char *why, size_t why_size)
{
	struct taken taken = {.table = t};
	int old_fd = t->fd, ret;

	t->room = 0;
	ret = table_file_make(t, boot);
	if (ret == 0 && (found == FOUND_OTHER_VERSION || found == FOUND_DAMAGED))
		ret = take_over(&taken, old_fd, found == FOUND_OTHER_VERSION ? old : NULL);
	if (ret == -EUCLEAN || (ret == 0 && found == FOUND_FOREIGN))
		ret = put_aside(t, why, why_size);
	else if (ret == 0 && found == FOUND_COPY)
		ret = leave_copy(t, old_fd, why, why_size);
	else if (ret == 0 && taken.leases)
		keep_copy(t, found, old, taken.leases, why, why_size);
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

/*
 * Of a keeper of dflock 0.1 that was killed. Its leases become damaged ones of this table, whatever else that has. A parent that
 * dies before the file is put aside takes them once more: that is as good.
 */
static int take_fence(struct table *t, const char boot[CLOCK_BOOT_BYTES], char *why, size_t why_size)
{
	struct taken taken = {.table = t};
	const struct rescue_to to = {.lease = take_lease, .signalled = take_signalled, .arg = &taken};
	int64_t pins = t->head->pins_until_ns, fence_pins = 0;
	int ret = table_rescue_fence(t->dir_fd, boot, &to, &fence_pins);
	size_t len = strlen(why);

	if (ret < 0 && ret != -EUCLEAN)
		return ret;
	if (taken.leases) {
		table_file_doubt_times(t);
		table_put_ns(&t->head->pins_until_ns, pins > fence_pins ? pins : fence_pins);
		snprintf(why + len, why_size - len,
			 "%sa keeper of dflock 0.1 was killed: the processes that hold locks under its leases (%u) are "
			 "ended, as their rules say (on_lost)",
			 len ? "; " : "", taken.leases);
	} else if (ret == -EUCLEAN) {
		snprintf(why + len, why_size - len,
			 "%sthe file " TABLE_FENCE_NAME " is not dflock 0.1.0's: nothing is taken from it",
			 len ? "; " : "");
	}
	unlinkat(t->dir_fd, "journal", 0);
	ret = renameat(t->dir_fd, TABLE_FENCE_NAME, t->dir_fd, TABLE_FENCE_NAME ".bad") == 0 || errno == ENOENT
		      ? 0
		      : -errno;
	return ret;
}

int table_file_open(struct table *t, int dir_fd, char *why, size_t why_size)
{
	char boot[CLOCK_BOOT_BYTES] = "";
	struct table_head old;
	int ret = clock_boot(boot);

	*why = '\0';
	*t = (struct table){.dir_fd = dir_fd, .fd = -1, .boot = number_of_boot(boot), .text.fd = -1};
	if (ret < 0)
		return ret;
	ret = find_old(t, boot, &old);
	if (ret == FOUND_TABLE)
		ret = map_file(t);
	else if (ret >= 0)
		ret = make_anew(t, boot, ret, &old, why, why_size);
	if (ret == 0) {
		check_head(t);
		check_clock(t);
		ret = take_fence(t, boot, why, why_size);
	}
	if (ret < 0) {
		table_file_close(t);
		return ret;
	}
	own_file(t);
	table_put32((uint32_t *)&t->head->parent, (uint32_t)getpid());
	table_put32(&t->head->frozen_count, 0);
	table_put32(&t->head->ending, 0);
	return 0;
}

void table_file_close(struct table *t)
{
	if (t->head)
		munmap(t->head, MAP_BYTES);
	close_fd(t);
	t->head = NULL;
	t->slots = NULL;
}
