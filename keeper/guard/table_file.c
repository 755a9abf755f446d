/*
 * See table_file.h. No mapped page is used before posix_fallocate() was called for it: `room` is what this process
 * knows to be allocated, by its own call or by the file's size, which only posix_fallocate() changes. So neither a full
 * file system nor a damaged word of the table leads to SIGBUS. The whole range of addresses is mapped at once, so that
 * the slots never move.
 */
#include "keeper/guard/table_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "keeper/guard/table_words.h"

#define ROOM_STEP            1024 /* slots by which the file grows */
#define TABLE_STORES_VERSION 1
#define HEAD_BYTES           TABLE_HEAD_BYTES
#define MAP_BYTES            (HEAD_BYTES + TABLE_SLOTS * sizeof(struct table_slot))

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

/* --- sums --- */

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
	return sum ? sum : 1; /* 0 is no user's (table_left.c) */
}

/* --- files --- */

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

uint32_t table_file_room(int fd)
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
		t->room = table_file_room(t->fd);
	return used < t->room ? used : t->room; /* mutant: table-room */
}

/* Also finds `used` anew: if that was damaged, no lease may go unseen. */
void table_file_find_busy(struct table *t)
{
	uint32_t used = 0;

	t->room = table_file_room(t->fd);
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

int table_file_mmap(struct table *t)
{
	void *map = mmap(NULL, MAP_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, t->fd, 0);

	if (map == MAP_FAILED)
		return -errno;
	t->head = map;
	t->slots = (struct table_slot *)((char *)map + HEAD_BYTES);
	return 0;
}

int table_file_map_stores(struct table *t)
{
	struct table_stores *stores;
	void *map;
	int ret = table_file_map(t->dir_fd, TABLE_STORES_NAME, TABLE_MAGIC, TABLE_STORES_VERSION, sizeof(*stores), true,
				 &map);

	stores = ret < 0 ? NULL : map;
	t->others = stores ? stores->others : NULL;
	return ret;
}

void table_file_close(struct table *t)
{
	if (t->head)
		munmap(t->head, MAP_BYTES);
	if (t->others)
		munmap(table_file_stores(t), sizeof(struct table_stores));
	if (t->fd >= 0)
		close(t->fd);
	t->fd = -1;
	t->room = 0;
	t->others = NULL;
	t->head = NULL;
	t->slots = NULL;
}
