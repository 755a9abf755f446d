/*
 * See pagefile.h. Writers are serialised by keeper.lock; readers by sequence numbers. There is one writer, so a slot that an earlier
 * writer left odd is written anyway; seqcopy_write() would give up.
 */
#include "keeper/leases/pagefile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/clock.h"
#include "keeper/guard/table_file.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/locks.h"
#include "wire/page.h"
#include "wire/seqcopy.h"

struct page *pagefile_open(int dir_fd, char *why, size_t why_size)
{
	int fd = openat(dir_fd, PAGE_NAME, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
	struct page *page = MAP_FAILED;
	struct stat st;
	int ret;

	if (fd < 0) {
		snprintf(why, why_size, "the page cannot be opened: %s", strerror(errno));
		return NULL;
	}
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid()) {
		snprintf(why, why_size,
			 "the page in the runtime directory is not a file of this keeper's user: remove it");
		goto out;
	}
	/* Programs check the mode, so the umask must not change it. They map the file when it has its size: by then all that
	 * they read has its memory, as a page without would be SIGBUS for programs and keeper when the tmpfs is full. The file
	 * is only ever made longer: programs have it mapped. */
	ret = fchmod(fd, 0644) != 0 ? -errno : table_file_allocate(fd, 0, sizeof(*page));
	if (ret == 0 && st.st_size < (off_t)PAGE_BYTES && ftruncate(fd, PAGE_BYTES) != 0)
		ret = -errno;
	if (ret < 0) {
		snprintf(why, why_size, "the page cannot be prepared: %s%s", strerror(-ret), table_file_advice(ret));
		goto out;
	}
	page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		snprintf(why, why_size, "the page cannot be mapped: %s", strerror(errno));
out:
	close(fd);
	return page == MAP_FAILED ? NULL : page;
}

void pagefile_close(struct page *page)
{
	if (page)
		munmap(page, sizeof(*page));
}

/* An earlier keeper may have died between begin and end: so begin makes the number odd and end makes it even, whatever
 * it was. */
static void pagefile_begin(struct page *page)
{
	__atomic_store_n(&page->seq, page->seq | 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static void pagefile_end(struct page *page)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	__atomic_store_n(&page->seq, page->seq + 1, __ATOMIC_RELEASE);
}

static void fill_head(struct page *page, const char *path, const struct wire_config_id *id,
		      const struct wire_config_id *seen, enum page_state state)
{
	struct stat root;

	page->magic = PAGE_MAGIC;
	page->version = PAGE_VERSION;
	page->config = *id;
	page->seen = *seen;
	page->state = state;
	page->keeper = (uint32_t)getpid();
	if (stat("/", &root) == 0) {
		page->root_dev = root.st_dev;
		page->root_ino = root.st_ino;
	}
	snprintf(page->config_path, sizeof(page->config_path), "%s", path);
	page->config_hash = leases_hash(path);
}

int pagefile_publish(struct page *page, const struct config *config, const struct wire_config_id *seen)
{
	const struct rule *names = &config->names;
	size_t used = 0;
	int ret = 0;

	pagefile_begin(page);
	if (names->pattern)
		ret = page_rule_append(page->rules, sizeof(page->rules), &used, names->kind, names->on_refused,
				       names->pattern);
	for (size_t i = 0; i < config->rule_count && ret == 0; i++)
		ret = page_rule_append(page->rules, sizeof(page->rules), &used, config->rules[i].kind,
				       config->rules[i].on_refused, config->rules[i].pattern);
	page->rules_bytes = used;
	page->message[0] = '\0';
	fill_head(page, config->path, &config->id, seen, ret == 0 ? PAGE_RULES : PAGE_EMPTY);
	pagefile_end(page);
	return ret;
}

void pagefile_seen(struct page *page, const struct config *config, const struct wire_config_id *seen)
{
	pagefile_begin(page);
	page->config = config->id;
	page->seen = *seen;
	pagefile_end(page);
}

void pagefile_forget(struct page *page)
{
	pagefile_begin(page);
	page->state = PAGE_EMPTY;
	pagefile_end(page);
}

void pagefile_invalid(struct page *page, const char *path, const struct wire_config_id *id, const char *why)
{
	pagefile_begin(page);
	if (page->config_hash != leases_hash(path))
		page->rules_bytes = 0; /* else they still say what calls get that are refused */
	snprintf(page->message, sizeof(page->message), "%s", why);
	fill_head(page, path, id, id, PAGE_INVALID);
	pagefile_end(page);
}

/* --- leases in the page --- */

static void write_slot(struct leases_slot *slot, const struct leases_entry *entry)
{
	seqcopy_publish(&slot->seq, &slot->entry, entry, sizeof(*entry));
}

static void write_clock(struct page *page, const struct leases_clock *clock)
{
	seqcopy_publish(&page->leases.clock_seq, &page->leases.clock, clock, sizeof(*clock));
}

void leasepage_reset(struct page *page)
{
	const struct leases_entry closed = {0};
	struct leases_clock clock = {0};

	for (unsigned b = 0; b < LEASES_BUCKETS; b++)
		for (unsigned i = 0; i < LEASES_IN_BUCKET; i++)
			write_slot(&page->leases.slots[b][i], &closed); /* mutant: page-reset */
	leases_set_namespaces(&clock);
	write_clock(page, &clock);
}

static struct leases_slot *free_slot(struct page *page, const struct file_key *key)
{
	struct leases_slot *slots = page->leases.slots[leases_bucket(key->dev, key->ino)];

	for (int i = 0; i < LEASES_IN_BUCKET; i++)
		if (!slots[i].entry.open)
			return &slots[i];
	return NULL;
}

/* A program that has read a time of before must not believe it of this lease: the time counts from now on, but for the first lease of
 * a store that is shown it did not count before. */
static bool leasepage_may_begin(const struct member *m)
{
	/* mutant: page-begin */
	return m->keeper->member_count == 1 || m->shown ||
	       m->deadline.freeze_at_ns >= clock_now_ns() + LEASEPAGE_FRESH_MS * NS_PER_MS;
}

void leasepage_show(struct lease *lease)
{
	const struct file *file = lease->lock->file;
	const struct leases_entry entry = {
		.file = {.dev = file->key.dev, .ino = file->key.ino, .path_hash = leases_hash(file->path)},
		.range = {.from = lease->range.from,
			  .to = lease->range.to,
			  .space = lease->range.space,
			  .mode = lease->range.mode},
		.open = 1};
	char name[LOCK_NAME_BYTES];

	if (lease->shown && lease->shown->entry.file.path_hash == entry.file.path_hash)
		return;
	/* The caller may have begun to wait before the configuration was read again. */
	if (config_lock_name(lease_keeper(lease)->config, file->path, name) < 0 || strcmp(name, file->name) != 0)
		return;
	/* Each caller must be looked at again, or asks the store. */
	if (config_rule(lease_keeper(lease)->config, file->path)->refuse_unstoppable || file->at_least_ms ||
	    file->redis_key || file_is_limited(file)) /* mutant: page-limited */
		return;
	if (!lease->shown && leasepage_may_begin(lease_member(lease))) {
		lease->shown = free_slot(lease_keeper(lease)->page, &file->key);
		lease_member(lease)->shown += lease->shown != NULL;
		leasepage_refresh(lease_keeper(lease)); /* before the lease is shown */
	}
	if (lease->shown)
		write_slot(lease->shown, &entry);
}

void leasepage_close(struct lease *lease)
{
	const struct leases_entry closed = {0};

	if (lease->shown) {
		write_slot(lease->shown, &closed);
		lease_member(lease)->shown--;
	}
	lease->shown = NULL;
}

void leasepage_close_lock(struct lock *lock)
{
	struct lease *lease;

	DL_FOREACH (lock->leases, lease)
		leasepage_close(lease);
}

void leasepage_close_all(struct keeper *k)
{
	struct lease *lease, *next;

	HASH_ITER (hh, k->leases, lease, next)
		leasepage_close(lease);
}

static void leasepage_close_member(struct member *m)
{
	struct lease *lease, *next;

	HASH_ITER (hh, m->keeper->leases, lease, next)
		if (lease_member(lease) == m)
			leasepage_close(lease);
}

/*
 * There is one time for all leases that are shown. Leases of a store that is away would keep the others from being used: they are closed
 * when their time is over, and count no more.
 */
static int64_t leasepage_sure_until(struct keeper *k, int64_t now_ns)
{
	int64_t sure_ns = now_ns + LEASEPAGE_FRESH_MS * NS_PER_MS;

	for (unsigned i = 0; i < k->member_count; i++) {
		struct member *m = &k->members[i];
		int64_t until_ns = m->deadline.expired ? 0 : m->deadline.freeze_at_ns;

		if (until_ns <= now_ns && m->shown)
			leasepage_close_member(m);
		/* mutant: page-sure-until */
		if ((m->shown || k->member_count == 1) && until_ns < sure_ns)
			sure_ns = until_ns;
	}
	return sure_ns;
}

void leasepage_refresh(struct keeper *k)
{
	struct leases_clock clock = k->page->leases.clock;

	clock.sure_until_ns = k->leaving ? 0 : leasepage_sure_until(k, clock_now_ns());
	write_clock(k->page, &clock);
}
