/*
 * See table_text.h. A keeper that dies while it writes a piece leaves the slot free. One that dies between the stores
 * of `end` and of the slot's new piece leaves a gap, which stays unused until the area begins anew.
 */
#include "keeper/guard/table_text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "keeper/guard/table_file.h"
#include "keeper/guard/table_words.h"

#define TEXT_MAGIC 0x3174786574666c64ull
#define TEXT_STEP  (64 * 1024) /* bytes by which the area grows, if there is room */
#define TEXT_BEGIN TEXT_UNIT   /* behind the head */

struct text_head {
	uint64_t magic;
	uint64_t id;  /* table_head */
	uint64_t end; /* sum of the slots' pieces, in units */
};

struct piece {
	uint64_t generation;
	uint64_t sum; /* checksum of all other fields */
	uint32_t slot;
	uint16_t name_bytes, path_bytes; /* NULs included; name and path follow */
	char token[STORE_TOKEN_BYTES];
	char text[];
};

static struct text_head *text_head(const struct table *t)
{
	return (struct text_head *)t->text.map;
}

/* Of all but itself. */
static uint64_t piece_sum(const struct piece *p)
{
	return p->generation ^ table_sum(&p->slot, offsetof(struct piece, text) - offsetof(struct piece, slot) +
							   (size_t)p->name_bytes + p->path_bytes);
}

/* Makes the file at least as long, and maps all of it. */
static int grow(struct table *t, uint64_t bytes)
{
	uint64_t step = (bytes + TEXT_STEP - 1) / TEXT_STEP * TEXT_STEP;
	int ret = table_file_allocate(t->text.fd, t->text.bytes, step);
	void *map;

	if (ret < 0) {
		step = (bytes + 4095) / 4096 * 4096;
		ret = table_file_allocate(t->text.fd, t->text.bytes, step);
	}
	if (ret < 0)
		return ret;
	map = t->text.map ? mremap(t->text.map, t->text.bytes, step, MREMAP_MAYMOVE)
			  : mmap(NULL, step, PROT_READ | PROT_WRITE, MAP_SHARED, t->text.fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	t->text.map = map;
	t->text.bytes = step;
	return 0;
}

static int table_text_make(struct table *t)
{
	int ret = ftruncate(t->text.fd, 0) != 0 ? -errno : grow(t, TEXT_STEP);

	if (ret < 0)
		return ret;
	table_put64(&text_head(t)->end, TEXT_BEGIN / TEXT_UNIT);
	table_put64(&text_head(t)->id, t->head->id);
	table_put64(&text_head(t)->magic, TEXT_MAGIC);
	return 0;
}

/* 0: mapped, and of this table. -EUCLEAN: of another one, or of none. */
static int map_old(struct table *t)
{
	struct stat st;
	void *map;

	if (fstat(t->text.fd, &st) != 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077) || st.st_size < TEXT_BEGIN ||
	    st.st_size > (off_t)TEXT_MAX)
		return -EUCLEAN;
	/* A process other than ours may have made the file longer and left holes: these are filled before they are
	 * mapped. */
	if (table_file_allocate(t->text.fd, 0, (uint64_t)st.st_size) < 0)
		return -EUCLEAN;
	map = mmap(NULL, st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, t->text.fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	t->text.map = map;
	t->text.bytes = st.st_size;
	if (text_head(t)->magic == TEXT_MAGIC && text_head(t)->id == t->head->id)
		return 0;
	munmap(t->text.map, t->text.bytes);
	t->text.map = NULL;
	t->text.bytes = 0;
	return -EUCLEAN;
}

static int open_new(struct table *t)
{
	if (t->text.fd >= 0)
		close(t->text.fd);
	unlinkat(t->dir_fd, TABLE_TEXT_NAME, 0);
	t->text.fd = openat(t->dir_fd, TABLE_TEXT_NAME, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	return t->text.fd < 0 ? -errno : table_text_make(t);
}

/* Does the piece lie in the area? */
static bool has_piece(const struct table *t, const struct table_slot *s)
{
	uint64_t end = text_head(t)->end;

	return s->text_room && s->text_at >= TEXT_BEGIN / TEXT_UNIT && s->text_at < end &&
	       s->text_room <= end - s->text_at && (uint64_t)(s->text_at + s->text_room) * TEXT_UNIT <= t->text.bytes;
}

static bool is_taken(const struct table *t, uint32_t slot)
{
	enum table_state state = table_state(t, slot);

	return state == TABLE_ASKED || state == TABLE_HELD || state == TABLE_UNSURE || state == TABLE_RETURNED;
}

static bool has_text(const struct table *t, uint32_t slot)
{
	struct table_text text;

	return table_text_get(t, slot, table_word_generation(t->slots[slot].word), &text);
}

/* Marks the slot's piece as owned. False: the slot has no piece, or another slot owns a part of it. */
static bool own_piece(const struct table *t, uint32_t slot, unsigned char *owned)
{
	const struct table_slot *s = &t->slots[slot];

	if (!has_piece(t, s))
		return false;
	for (uint32_t u = s->text_at; u < s->text_at + s->text_room; u++)
		if (owned[u / 8] & 1u << u % 8)
			return false;
	for (uint32_t u = s->text_at; u < s->text_at + s->text_room; u++)
		owned[u / 8] |= (unsigned char)(1u << u % 8);
	return true;
}

/*
 * A slot that is free has no sum, so damage to it is seen nowhere else, and must not make a new lease write over the text of another one. So a
 * slot keeps its piece only if that is the text of its lease, or if it has no lease and no other slot owns a part of the piece. This also
 * looks at slots that count as never used: `used` may be damaged.
 */
static int drop_doubtful(struct table *t)
{
	unsigned char *owned = calloc(1, t->text.bytes / TEXT_UNIT / 8 + 1);

	if (!owned)
		return -ENOMEM;
	for (int leases = 1; leases >= 0; leases--)
		for (uint32_t i = 0; i < t->room; i++)
			if (is_taken(t, i) == leases && t->slots[i].text_room &&
			    ((leases && !has_text(t, i)) || !own_piece(t, i, owned)))
				table_put32(&t->slots[i].text_room, 0);
	free(owned);
	return 0;
}

static bool has_taken(struct table *t)
{
	uint32_t used = table_used(t);
	bool taken = false;

	for (uint32_t i = 0; i < used && !taken; i++)
		taken = is_taken(t, i);
	return taken;
}

static bool is_foreign(int error)
{
	return error == ELOOP || error == EISDIR || error == EACCES || error == ENXIO; /* ENXIO: a socket */
}

int table_text_open(struct table *t)
{
	uint64_t end;
	int ret;

	table_text_close(t);
	t->text.fd = openat(t->dir_fd, TABLE_TEXT_NAME, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (t->text.fd < 0)
		ret = errno == ENOENT || is_foreign(errno) ? -EUCLEAN : -errno;
	else
		ret = has_taken(t) ? map_old(t) : -EUCLEAN;
	if (ret == -EUCLEAN)
		ret = open_new(t);
	if (ret < 0)
		goto fail;
	end = text_head(t)->end;
	if (end < TEXT_BEGIN / TEXT_UNIT || end > t->text.bytes / TEXT_UNIT)
		table_put64(&text_head(t)->end, t->text.bytes / TEXT_UNIT);
	ret = drop_doubtful(t); /* mutant: table-pieces */
	if (ret == 0)
		return 0;
fail:
	table_text_close(t);
	return ret;
}

void table_text_close(struct table *t)
{
	if (t->text.map)
		munmap(t->text.map, t->text.bytes);
	if (t->text.fd >= 0)
		close(t->text.fd);
	t->text.fd = -1;
	t->text.map = NULL;
	t->text.bytes = 0;
}

/* Gives the slot a piece of its own of at least so many units. */
static int table_text_room(struct table *t, struct table_slot *s, uint32_t units)
{
	uint64_t at = text_head(t)->end;
	uint32_t room = 1;
	int ret = 0;

	while (room < units)
		room *= 2;
	if ((at + room) * TEXT_UNIT > TEXT_MAX)
		return -ENOSPC;
	if ((at + room) * TEXT_UNIT > t->text.bytes)
		ret = grow(t, (at + room) * TEXT_UNIT);
	if (ret < 0)
		return ret;
	table_put64(&text_head(t)->end, at + room);
	table_put32(&s->text_room, 0);
	table_put32(&s->text_at, (uint32_t)at);
	table_put32(&s->text_room, room);
	return 0;
}

int table_text_put(struct table *t, uint32_t slot, uint64_t generation, const char *token, const char *name,
		   const char *path)
{
	struct table_slot *s = &t->slots[slot];
	size_t name_bytes = strlen(name) + 1, path_bytes = strlen(path) + 1;
	size_t bytes = sizeof(struct piece) + name_bytes + path_bytes;
	char room[sizeof(struct piece) + LOCK_NAME_BYTES + PATH_MAX];
	struct piece *p = (struct piece *)room;
	int ret = 0;

	if (name_bytes < 2 || name_bytes > LOCK_NAME_BYTES || path_bytes < 2 || path_bytes > PATH_MAX)
		return -EINVAL;
	if (!has_piece(t, s) || s->text_room < (bytes + TEXT_UNIT - 1) / TEXT_UNIT)
		ret = table_text_room(t, s, (uint32_t)((bytes + TEXT_UNIT - 1) / TEXT_UNIT));
	if (ret < 0)
		return ret;
	memset(p, 0, sizeof(*p));
	p->generation = generation; /* mutant: table-text-of */
	p->slot = slot;
	p->name_bytes = (uint16_t)name_bytes;
	p->path_bytes = (uint16_t)path_bytes;
	memcpy(p->token, token, STORE_TOKEN_BYTES);
	memcpy(p->text, name, name_bytes);
	memcpy(p->text + name_bytes, path, path_bytes);
	p->sum = piece_sum(p);
	table_put_bytes(t->text.map + (size_t)s->text_at * TEXT_UNIT, p, bytes);
	return 0;
}

bool table_text_get(const struct table *t, uint32_t slot, uint64_t generation, struct table_text *out)
{
	const struct table_slot *s = &t->slots[slot];
	const struct piece *p;

	if (!has_piece(t, s))
		return false;
	p = (const struct piece *)(t->text.map + (size_t)s->text_at * TEXT_UNIT);
	if (p->slot != slot || p->generation != generation || p->name_bytes < 2 || p->name_bytes > LOCK_NAME_BYTES ||
	    p->path_bytes < 2 || p->path_bytes > PATH_MAX ||
	    sizeof(*p) + p->name_bytes + p->path_bytes > (size_t)s->text_room * TEXT_UNIT || p->sum != piece_sum(p))
		return false;
	if (p->token[STORE_TOKEN_BYTES - 1] || p->text[p->name_bytes - 1] || p->text[p->name_bytes + p->path_bytes - 1])
		return false;
	*out = (struct table_text){.token = p->token, .name = p->text, .path = p->text + p->name_bytes};
	return true;
}
