/* See locks.h. */
#include "keeper/leases/locks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include <utlist.h>

#include "keeper/clock.h"
#include "keeper/fronts/away.h"
#include "keeper/kernel/workers.h"
#include "keeper/leases/ages.h"
#include "keeper/leases/keeper.h"
#include "keeper/leases/touched.h"

/* close() may block on a hung mount: then it is a worker's job. */
struct closing {
	struct work work; /* the first member */
	int fd;
};

static void run_close(struct work *work)
{
	close(((struct closing *)work)->fd);
}

static void on_fd_closed(struct work *work)
{
	free(work);
}

void file_close(struct keeper *k, uint64_t dev, int fd, bool local)
{
	struct closing *closing = fd < 0 || local ? NULL : calloc(1, sizeof(*closing));

	if (fd < 0)
		return;
	if (closing) {
		*closing = (struct closing){.work = {.run = run_close, .done = on_fd_closed}, .fd = fd};
		if (workers_start(k->workers, dev, &closing->work) == 0)
			return;
	}
	free(closing);
	close(fd);
}

void file_inode_text(const struct file_key *key, char out[STORE_FILE_BYTES])
{
	snprintf(out, STORE_FILE_BYTES, "%llx:%llu", (unsigned long long)key->dev, (unsigned long long)key->ino);
}

static struct file *file_new(struct member *m, const struct file_key *key, bool local, const char *path,
			     const char *name, int fd)
{
	struct file *file = calloc(1, sizeof(*file));

	if (!file)
		return NULL;
	file->path = strdup(path);
	file->name = strdup(name);
	if (!file->path || !file->name) {
		free(file->path);
		free(file->name);
		free(file);
		return NULL;
	}
	file->keeper = m->keeper;
	file->member = m;
	file->key = *key;
	file->id = (struct identity){.dev = key->dev, .ino = key->ino};
	file->fd = fd;
	file->local = local;
	file_inode_text(key, file->inode);
	for (int i = 0; i < WIRE_SPACES; i++)
		file->locks[i] = (struct lock){.file = file, .space = i};
	HASH_ADD(hh, m->keeper->files, key, sizeof(file->key), file);
	HASH_ADD(by_id, m->keeper->files_by_id, id, sizeof(file->id), file);
	return file;
}

struct file *file_find(struct keeper *k, uint64_t dev, uint64_t ino)
{
	struct file_key key = {.dev = dev, .ino = ino};
	struct file *file;

	HASH_FIND(hh, k->files, &key, sizeof(key), file);
	return file;
}

struct file *file_find_by_id(struct keeper *k, uint64_t dev, uint64_t ino)
{
	const struct identity id = {.dev = dev, .ino = ino};
	struct file *file;

	HASH_FIND(by_id, k->files_by_id, &id, sizeof(id), file);
	return file;
}

int file_get(struct member *m, const struct stat *st, bool local, const char *path, const char *name, int fd,
	     struct file **out)
{
	struct file_key key = {.dev = st->st_dev, .ino = st->st_ino};
	struct keeper *k = m->keeper;
	struct file *file = file_find(k, key.dev, key.ino);
	char *copy;

	if (!file) {
		*out = file_new(m, &key, local, path, name, fd);
		if (!*out)
			file_close(k, key.dev, fd, local);
		return *out ? 0 : -ENOMEM;
	}
	*out = file;
	if (file->fd >= 0)
		file_close(k, key.dev, fd, file->local);
	else if (fd >= 0) {
		file->fd = fd;
		file_opened(file);
	}
	if (file->member != m || strcmp(file->name, name) != 0)
		return -EEXIST;
	if (strcmp(file->path, path) != 0 && (copy = strdup(path))) {
		free(file->path);
		file->path = copy;
	}
	return 0;
}

/* A rule that is not followed would let Redis clients in, so a fresh keeper does better without memory. */
static void lock_set_text(char **out, const char *text)
{
	free(*out);
	*out = text ? strdup(text) : NULL;
	if (text && !*out)
		abort();
}

void lease_set_key(struct lease *lease, const char *key)
{
	lock_set_text(&lease->key, key);
}

void file_follow_rule(struct file *file)
{
	struct rule rule = config_rule_for(file->keeper->config, file->path);

	lock_set_text(&file->redis_key, rule.redis_key);
	file->at_least_ms = rule.at_least_ms;
	file->wait_warn_ms = rule.wait_warn_ms;
	file->warn_after_ms = rule.warn_after_ms;
	file->kill_after_ms = rule.kill_after_ms;
	for (int i = 0; i < WIRE_SPACES && !file_is_limited(file); i++)
		ages_drop_all(&file->locks[i]);
}

void file_opened(struct file *file)
{
	struct lease *lease;

	for (int i = 0; i < WIRE_SPACES; i++)
		DL_FOREACH (file->locks[i].leases, lease)
			if (!lease_is_probed(lease) && (lease->state == LEASE_PROBING || lease->state == LEASE_WAITING))
				lease_start_timer(lease, 1);
}

void file_is_away(struct file *file, struct away *away)
{
	if (file_is_open(file)) {
		away_forget(away);
		return;
	}
	file->away = away;
	away_owned(away, &file->away);
	file_opened(file);
}

bool file_is_used(const struct file *file)
{
	for (int i = 0; i < WIRE_SPACES; i++)
		if (file->locks[i].leases || file->locks[i].waiters)
			return true;
	return false;
}

void file_free(struct file *file)
{
	for (int i = 0; i < WIRE_SPACES; i++)
		ages_drop_all(&file->locks[i]);
	HASH_DEL(file->keeper->files, file);
	HASH_DELETE(by_id, file->keeper->files_by_id, file);
	file_close(file->keeper, file->key.dev, file->fd, file->local);
	if (file->away)
		away_forget(file->away);
	free(file->path);
	free(file->name);
	free(file->redis_key);
	free(file);
}

struct holders_file file_searched(const struct file *file)
{
	return (struct holders_file){
		.dev = file->key.dev, .ino = file->key.ino, .kernel_dev = file->id.dev, .kernel_ino = file->id.ino};
}

void file_learnt(struct file *file, const struct identity *id)
{
	if (!id->ino || file->id.dev != file->key.dev || file->id.ino != file->key.ino)
		return;
	HASH_DELETE(by_id, file->keeper->files_by_id, file);
	file->id = *id;
	HASH_ADD(by_id, file->keeper->files_by_id, id, sizeof(file->id), file);
}

void file_unused(struct file *file)
{
	if (file->unused_prev)
		return;
	DL_APPEND2(file->keeper->unused, file, unused_prev, unused_next);
}

int lease_make_token(struct keeper *k, char token[STORE_TOKEN_BYTES])
{
	static const char digits[] = "0123456789abcdef";
	struct token_bytes *random = &k->token_bytes;

	if (!random->left && getrandom(random->bytes, sizeof(random->bytes), 0) != sizeof(random->bytes))
		return -EIO;
	if (!random->left)
		random->left = sizeof(random->bytes);
	for (size_t i = 0; i < TOKEN_RANDOM_BYTES; i++) {
		unsigned char byte = random->bytes[--random->left];

		*token++ = digits[byte >> 4];
		*token++ = digits[byte & 15];
	}
	*token = '\0';
	return 0;
}

struct lease *lease_take_up(struct lock *lock, const struct store_range *range, const char *token, uid_t uid)
{
	struct keeper *k = lock->file->keeper;
	struct lease *lease = calloc(1, sizeof(*lease));

	if (!lease)
		return NULL;
	memcpy(lease->token, token, sizeof(lease->token));
	lease->lock = lock;
	lease->state = LEASE_ASKING;
	lease->slot = TABLE_NO_SLOT;
	lease->range = *range;
	lease->since_ns = clock_now_ns();
	lease->linger_ns = k->config->lease.linger_ms * NS_PER_MS;
	uv_timer_init(k->loop, &lease->timer);
	lease->timer.data = lease;
	DL_APPEND(lock->leases, lease);
	HASH_ADD_STR(k->leases, token, lease);
	lease->uid = uid;
	lock->file->member->states.count[range->space][LEASE_ASKING]++;
	return lease;
}

struct lease *lease_new(struct lock *lock, const struct store_range *range, uid_t uid)
{
	char token[STORE_TOKEN_BYTES];

	return lease_make_token(lock->file->keeper, token) == 0 ? lease_take_up(lock, range, token, uid) : NULL;
}

void lease_recall_by_rule(struct lease *lease)
{
	if (lease->recalled.level < RECALL_ASK) {
		lease->recalled.range = lease->range;
		lease->recalled.shared = lease->recalled.exclusive = false;
	}
	if (lease->recalled.level < RECALL_RULE)
		lease->recalled.level = RECALL_RULE;
}

static void on_lease_timer_closed(uv_handle_t *handle)
{
	free(handle->data);
}

void lease_free(struct lease *lease)
{
	struct lock *lock = lease->lock;

	free(lease->key);
	touched_add(&lock->file->keeper->touched, lock->file->name, lock->space);
	utarray_done(&lease->recalled.askers);
	lock->file->member->states.count[lease->range.space][lease->state]--;
	HASH_DEL(lock->file->keeper->leases, lease);
	DL_DELETE(lock->leases, lease);
	if (!lock->leases) {
		lock->leased_at = 0;
		lock->taken_up = false;
	}
	uv_close((uv_handle_t *)&lease->timer, on_lease_timer_closed);
	file_unused(lock->file);
}

static void on_lease_timer(uv_timer_t *timer)
{
	struct lease *lease = timer->data;
	struct keeper *k = lease_keeper(lease);

	k->queue.work->timer(lease);
	queue_settle(k);
}

void lease_start_timer(struct lease *lease, int64_t ms)
{
	uv_timer_start(&lease->timer, on_lease_timer, ms < 1 ? 1 : ms, 0);
}

void lease_set_state(struct lease *lease, enum lease_state state)
{
	struct lease_states *states = &lease_member(lease)->states;

	states->count[lease->range.space][lease->state]--;
	states->count[lease->range.space][state]++;
	lease->state = state;
}

struct lease *lease_find(struct keeper *k, const char *token)
{
	struct lease *lease;

	HASH_FIND_STR(k->leases, token, lease);
	return lease;
}

/* Does a allow whatever b allows? */
static bool range_covers(const struct store_range *a, const struct store_range *b)
{
	return a->space == b->space && a->mode >= b->mode && a->from <= b->from && a->to >= b->to;
}

bool range_overlaps(const struct store_range *a, const struct store_range *b)
{
	return a->space == b->space && a->from < b->to && b->from < a->to;
}

struct lease *lock_covering(const struct lock *lock, const struct store_range *range)
{
	struct lease *lease, *closed = NULL;

	DL_FOREACH (lock->leases, lease) {
		if (!lease_is_ours(lease->state) || !range_covers(&lease->range, range))
			continue;
		if (lease->state == LEASE_OPEN)
			return lease;
		closed = lease;
	}
	return closed;
}

bool lock_covered_without(const struct lease *lease)
{
	int64_t at = lease->range.from;
	const struct lease *other;
	bool further = true;

	while (at < lease->range.to && further) {
		further = false;
		DL_FOREACH (lease->lock->leases, other) {
			if (other == lease || other->state != LEASE_OPEN || other->split.running ||
			    other->range.mode < lease->range.mode || other->range.from > at || other->range.to <= at)
				continue;
			at = other->range.to;
			further = true;
		}
	}
	return at >= lease->range.to;
}

bool lock_is_breaking(const struct lock *lock)
{
	const struct lease *lease;

	DL_FOREACH (lock->leases, lease)
		if (lease->state == LEASE_BREAKING || lease->state == LEASE_ENDING)
			return true;
	return false;
}

void lock_describe(const struct lock *lock, char *out, size_t size)
{
	const struct file *file = lock->file;

	if (strcmp(file->name, file->path) == 0)
		snprintf(out, size, "%s", file->path);
	else
		snprintf(out, size, "%s (%s)", file->name, file->path);
}
