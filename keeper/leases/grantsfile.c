/* See grantsfile.h. */
#include "keeper/leases/grantsfile.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#include "keeper/clock.h"
#include "keeper/guard/table_file.h"
#include "keeper/guard/table_sums.h"

#define GRANTSFILE_MAGIC   UINT64_C(0x73746e6172676664)
#define GRANTSFILE_VERSION 1

struct grantsfile_head {
	uint64_t magic, version;
	char boot[CLOCK_BOOT_BYTES];
	int64_t ran_ns, ticked_ns;
	struct grantsfile_record records[GRANTSFILE_RECORDS];
};

static uint64_t grantsfile_sum(const struct grantsfile_record *r)
{
	uint64_t sum = table_sum(r, offsetof(struct grantsfile_record, sum));

	return sum ? sum : 1;
}

/* With `make`, a file that is void is made anew. */
static int grantsfile_check(struct grantsfile_head *head, bool make)
{
	char boot[CLOCK_BOOT_BYTES] = "";
	int ret = clock_boot(boot);

	if (ret < 0)
		return ret;
	if (head->magic == GRANTSFILE_MAGIC && head->version == GRANTSFILE_VERSION &&
	    memcmp(head->boot, boot, sizeof(boot)) == 0)
		return 0;
	if (!make)
		return -ENOENT;
	memset(head, 0, sizeof(*head));
	memcpy(head->boot, boot, sizeof(boot));
	head->version = GRANTSFILE_VERSION;
	head->magic = GRANTSFILE_MAGIC;
	return 0;
}

int grantsfile_open(struct grantsfile *file, int dir_fd, bool make)
{
	void *map;
	int ret;

	if (file->head)
		return 0;
	ret = table_file_map(dir_fd, GRANTSFILE_NAME, sizeof(*file->head), make, &map);
	if (ret < 0)
		return ret;
	ret = grantsfile_check(map, make);
	if (ret < 0)
		munmap(map, sizeof(*file->head));
	else
		file->head = map;
	return ret;
}

void grantsfile_close(struct grantsfile *file)
{
	if (file->head)
		munmap(file->head, sizeof(*file->head));
	file->head = NULL;
}

int64_t grantsfile_ran_ns(const struct grantsfile *file)
{
	return file->head ? file->head->ran_ns : 0;
}

int64_t grantsfile_ticked_ns(const struct grantsfile *file)
{
	return file->head ? file->head->ticked_ns : 0;
}

void grantsfile_tick(struct grantsfile *file, int64_t ran_ns, int64_t now_ns)
{
	if (!file->head)
		return;
	file->head->ran_ns = ran_ns;
	file->head->ticked_ns = now_ns;
}

const struct grantsfile_record *grantsfile_get(const struct grantsfile *file, size_t number)
{
	const struct grantsfile_record *r = &file->head->records[number - 1];

	return r->sum && r->sum == grantsfile_sum(r) ? r : NULL; /* mutant: grantsfile-sum */
}

static size_t grantsfile_find_free(struct grantsfile *file)
{
	for (size_t i = 0; i < GRANTSFILE_RECORDS; i++) {
		size_t at = (file->hint + i) % GRANTSFILE_RECORDS;

		if (file->head->records[at].sum)
			continue;
		file->hint = at + 1;
		return at + 1;
	}
	return 0;
}

size_t grantsfile_put(struct grantsfile *file, size_t number, const struct grantsfile_record *record)
{
	struct grantsfile_record *r, whole = *record;

	if (!file->head)
		return 0;
	number = number ? number : grantsfile_find_free(file);
	if (!number)
		return 0;
	r = &file->head->records[number - 1];
	whole.sum = 0;
	*r = whole;
	__atomic_store_n(&r->sum, grantsfile_sum(&whole), __ATOMIC_RELEASE);
	return number;
}

void grantsfile_drop(struct grantsfile *file, size_t number)
{
	if (file->head && number)
		__atomic_store_n(&file->head->records[number - 1].sum, 0, __ATOMIC_RELEASE);
}
