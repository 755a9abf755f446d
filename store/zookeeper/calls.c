/* See zookeeper.h. */
#include "store/zookeeper/zookeeper.h"

#include <stdlib.h>
#include <string.h>

struct zk_call *zk_call(struct zookeeper *zk, struct zk_query *query)
{
	struct zk_call *call = store_need(calloc(1, sizeof(*call)));

	*call = (struct zk_call){.zk = zk, .query = query, .session = zk->session, .first_message = -1};
	return call;
}

void zk_call_free(struct zk_call *call)
{
	for (int i = 0; call->kept && i < 2 * call->count; i++)
		free(call->kept[i]);
	free(call->path);
	free(call->kept);
	free(call->ops);
	free(call->results);
	free(call->stats);
	free(call);
}

/* Was it made? */
static void zk_called(struct zk_call *call, int rc)
{
	if (rc == ZOK)
		return;
	if (!call->session->failed)
		call->session->failed = rc;
	zk_soon(call->session);
	zk_call_free(call);
}

static void zk_on_data(int rc, const char *data, int len, const struct Stat *stat, const void *arg)
{
	struct zk_call *call = (struct zk_call *)arg;

	if (call->session->zk && call->on_data)
		call->on_data(call, rc, data, len, stat);
	zk_call_free(call);
}

static void zk_on_stat(int rc, const struct Stat *stat, const void *arg)
{
	zk_on_data(rc, NULL, 0, stat, arg);
}

static void zk_on_names(int rc, const struct String_vector *names, const struct Stat *stat, const void *arg)
{
	struct zk_call *call = (struct zk_call *)arg;

	if (call->session->zk)
		call->on_names(call, rc, names, stat);
	zk_call_free(call);
}

static void zk_on_acl(int rc, struct ACL_vector *acl, struct Stat *stat, const void *arg)
{
	struct zk_call *call = (struct zk_call *)arg;

	(void)stat;
	if (call->session->zk)
		call->on_acl(call, rc, acl);
	zk_call_free(call);
}

static void zk_on_void(int rc, const void *arg)
{
	struct zk_call *call = (struct zk_call *)arg;
	const struct Stat *stat = NULL;
	int at = -1;

	for (int i = 0; i < call->count; i++) {
		if (rc != ZOK && at < 0 && call->results[i].err != ZOK && call->results[i].err != ZRUNTIMEINCONSISTENCY)
			at = i;
		if (rc == ZOK && call->ops[i].type == ZOO_SETDATA_OP)
			stat = &call->stats[i];
	}
	if (call->session->zk && call->on_multi)
		call->on_multi(call, at >= 0 ? call->results[at].err : rc, at, stat);
	zk_call_free(call);
}

static void zk_on_watch(zhandle_t *handle, int type, int state, const char *path, void *context)
{
	struct zk_session *session = context;

	(void)handle;
	(void)state;
	(void)path;
	if (session->zk && (type == ZOO_CHILD_EVENT || type == ZOO_DELETED_EVENT)) /* removed: it is found out */
		zk_up->mail(session->zk);
}

void zk_get(struct zk_call *call, const char *path)
{
	call->path = store_need(strdup(path));
	zk_called(call, zoo_aget(call->session->handle, path, 0, zk_on_data, call));
}

void zk_exists(struct zk_call *call, const char *path)
{
	call->path = store_need(strdup(path));
	zk_called(call, zoo_aexists(call->session->handle, path, 0, zk_on_stat, call));
}

void zk_names(struct zk_call *call, const char *path, bool watch)
{
	call->path = store_need(strdup(path));
	zk_called(call, zoo_awget_children2(call->session->handle, path, watch ? zk_on_watch : NULL,
					    watch ? call->session : NULL, zk_on_names, call));
}

void zk_get_acl(struct zk_call *call, const char *path)
{
	zk_called(call, zoo_aget_acl(call->session->handle, path, zk_on_acl, call));
}

/* ---- a multi ---- */

static zoo_op_t *zk_op(struct zk_call *call, char *path, char *value, size_t len)
{
	if (call->count == call->room) {
		call->room = call->room * 2 + 8;
		call->ops = store_need(realloc(call->ops, (size_t)call->room * sizeof(*call->ops)));
		call->kept = store_need(realloc(call->kept, 2 * (size_t)call->room * sizeof(*call->kept)));
	}
	call->kept[2 * call->count] = path;
	call->kept[2 * call->count + 1] = value;
	call->bytes += strlen(path) + len + 64;
	return &call->ops[call->count++];
}

void zk_op_check(struct zk_call *call, char *path, int32_t version)
{
	zoo_check_op_init(zk_op(call, path, NULL, 0), path, version);
}

void zk_op_set(struct zk_call *call, char *path, char *value, size_t len, int32_t version)
{
	zoo_set_op_init(zk_op(call, path, value, len), path, value ? value : "", (int)len, version, NULL);
}

void zk_op_create(struct zk_call *call, char *path, char *value, size_t len, int flags)
{
	zoo_create_op_init(zk_op(call, path, value, len), path, value ? value : "", (int)len,
			   call->zk->acl.count ? &call->zk->acl : &ZOO_OPEN_ACL_UNSAFE, flags, NULL, 0);
}

void zk_op_delete(struct zk_call *call, char *path, int32_t version)
{
	zoo_delete_op_init(zk_op(call, path, NULL, 0), path, version);
}

void zk_multi(struct zk_call *call)
{
	call->results = store_need(calloc((size_t)call->count, sizeof(*call->results)));
	call->stats = store_need(calloc((size_t)call->count, sizeof(*call->stats)));
	for (int i = 0; i < call->count; i++)
		if (call->ops[i].type == ZOO_SETDATA_OP)
			call->ops[i].set_op.stat = &call->stats[i];
	zk_called(call, zoo_amulti(call->session->handle, call->count, call->ops, call->results, zk_on_void, call));
}
