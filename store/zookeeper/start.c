/* See zookeeper.h. */
#include "store/zookeeper/zookeeper.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static const enum zk_kind zk_folders[] = {ZK_STORE, ZK_LOCK, ZK_NAME, ZK_HOST, ZK_MAILBOX, ZK_RULES, ZK_TEXT};
#define MAIL_LATER_MS 1000
#define MAIL_MUCH     16
#define FOLDERS       (int)(sizeof(zk_folders) / sizeof(*zk_folders))

static void zk_write_memory(FILE *f)
{
	uint64_t random[2];
	char memory[64];

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		random[0] = uv_hrtime();
	snprintf(memory, sizeof(memory), "%016" PRIx64 "%016" PRIx64, random[0], random[1]);
	zk_write(f, "memory", memory, strlen(memory));
}

static void zk_multi_of(struct zookeeper *zk, struct zk_call *call,
			void (*done)(struct zk_call *call, int rc, int at, const struct Stat *stat))
{
	call->on_multi = done;
	zk_wait(zk);
	zk_multi(call);
}

/* ---- a new tree ---- */

static void zk_on_root(struct zk_call *call, int rc, int at, const struct Stat *stat)
{
	(void)at;
	(void)stat;
	if (rc == ZNOAUTH && call->zk->session)
		zk_failed(call->zk, rc, call->kept[0]);
}

static void zk_on_made(struct zk_call *call, int rc, int at, const struct Stat *stat)
{
	(void)stat;
	if (rc == ZOK || (rc == ZNODEEXISTS && at == 0)) /* another host has just made it */
		zk_start(call->zk);
	else if (rc == ZNODEEXISTS)
		zk_half(call->zk);
	else
		zk_failed(call->zk, rc, call->zk->root);
}

static void zk_make_root(struct zookeeper *zk)
{
	struct zk_call *call;

	for (const char *end = zk->root; (end = strchr(end + 1, '/')) || (end = zk->root + strlen(zk->root));) {
		call = zk_call(zk, NULL);
		zk_op_create(call, store_need(strndup(zk->root, (size_t)(end - zk->root))), NULL, 0, 0);
		zk_multi_of(zk, call, zk_on_root);
		if (!*end)
			break;
	}
}

/* In one step, so that half a tree is nobody's but a person's. A root that is there has an ACL, and is not made: a server refuses who may make
 * nothing beside it, before it looks whether it is there. */
static void zk_make(struct zookeeper *zk)
{
	struct zk_call *call;
	char *data;
	size_t len;
	FILE *f = store_need(open_memstream(&data, &len));

	if (!zk->acl.count)
		zk_make_root(zk);
	zk_write_begin(f);
	zk_write_memory(f);
	if (fclose(f) != 0)
		store_need(NULL);
	call = zk_call(zk, NULL);
	zk_op_create(call, zk_path(zk->root, ZK_CLOCK, NULL), NULL, 0, 0);
	for (int i = 0; i < FOLDERS; i++)
		zk_op_create(call, zk_path(zk->root, zk_folders[i], NULL), i ? NULL : data, i ? 0 : len, 0);
	zk_multi_of(zk, call, zk_on_made);
}

/* ---- messages ---- */

struct zk_mail {
	const char *name, *end; /* TEXT~NUMBER */
	int32_t number;
};

static int zk_compare_mail(const void *a, const void *b)
{
	const struct zk_mail *x = a, *y = b;

	return (int32_t)((uint32_t)x->number - (uint32_t)y->number) < 0 ? -1 : x->number != y->number;
}

static void zk_deliver(struct zookeeper *zk, const struct zk_mail *mail)
{
	char *encoded = store_need(strndup(mail->name, (size_t)(mail->end - mail->name))), *text = zk_decode(encoded);
	struct store_message m;

	zk->mail_last = mail->number;
	free(encoded);
	if (text && message_parse(text, strlen(text), "", &m) == 0 && m.kind == STORE_MSG_RECALL && !m.ask)
		zk_look_ahead(zk, m.name);
	if (text)
		zk->store->news->message(zk->store, text, strlen(text));
	free(text);
}

/* Was it delivered on this connection? */
static bool zk_is_old(const struct zookeeper *zk, int32_t number)
{
	return zk->mail_seen && (int32_t)((uint32_t)number - (uint32_t)zk->mail_last) <= 0;
}

static struct zk_mail *zk_sort_mail(const struct String_vector *names)
{
	struct zk_mail *mail = store_need(calloc((size_t)names->count + 1, sizeof(*mail)));

	for (int i = 0; i < names->count; i++) {
		const char *end = strrchr(names->data[i], '~');

		mail[i] = (struct zk_mail){names->data[i], end ? end : names->data[i], end ? atoi(end + 1) : 0};
	}
	qsort(mail, (size_t)names->count, sizeof(*mail), zk_compare_mail);
	return mail;
}

/* One that somebody else has removed fails them all: then the next look removes the others. */
static void zk_remove_mail(struct zookeeper *zk, const struct zk_mail *mail, int count)
{
	struct zk_call *call = zk_call(zk, NULL);
	char *box = zk_path(zk->root, ZK_MAILBOX, zk->store->host), *path;

	for (int i = 0; i < count; i++) {
		if (!zk_is_old(zk, mail[i].number))
			continue;
		if (asprintf(&path, "%s/%s", box, mail[i].name) < 0)
			store_need(NULL);
		zk_op_delete(call, path, -1);
	}
	free(box);
	if (call->count)
		zk_multi(call);
	else
		zk_call_free(call);
}

static void zk_on_old_mail(struct zk_call *call, int rc, const struct String_vector *names, const struct Stat *stat)
{
	struct zk_mail *mail;

	(void)stat;
	if (rc != ZOK) /* the watch says that, too */
		return;
	mail = zk_sort_mail(names);
	zk_remove_mail(call->zk, mail, names->count);
	free(mail);
}

/*
 * What was delivered is removed a second later, or when it is much: a look that follows a change of the same session waits for it, and
 * so would the release that a recall asks for.
 */
void zk_remove_old_mail(struct zookeeper *zk)
{
	struct zk_call *call;
	char *path;

	if (!zk->up)
		return;
	call = zk_call(zk, NULL);
	path = zk_path(zk->root, ZK_MAILBOX, zk->store->host);
	call->on_names = zk_on_old_mail;
	zk_names(call, path, false);
	free(path);
}

static void zk_on_mail(struct zk_call *call, int rc, const struct String_vector *names, const struct Stat *stat)
{
	struct zookeeper *zk = call->zk;
	struct zk_session *session = zk->session;
	struct zk_mail *mail;

	(void)stat;
	if (rc != ZOK) {
		store_fail(zk->store, "its messages cannot be read: %s", zerror(rc));
		return;
	}
	if (!zk->up) {
		uv_timer_stop(&zk->limit);
		zk->up = true;
		zk->store->news->connected(zk->store);
	}
	mail = zk_sort_mail(names);
	for (int i = 0; i < names->count && zk->session == session; i++)
		if (!zk_is_old(zk, mail[i].number))
			zk_deliver(zk, &mail[i]);
	if (zk->session == session) {
		zk->mail_seen = zk->mail_seen || names->count > 0;
		if (names->count >= MAIL_MUCH)
			zk_remove_mail(zk, mail, names->count);
		else if (names->count && !uv_is_active((uv_handle_t *)&zk->mail))
			uv_timer_start(&zk->mail, zk->mail.timer_cb, MAIL_LATER_MS, 0);
	}
	free(mail);
}

void zk_read_mail(struct zookeeper *zk)
{
	struct zk_call *call = zk_call(zk, NULL);
	char *path = zk_path(zk->root, ZK_MAILBOX, zk->store->host);

	call->on_names = zk_on_mail;
	zk_names(call, path, true);
	free(path);
}

/* ---- which memory ---- */

static void zk_on_mailbox(struct zk_call *call, int rc, int at, const struct Stat *stat)
{
	(void)at;
	(void)stat;
	if (rc == ZOK || rc == ZNODEEXISTS)
		zk_read_mail(call->zk);
	else
		zk_failed(call->zk, rc, call->kept[0]);
}

static void zk_make_mailbox(struct zookeeper *zk)
{
	struct zk_call *call = zk_call(zk, NULL);

	zk->mail_seen = false;
	zk_op_create(call, zk_path(zk->root, ZK_MAILBOX, zk->store->host), NULL, 0, 0);
	zk_multi_of(zk, call, zk_on_mailbox);
}

static void zk_on_forgotten(struct zk_call *call, int rc, int at, const struct Stat *stat)
{
	(void)at;
	(void)stat;
	if (rc == ZOK || rc == ZBADVERSION) /* another host has written, perhaps because it saw the same */
		zk_start(call->zk);
	else
		zk_failed(call->zk, rc, call->kept[0]);
}

/* Copies what the record has, with another memory. False: dflock did not write it. */
static bool zk_copy_record(const struct zookeeper *zk, const char *data, int len, char **copy, size_t *copy_len)
{
	FILE *f = store_need(open_memstream(copy, copy_len));
	struct zk_reader r;
	bool good = zk_read_begin(&r, data, len);
	int more = 0;

	zk_write_begin(f);
	zk_write_memory(f);
	while (good && (more = zk_read(&r)) > 0) {
		char memory[64];

		if (strcmp(r.tag, "memory") != 0) {
			zk_write(f, r.tag, r.value, r.len);
			continue;
		}
		snprintf(memory, sizeof(memory), "%.*s", (int)r.len, r.value);
		zk_see_memory(zk, memory);
	}
	if (fclose(f) != 0)
		store_need(NULL);
	return good && more == 0;
}

/*
 * Where this host's node was changed last before a change that was confirmed, the ensemble was restored from a backup, and has another memory,
 * though the tree is there. Then the memory gets another name, for every host. (What the ensemble itself counts proves nothing: the numbers of
 * a new leader are larger than all before.) If the node is gone, the last removal of one counts (clean.c): others that come make nodes in a
 * restored tree, too.
 */
static void zk_on_record(struct zk_call *call, int rc, const char *data, int len, const struct Stat *stat)
{
	struct zookeeper *zk = call->zk;
	struct zk_call *forget;
	char *copy;
	size_t copy_len;

	if (rc != ZOK) {
		zk_failed(zk, rc, zk->root);
		return;
	}
	if (!zk_copy_record(zk, data, len, &copy, &copy_len)) {
		free(copy);
		store_reject(zk->store,
			     "%s/store was not written by this version of dflock: set another path, or remove the tree "
			     "(zkCli.sh deleteall %s)",
			     zk->root, zk->root);
	} else if ((uint64_t)zk->number < zk->store->seen[STORE_SEEN_NUMBER]) { /* mutant: zk-behind */
		forget = zk_call(zk, NULL);
		zk_op_set(forget, zk_path(zk->root, ZK_STORE, NULL), copy, copy_len, stat->version);
		zk_multi_of(zk, forget, zk_on_forgotten);
	} else {
		free(copy);
		zk_make_mailbox(zk);
	}
}

static void zk_on_hosts(struct zk_call *call, int rc, const char *data, int len, const struct Stat *stat)
{
	(void)data;
	(void)len;
	if (rc == ZOK)
		call->zk->number = stat->mzxid;
}

/* Of this host's node; else of their parent. Answers come in order. */
static void zk_ask_number(struct zookeeper *zk, const char *host)
{
	struct zk_call *call = zk_call(zk, NULL);
	char *path = zk_path(zk->root, ZK_HOST, host);

	call->on_data = zk_on_hosts;
	zk_exists(call, path);
	free(path);
}

static void zk_on_clock(struct zk_call *call, int rc, int at, const struct Stat *stat)
{
	struct zookeeper *zk = call->zk;
	struct zk_call *get;
	char *path;

	if (rc == ZNONODE && at == 0) {
		zk_make(zk);
	} else if (rc != ZOK) {
		zk_failed(zk, rc, zk->root);
	} else {
		zk_saw(zk, stat);
		zk_ask_number(zk, NULL);
		zk_ask_number(zk, zk->store->host);
		get = zk_call(zk, NULL);
		path = zk_path(zk->root, ZK_STORE, NULL);
		get->on_data = zk_on_record;
		zk_get(get, path);
		free(path);
	}
}

/* The leader writes the clock: what this session reads from now on is not older than that. */
static void zk_set_clock(struct zookeeper *zk)
{
	struct zk_call *call = zk_call(zk, NULL);

	zk_op_set(call, zk_path(zk->root, ZK_CLOCK, NULL), NULL, 0, -1);
	for (int i = 0; i < FOLDERS; i++)
		zk_op_check(call, zk_path(zk->root, zk_folders[i], NULL), -1);
	zk_multi_of(zk, call, zk_on_clock);
}

/* ---- rights ---- */

void zk_forget_acl(struct zookeeper *zk)
{
	for (int i = 0; i < zk->acl.count; i++) {
		free(zk->acl.data[i].id.scheme);
		free(zk->acl.data[i].id.id);
	}
	free(zk->acl.data);
	zk->acl = (struct ACL_vector){.count = 0};
}

/* False: store_reject(). */
static bool zk_take_acl(struct zookeeper *zk, int rc, const struct ACL_vector *acl)
{
	zk_forget_acl(zk);
	zk->acl.data = store_need(calloc(rc == ZOK ? (size_t)acl->count + 1 : 1, sizeof(*zk->acl.data)));
	for (int i = 0; rc == ZOK && i < acl->count; i++) {
		const struct ACL *from = &acl->data[i];
		size_t len = strlen(from->id.id);

		/* The server hides what is behind the name, from all that may not change the ACL. */
		if (strcmp(from->id.scheme, "digest") == 0 && len > 2 && strcmp(from->id.id + len - 2, ":x") == 0) {
			store_reject(zk->store, "the ACL of %s cannot be read: give this host the right `admin` there",
				     zk->root);
			return false;
		}
		zk->acl.data[zk->acl.count++] = (struct ACL){
			from->perms, {store_need(strdup(from->id.scheme)), store_need(strdup(from->id.id))}};
	}
	return true;
}

static void zk_on_root_acl(struct zk_call *call, int rc, const struct ACL_vector *acl)
{
	struct zookeeper *zk = call->zk;

	if (rc != ZOK && rc != ZNONODE)
		zk_failed(zk, rc, zk->root);
	else if (zk_take_acl(zk, rc, acl))
		zk_set_clock(zk);
}

static void zk_on_acl_again(struct zk_call *call, int rc, const struct ACL_vector *acl)
{
	if (rc == ZOK)
		zk_take_acl(call->zk, rc, acl);
}

void zk_look_at_acl(struct zookeeper *zk)
{
	struct zk_call *call = zk_call(zk, NULL);

	call->on_acl = zk_on_acl_again;
	zk_get_acl(call, zk->root);
}

/* The ACL of the root is an operator's, and stands for all that is made below. */
void zk_start(struct zookeeper *zk)
{
	struct zk_call *call = zk_call(zk, NULL);

	zk_wait(zk);
	call->on_acl = zk_on_root_acl;
	zk_get_acl(call, zk->root);
}
