/*
 * See table_file.h. No mapped page is used before posix_fallocate() was called for it: `room` is what this process
 * knows to be allocated, by its own call or by the file's size, which only posix_fallocate() changes. So neither a full
 * file system nor a damaged word of the table leads to SIGBUS. The whole range of addresses is mapped at once, so that
 * the slots never move.
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

#include "keeper/guard/table_words.h"

#define ROOM_STEP  1024 /* slots by which the file grows */
#define HEAD_BYTES ((sizeof(struct table_head) + 4095) / 4096 * 4096)
#define MAP_BYTES  (HEAD_BYTES + TABLE_SLOTS * sizeof(struct table_slot))

_Static_assert(sizeof(struct table_slot) == 128, "a slot has two cache lines");

int table_file_allocate(int fd, uint64_t bytes)
{
	int error;

	do
		error = posix_fallocate(fd, 0, (off_t)bytes);
	while (error == EINTR);
	return -error;
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
	int ret = table_file_allocate(t->fd, HEAD_BYTES + room * sizeof(struct table_slot));

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

/* A parent that dies in here leaves a table without its magic, which the next one makes anew. */
static int table_file_make(struct table *t, const char *boot)
{
	uint64_t dev, ino, id = 0;
	int ret;

	t->fd = openat(t->dir_fd, TABLE_NAME, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (t->fd < 0)
		return -errno;
	ret = table_file_grow(t, 0);
	if (ret == 0)
		ret = map_file(t);
	if (ret < 0) {
		unlinkat(t->dir_fd, TABLE_NAME, 0);
		return ret;
	}
	(void)!getrandom(&id, sizeof(id), 0);
	own_clock(&dev, &ino);
	table_put32(&t->head->version, TABLE_VERSION);
	table_put32(&t->head->slot_bytes, sizeof(struct table_slot));
	table_put64(&t->head->id, id);
	table_put_bytes(t->head->boot, boot, CLOCK_BOOT_BYTES);
	table_put64(&t->head->time_dev, dev);
	table_put64(&t->head->time_ino, ino);
	table_put64(&t->head->magic, TABLE_MAGIC);
	return 0;
}

/* 1: of this boot and version, and mapped. 0: there is none, or it is void. -EUCLEAN: not a table of ours. Else -errno. */
static int open_old(struct table *t, const char *boot)
{
	struct table_head head;
	struct stat st;
	ssize_t n;

	t->fd = openat(t->dir_fd, TABLE_NAME, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (t->fd < 0) {
		bool foreign =
			errno == ELOOP || errno == EISDIR || errno == EACCES || errno == ENXIO; /* ENXIO: a socket */

		return foreign ? -EUCLEAN : errno == ENOENT ? 0 : -errno;
	}
	if (fstat(t->fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077))
		return -EUCLEAN;
	n = pread(t->fd, &head, offsetof(struct table_head, used), 0);
	if (n < 0)
		return -errno;
	if (n == 0 || (n == offsetof(struct table_head, used) && head.magic == 0))
		return 0;
	if (n != offsetof(struct table_head, used) || head.magic != TABLE_MAGIC)
		return -EUCLEAN;
	if (memcmp(head.boot, boot, sizeof(head.boot)) != 0) /* mutant: table-boot */
		return 0;
	t->room = room_of_file(t->fd);
	if (head.version != TABLE_VERSION || head.slot_bytes != sizeof(struct table_slot) || t->room == 0)
		return -EUCLEAN;
	/* A process other than ours may have made it longer, and left holes. */
	if (table_file_allocate(t->fd, table_file_bytes(t)) < 0)
		return -EUCLEAN;
	return map_file(t) == 0 ? 1 : -errno;
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
	for (int i = 0; i < 2; i++)
		if (memchr(h->incarnations[i], '\0', sizeof(h->incarnations[i])) == NULL)
			table_put_bytes(h->incarnations[i], "", 1);
}

/*
 * In another time namespace the same moment has another, unknown number. So no lease is sure: the holders are stopped
 * now, and go on when the store has confirmed the leases. The end of the pins is not known, either.
 */
static void check_clock(struct table *t)
{
	uint64_t dev, ino;

	own_clock(&dev, &ino);
	if (t->head->time_dev == dev && t->head->time_ino == ino) /* mutant: table-clock */
		return;
	if (t->head->freeze_at_ns)
		table_put_ns(&t->head->freeze_at_ns, clock_now_ns());
	table_put_ns(&t->head->deadline_ns, t->head->freeze_at_ns);
	table_put_ns(&t->head->pins_until_ns, INT64_MAX);
	table_put64(&t->head->time_dev, dev);
	table_put64(&t->head->time_ino, ino);
}

static int put_aside(struct table *t, char *why, size_t why_size)
{
	if (renameat(t->dir_fd, TABLE_NAME, t->dir_fd, TABLE_BAD_NAME) != 0)
		return -errno;
	snprintf(why, why_size,
		 "the table of leases is damaged, of another version or not one of ours: kept as " TABLE_BAD_NAME
		 "; its leases run out, and processes that hold locks under them are not stopped");
	return 0;
}

static void close_fd(struct table *t)
{
	if (t->fd >= 0)
		close(t->fd);
	t->fd = -1;
	t->room = 0;
}

int table_file_open(struct table *t, int dir_fd, char *why, size_t why_size)
{
	char boot[CLOCK_BOOT_BYTES] = "";
	int ret = clock_boot(boot);

	*why = '\0';
	*t = (struct table){.dir_fd = dir_fd, .fd = -1, .text.fd = -1};
	if (ret < 0)
		return ret;
	ret = open_old(t, boot);
	if (ret <= 0)
		close_fd(t);
	if (ret == -EUCLEAN)
		ret = put_aside(t, why, why_size);
	else if (ret == 0 && unlinkat(dir_fd, TABLE_NAME, 0) != 0 && errno != ENOENT)
		ret = -errno;
	if (ret == 0)
		ret = table_file_make(t, boot);
	if (ret < 0) {
		close_fd(t);
		return ret;
	}
	check_head(t);
	check_clock(t);
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
