/*
 * See zookeeper.h. A node that has nothing but its version has to go some day. Three things depend on it:
 *
 *   - the versions that others have read and are about to compare: a node that is made anew begins with the same ones. So each clean-up
 *     writes the record, which every multi of a rule compares.
 *   - the last fence of the name: the record's becomes as large, and new names begin there.
 *   - the host that finds its node gone, and takes that for a restored backup: the parent is written, too (start.c).
 */
#include "store/zookeeper/zookeeper.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define AT_ONCE 50 /* nodes of a kind that are looked at: random ones */

struct zk_clean {
	int64_t older_ms;
	unsigned pending;
	uint64_t fence;
	char *record; /* as it is */
	int record_len;
	int32_t version;
	struct zk_call *multi;
};

static void zk_clean_end(struct zookeeper *zk)
{
	struct zk_clean *clean = zk->clean;

	zk->clean = NULL;
	if (!clean)
		return;
	if (clean->multi)
		zk_call_free(clean->multi);
	free(clean->record);
	free(clean);
}

void zk_clean_stop(struct zookeeper *zk)
{
	zk_clean_end(zk);
}

/* The record, with the fence. */
static char *zk_clean_record(const struct zk_clean *clean, size_t *len)
{
	char *data, text[24];
	FILE *f = store_need(open_memstream(&data, len));
	uint64_t fence = clean->fence;
	struct zk_reader r;

	zk_write_begin(f);
	for (zk_read_begin(&r, clean->record, clean->record_len); zk_read(&r) > 0;) {
		if (strcmp(r.tag, "fence") != 0)
			zk_write(f, r.tag, r.value, r.len);
		else if (strtoull(r.value, NULL, 10) > fence)
			fence = strtoull(r.value, NULL, 10);
	}
	snprintf(text, sizeof(text), "%" PRIu64, fence);
	zk_write(f, "fence", text, strlen(text));
	if (fclose(f) != 0)
		store_need(NULL);
	return data;
}

static void zk_on_cleaned(struct zk_call *call, int rc, int at, const struct Stat *stat)
{
	(void)rc; /* something has changed meanwhile: another time */
	(void)at;
	(void)stat;
	call->zk->cleaned += rc == ZOK ? (unsigned)call->count : 0;
	/* Most had nothing: more may come than would go by one look in five minutes, so the next ones of this kind have their turn soon. */
	if (rc == ZOK && call->count > AT_ONCE) {
		call->zk->clean_ns = 0;
		call->zk->clean_turn--;
	}
	zk_clean_end(call->zk);
}

static void zk_clean_commit(struct zookeeper *zk)
{
	struct zk_clean *clean = zk->clean;
	struct zk_call *multi = clean->multi;
	char *record;
	size_t len;

	if (!multi->count || !clean->record) {
		zk_clean_end(zk);
		return;
	}
	clean->multi = NULL;
	record = zk_clean_record(clean, &len);
	zk_op_set(multi, zk_path(zk->root, ZK_STORE, NULL), record, len, clean->version); /* mutant: zk-clean-record */
	multi->on_multi = zk_on_cleaned;
	zk_multi(multi);
}

static void zk_clean_on(struct zookeeper *zk)
{
	if (--zk->clean->pending == 0)
		zk_clean_commit(zk);
}

/* ---- what may go ---- */

static void zk_on_clean_mail(struct zk_call *call, int rc, const struct String_vector *names, const struct Stat *stat)
{
	struct zk_call *multi = call->zk->clean->multi;
	int i = 0;

	(void)stat;
	/* What is too much for one multi goes another time. */
	for (; rc == ZOK && i < names->count && multi->bytes < ZK_MAX_BYTES / 2; i++) {
		char *path;

		if (asprintf(&path, "%s/%s", call->path, names->data[i]) < 0)
			store_need(NULL);
		zk_op_delete(multi, path, -1);
	}
	if (rc == ZOK && i == names->count)
		zk_op_delete(multi, store_need(strdup(call->path)), -1);
	zk_clean_on(call->zk);
}

/* False: it has a cell whose time is not over, or somebody else wrote it. */
static bool zk_is_empty(const struct zookeeper *zk, enum zk_kind kind, const char *data, int len)
{
	uint64_t fence = 0;
	int64_t till_ms = 0;
	struct zk_reader r;
	int more = -1;

	for (bool good = zk_read_begin(&r, data, len); good && (more = zk_read(&r)) > 0;) {
		bool is_fence = kind == ZK_LOCK && strcmp(r.tag, "fence") == 0,
		     is_rest = kind == ZK_LOCK && strncmp(r.tag, "rest-", 5) == 0;

		if (!is_fence && !is_rest && kind != ZK_TEXT && (kind != ZK_LOCK || strcmp(r.tag, "mark") != 0))
			return false;
		if (is_fence)
			fence = strtoull(r.value, NULL, 10);
		if ((is_rest && strtoll(r.value, NULL, 10) > till_ms) || strcmp(r.tag, "till") == 0)
			till_ms = strtoll(r.value, NULL, 10); /* a rest: "END MS FENCE" */
	}
	if (more == 0 && fence > zk->clean->fence)
		zk->clean->fence = fence; /* mutant: zk-clean-fence */
	return more == 0 && till_ms < zk_now_us(zk) / 1000;
}

/* The mailbox of a host that is not there: it goes, with what is in it. A host that has just come back finds that out. */
static void zk_on_clean_host(struct zk_call *call, int rc, const char *data, int len, const struct Stat *stat)
{
	struct zookeeper *zk = call->zk;
	struct zk_call *mail;
	char *name = zk_decode(strrchr(call->path, '/') + 1), *path;

	(void)stat;
	if (name && (rc == ZNONODE || (rc == ZOK && zk_is_empty(zk, ZK_HOST, data, len)))) {
		mail = zk_call(zk, NULL);
		mail->on_names = zk_on_clean_mail;
		path = zk_path(zk->root, ZK_MAILBOX, name);
		zk->clean->pending++;
		zk_names(mail, path, false);
		free(path);
	}
	free(name);
	zk_clean_on(zk);
}

static void zk_clean_mailbox(struct zookeeper *zk, const char *name)
{
	struct zk_call *host = zk_call(zk, NULL);
	char *path = zk_path(zk->root, ZK_HOST, name);

	host->on_data = zk_on_clean_host;
	zk->clean->pending++;
	zk_get(host, path);
	free(path);
}

static void zk_on_clean_node(struct zk_call *call, int rc, const char *data, int len, const struct Stat *stat)
{
	struct zookeeper *zk = call->zk;
	struct zk_clean *clean = zk->clean;
	char *name = zk_decode(strrchr(call->path, '/') + 1);
	bool old = rc == ZOK && zk_now_us(zk) / 1000 - stat->mtime >= clean->older_ms;

	if (name && old && call->kind == ZK_MAILBOX) {
		zk_clean_mailbox(zk, name);
	} else if (name && old && zk_is_empty(zk, call->kind, data, len)) {
		zk_op_delete(clean->multi, store_need(strdup(call->path)), stat->version);
		if (call->kind == ZK_LOCK)
			zk_op_delete(clean->multi, zk_path(zk->root, ZK_NAME, name), -1);
		if (call->kind == ZK_HOST) /* mutant: zk-clean-host */
			zk_op_set(clean->multi, zk_path(zk->root, ZK_HOST, NULL), store_need(strdup("")), 0, -1);
	}
	free(name);
	zk_clean_on(zk);
}

static void zk_on_clean_list(struct zk_call *call, int rc, const struct String_vector *names, const struct Stat *stat)
{
	int count = rc == ZOK ? names->count : 0, from = count ? (int)(uv_hrtime() / 1000 % (uint64_t)count) : 0;

	(void)stat;
	for (int i = 0; i < count && i < AT_ONCE; i++) {
		struct zk_call *get = zk_call(call->zk, NULL);
		char *path;

		if (asprintf(&path, "%s/%s", call->path, names->data[(from + i) % count]) < 0)
			store_need(NULL);
		get->kind = call->kind;
		get->on_data = zk_on_clean_node;
		call->zk->clean->pending++;
		zk_get(get, path);
		free(path);
	}
	zk_clean_on(call->zk);
}

static void zk_on_clean_record(struct zk_call *call, int rc, const char *data, int len, const struct Stat *stat)
{
	struct zk_clean *clean = call->zk->clean;

	if (rc == ZOK && len > 0) {
		clean->record = store_need(malloc((size_t)len));
		memcpy(clean->record, data, (size_t)len);
		clean->record_len = len;
		clean->version = stat->version;
	}
	zk_clean_on(call->zk);
}

void zk_clean(struct zookeeper *zk, enum zk_kind kind, int64_t older_ms)
{
	struct zk_call *call;
	char *record = zk_path(zk->root, ZK_STORE, NULL), *list = zk_path(zk->root, kind, NULL);

	if (zk->up && !zk->clean) {
		zk->clean = store_need(calloc(1, sizeof(*zk->clean)));
		*zk->clean = (struct zk_clean){.older_ms = older_ms, .pending = 2, .multi = zk_call(zk, NULL)};
		call = zk_call(zk, NULL);
		call->on_data = zk_on_clean_record;
		zk_get(call, record);
		call = zk_call(zk, NULL);
		call->kind = kind;
		call->on_names = zk_on_clean_list;
		zk_names(call, list, false);
	}
	free(record);
	free(list);
}
