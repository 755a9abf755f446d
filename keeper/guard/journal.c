/*
 * See journal.h. The file: a head, then records. Every entry that lives is also in memory, so that the file can
 * be written anew when most of it is history, and truncated when nothing lives.
 *
 * Why a crash at any point leaves a true journal: appending writes one record with one write(); the deadline is eight
 * aligned bytes of the head, written at once; writing anew makes a second file and renames it over the first;
 * truncating happens only when no entry lives; striking out changes four aligned bytes.
 */
#include "keeper/guard/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uthash.h>

#include "keeper/clock.h"
#include "keeper/guard/journal_record.h"

#define JOURNAL_NAME    "journal"
#define JOURNAL_NEW     "journal.new"
#define JOURNAL_BAD     "journal.bad"
#define JOURNAL_MAGIC   0x326c6e726a6c6664ull
#define JOURNAL_HISTORY (1 << 20) /* rewritten when it has this many bytes and most are history */

struct head {
	uint64_t magic;
	int64_t deadline_ns;
	char boot[CLOCK_BOOT_BYTES];
	char host[STORE_HOST_BYTES];
	char incarnation[STORE_INC_BYTES];
};

struct live {
	char token[STORE_TOKEN_BYTES];
	struct record *record;
	off_t at;     /* where the entry was added */
	uint32_t sum; /* of the record there, which has neither the fence nor the mode of later ones */
	UT_hash_handle hh;
};

struct journal {
	int dir_fd, fd;
	struct head head;
	off_t end, live_bytes;
	struct live *live;
};

static int write_all(int fd, const void *data, size_t size, off_t at)
{
	ssize_t n = pwrite(fd, data, size, at);

	if (n < 0)
		return -errno;
	return (size_t)n == size ? 0 : -ENOSPC; /* a tmpfs writes all or has no room */
}

static void live_drop(struct journal *j, struct live *l)
{
	HASH_DEL(j->live, l);
	j->live_bytes -= l->record->bytes;
	free(l->record);
	free(l);
}

/* Takes over the record, which is at `at` of the file. */
static int apply(struct journal *j, struct record *r, off_t at)
{
	struct live *l;

	HASH_FIND_STR(j->live, r->token, l);
	if (r->kind == RECORD_ADD && !l) {
		l = calloc(1, sizeof(*l));
		if (!l) {
			free(r);
			return -ENOMEM;
		}
		memcpy(l->token, r->token, sizeof(l->token));
		l->record = r;
		l->at = at;
		l->sum = r->sum;
		HASH_ADD_STR(j->live, token, l);
		j->live_bytes += r->bytes;
		return 0;
	}
	if (r->kind == RECORD_FENCE && l) {
		l->record->fence = r->fence;
		l->record->mode = r->mode;
		if (r->to) {
			l->record->from = r->from;
			l->record->to = r->to;
		}
		l->record->sum = record_sum(l->record);
	} else if (r->kind == RECORD_REMOVE && l) {
		live_drop(j, l);
	}
	free(r);
	return 0;
}

/* Writes what lives into a new file and puts it in the place of the old. */
static int write_anew(struct journal *j)
{
	off_t at = sizeof(j->head);
	struct live *l, *next;
	int fd, ret;

	unlinkat(j->dir_fd, JOURNAL_NEW, 0); /* of a keeper that died here, or whatever it is */
	fd = openat(j->dir_fd, JOURNAL_NEW, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	ret = write_all(fd, &j->head, sizeof(j->head), 0);
	HASH_ITER (hh, j->live, l, next) {
		if (ret == 0)
			ret = write_all(fd, l->record, l->record->bytes, at);
		at += l->record->bytes;
	}
	if (ret == 0 && renameat(j->dir_fd, JOURNAL_NEW, j->dir_fd, JOURNAL_NAME) != 0)
		ret = -errno;
	if (ret < 0) {
		close(fd);
		unlinkat(j->dir_fd, JOURNAL_NEW, 0);
		return ret;
	}
	if (j->fd >= 0)
		close(j->fd);
	j->fd = fd;
	j->end = sizeof(j->head);
	HASH_ITER (hh, j->live, l, next) {
		l->at = j->end;
		l->sum = l->record->sum;
		j->end += l->record->bytes;
	}
	return 0;
}

static void empty_if_nothing_lives(struct journal *j)
{
	if (!j->live && ftruncate(j->fd, sizeof(j->head)) == 0)
		j->end = sizeof(j->head);
}

static int append(struct journal *j, struct record *r)
{
	int ret;

	if (!r)
		return -ENOMEM;
	ret = record_ok(r, r->bytes) ? write_all(j->fd, r, r->bytes, j->end) : -EINVAL;
	if (ret < 0) {
		/* What a shorter record leaves of this one would look damaged, not torn. */
		if (ftruncate(j->fd, j->end) != 0)
			ret = -errno;
		free(r);
		return ret;
	}
	j->end += r->bytes;
	ret = apply(j, r, j->end - r->bytes);
	if (ret < 0)
		return ret;
	empty_if_nothing_lives(j);
	if (j->end > JOURNAL_HISTORY && j->end > 4 * j->live_bytes) {
		(void)write_anew(j); /* without room for it the long one goes on */
	}
	return 0;
}

static int read_record(struct journal *j, const struct record *in, off_t at)
{
	struct record *r;

	if (in->sum != record_sum(in)) /* struck out */
		return 0;
	r = malloc(in->bytes);
	if (!r)
		return -ENOMEM;
	memcpy(r, in, in->bytes);
	return apply(j, r, at);
}

/* Reads the records behind the head, and cuts off a torn end. -EUCLEAN: something else is wrong. */
static int read_records(struct journal *j, int fd, off_t size)
{
	size_t at = sizeof(j->head);
	char *data = malloc(size);
	ssize_t n = data ? pread(fd, data, size, 0) : -1;
	int ret = n < 0 ? -errno : n != size ? -EUCLEAN : 0;

	while (ret == 0 && at < (size_t)size) {
		const struct record *in = (const struct record *)(data + at);

		if (!record_ok(in, size - at)) {
			ret = record_torn(in, size - at) ? 0 : -EUCLEAN;
			break; /* what is torn was never acted upon */
		}
		ret = read_record(j, in, at);
		at += in->bytes;
	}
	free(data);
	if (ret == 0 && at < (size_t)size && ftruncate(fd, at) != 0)
		ret = -errno;
	j->end = at;
	return ret;
}

static bool head_ok(const struct head *h)
{
	return h->magic == JOURNAL_MAGIC && h->boot[sizeof(h->boot) - 1] == '\0' && h->host[0] &&
	       h->host[sizeof(h->host) - 1] == '\0' && h->incarnation[sizeof(h->incarnation) - 1] == '\0' &&
	       h->deadline_ns >= 0;
}

/* 1: taken up. 0: there is none, or of another boot. -EUCLEAN: damaged, or none of ours. Else -errno. */
static int take_up(struct journal *j)
{
	int fd = openat(j->dir_fd, JOURNAL_NAME, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct head old;
	struct stat st;
	ssize_t n;
	int ret = -EUCLEAN;

	if (fd < 0) {
		bool foreign =
			errno == ELOOP || errno == EISDIR || errno == EACCES || errno == ENXIO; /* ENXIO: a socket */

		return foreign ? -EUCLEAN : errno == ENOENT ? 0 : -errno;
	}
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077))
		goto out;
	n = pread(fd, &old, sizeof(old), 0);
	if (n < 0)
		ret = -errno;
	if (n != sizeof(old) || !head_ok(&old))
		goto out;
	if (strcmp(old.boot, j->head.boot) != 0) {
		ret = 0;
		goto out;
	}
	ret = read_records(j, fd, st.st_size);
	if (ret < 0)
		goto out;
	j->head = old;
	j->fd = fd; /* goes on with this file: a second one may find no room */
	return 1;
out:
	close(fd);
	return ret;
}

/* Puts aside what is damaged, and forgets what was read of it. */
static int put_aside(struct journal *j, char *why, size_t why_size)
{
	struct live *l, *next;

	HASH_ITER (hh, j->live, l, next)
		live_drop(j, l);
	if (renameat(j->dir_fd, JOURNAL_NAME, j->dir_fd, JOURNAL_BAD) != 0)
		return -errno;
	snprintf(why, why_size,
		 "the journal is damaged or not one of ours: kept as %s; its leases run out, and processes that hold "
		 "locks under them are ended",
		 JOURNAL_BAD);
	return 0;
}

static void tell(const struct journal *j, journal_entry_cb *cb, void *arg)
{
	struct live *l, *next;

	HASH_ITER (hh, j->live, l, next) {
		struct journal_entry e;

		record_entry(l->record, &e);
		cb(arg, &e);
	}
}

struct journal *journal_open(int dir_fd, char host[STORE_HOST_BYTES], int64_t *deadline_ns, journal_entry_cb *cb,
			     void *arg, char *why, size_t why_size)
{
	struct journal *j = calloc(1, sizeof(*j));
	int ret;

	why[0] = '\0';
	if (!j)
		return NULL;
	j->dir_fd = dir_fd;
	j->fd = -1;
	j->head.magic = JOURNAL_MAGIC;
	snprintf(j->head.host, sizeof(j->head.host), "%s", host);
	ret = clock_boot(j->head.boot);
	if (ret < 0)
		goto fail;
	ret = take_up(j);
	if (ret == -EUCLEAN)
		ret = put_aside(j, why, why_size);
	if (ret < 0)
		goto fail;
	if (ret > 0) {
		snprintf(host, STORE_HOST_BYTES, "%s", j->head.host);
		*deadline_ns = j->head.deadline_ns;
	}
	if (ret == 0)
		ret = write_anew(j);
	if (ret < 0)
		goto fail;
	tell(j, cb, arg);
	return j;
fail:
	journal_close(j);
	errno = -ret;
	return NULL;
}

void journal_close(struct journal *j)
{
	struct live *l, *next;

	if (!j)
		return;
	HASH_ITER (hh, j->live, l, next)
		live_drop(j, l);
	if (j->fd >= 0)
		close(j->fd);
	free(j);
}

int journal_set_deadline(struct journal *j, int64_t deadline_ns)
{
	j->head.deadline_ns = deadline_ns;
	return write_all(j->fd, &deadline_ns, sizeof(deadline_ns), offsetof(struct head, deadline_ns));
}

int journal_set_incarnation(struct journal *j, const char *incarnation)
{
	snprintf(j->head.incarnation, sizeof(j->head.incarnation), "%s", incarnation);
	return write_all(j->fd, j->head.incarnation, sizeof(j->head.incarnation), offsetof(struct head, incarnation));
}

const char *journal_incarnation(const struct journal *j)
{
	return j->head.incarnation;
}

int journal_add(struct journal *j, const struct journal_entry *entry)
{
	return append(j, record_make(RECORD_ADD, entry));
}

int journal_granted(struct journal *j, const char *token, uint64_t fence, const struct store_range *range)
{
	struct journal_entry e = {.fence = fence, .range = *range};

	memcpy(e.token, token, sizeof(e.token));
	return append(j, record_make(RECORD_FENCE, &e));
}

int journal_set_fence(struct journal *j, const char *token, uint64_t fence, enum wire_mode mode)
{
	struct journal_entry e = {.fence = fence, .range.mode = mode};

	memcpy(e.token, token, sizeof(e.token));
	return append(j, record_make(RECORD_FENCE, &e));
}

/* Where there is no room for one more record, the entry's own is made void in its place: a full file system must not
 * keep leases from being given back. */
static int strike_out(struct journal *j, struct live *l)
{
	uint32_t sum = ~l->sum;
	int ret = write_all(j->fd, &sum, sizeof(sum), l->at + (off_t)offsetof(struct record, sum));

	if (ret < 0)
		return ret;
	live_drop(j, l);
	empty_if_nothing_lives(j);
	return 0;
}

int journal_remove(struct journal *j, const char *token)
{
	struct journal_entry e = {0};
	struct live *l;
	int ret;

	memcpy(e.token, token, sizeof(e.token));
	ret = append(j, record_make(RECORD_REMOVE, &e));
	HASH_FIND_STR(j->live, token, l);
	return ret < 0 && l ? strike_out(j, l) : ret;
}
