#include "shim/mapping.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "wire/sys.h"
#include "wire/rundir.h"

/* Stands before the page in the same mapping, so that one pointer publishes both. */
struct mapping {
	uid_t owner;
	dev_t dev;
	ino_t ino;
	const struct page *page;
};

#define HEAD_BYTES      4096
#define ROUND_UP(n, to) (((n) + (to)-1) / (to) * (to))

/* Filled from the first one on; never emptied. */
static struct mapping *mappings[MAPPINGS_MAX];

static struct mapping *mapping_at(int i)
{
	return __atomic_load_n(&mappings[i], __ATOMIC_ACQUIRE);
}

const struct page *mapping_find(uid_t *euid, uid_t *owner)
{
	for (int i = MAPPINGS_MAX - 1; i >= 0; i--) {
		const struct mapping *m = mapping_at(i);

		/* A page of root's is good for every user, since it says which configuration it is for. */
		if (m && (m->owner == 0 || m->owner == (*euid = rundir_uid(*euid)))) {
			*owner = m->owner;
			return m->page;
		}
	}
	return NULL;
}

/* The page size may be larger than HEAD_BYTES, and a file is mapped at a multiple of it. */
static size_t mapping_head_bytes(void)
{
	return ROUND_UP(HEAD_BYTES, (size_t)sysconf(_SC_PAGESIZE));
}

static struct mapping *mapping_map(int fd, const struct statx *st)
{
	size_t head = mapping_head_bytes();
	char *base = mmap(NULL, head + sizeof(struct page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct mapping *m = (struct mapping *)base;

	if (base == MAP_FAILED)
		return NULL;
	/* Only what is used: mlockall(MCL_FUTURE) would lock all of the file into memory. */
	if (mmap(base + head, sizeof(struct page), PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
		munmap(base, head + sizeof(struct page));
		return NULL;
	}
	*m = (struct mapping){
		.owner = st->stx_uid,
		.dev = makedev(st->stx_dev_major, st->stx_dev_minor),
		.ino = st->stx_ino,
		.page = (const struct page *)(base + head),
	};
	return m;
}

static bool mapping_is_of(const struct mapping *m, const struct statx *st)
{
	return m->dev == makedev(st->stx_dev_major, st->stx_dev_minor) && m->ino == st->stx_ino &&
	       m->owner == st->stx_uid;
}

/* The page of this file, from the mapping of an earlier call or a new one. */
static const struct page *mapping_get(int fd, const struct statx *st)
{
	struct mapping *mine = NULL;
	const struct page *page = NULL;

	for (int i = 0; i < MAPPINGS_MAX && !page; i++) {
		struct mapping *there = mapping_at(i);

		if (!there) {
			if (!mine)
				mine = mapping_map(fd, st);
			if (!mine)
				return NULL;
			if (__atomic_compare_exchange_n(&mappings[i], &there, mine, false, __ATOMIC_ACQ_REL,
							__ATOMIC_ACQUIRE))
				return mine->page;
		}
		if (mapping_is_of(there, st))
			page = there->page;
	}
	if (mine)
		munmap(mine, mapping_head_bytes() + sizeof(struct page));
	return page;
}

/* Can its owner end this process in any case? By kill(2) that takes its real or saved user id. The owner can also do it by making
 * the page shorter, at any time. */
static bool mapping_is_harmless(uid_t owner, uid_t euid)
{
	uid_t real, effective, saved;

	if (owner == 0 || owner != rundir_uid(euid))
		return true;
	return sys_getresuid(&real, &effective, &saved) == 0 && (owner == real || owner == saved);
}

/* All that is read of it has its memory, so that no read is a SIGBUS because the tmpfs is full. The file gets its size after
 * that; but earlier keepers made files with holes. */
static bool mapping_is_whole(const struct statx *st)
{
	return st->stx_size == PAGE_BYTES && st->stx_blocks * 512 >= sizeof(struct page);
}

int mapping_refresh(const char dir[PLACE_DIR_BYTES], uid_t euid, const struct page **page, char *why, size_t why_size)
{
	struct statx st;
	int fd = dir[0] ? place_open_page(dir, euid, &st, why, why_size) : -ENOENT;

	*page = NULL;
	/* There is no page, or we may not read it (it is that of a keeper for other users): ask the keeper. */
	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	if (mapping_is_whole(&st) && mapping_is_harmless(st.stx_uid, euid))
		*page = mapping_get(fd, &st);
	sys(close, fd);
	return 0;
}
