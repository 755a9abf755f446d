/* See session.h. */

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* uthash's default would end the process. */
#define HASH_NONFATAL_OOM         1
#define uthash_nonfatal_oom(user) ((user)->is_lost = true)
#include <uthash.h>

#include "keeper/callers/listener.h"
#include "keeper/callers/session.h"
#include "keeper/leases/keeper.h"

struct quota_user {
	uid_t uid;
	unsigned has[QUOTA_KINDS];
	bool is_lost; /* the table had no memory for it */
	UT_hash_handle hh;
};

bool quota_is_limited(const struct keeper *k, uid_t uid)
{
	return k->system && uid != 0 && uid != k->uid;
}

static unsigned quota_each(const struct keeper *k, enum quota_kind kind)
{
	switch (kind) {
	case QUOTA_CONNECTION:
		return k->listener->limit / 4;
	case QUOTA_STATUS:
		return QUOTA_STATUS_EACH;
	default:
		return QUOTA_WHO_EACH;
	}
}

static unsigned quota_all(const struct keeper *k, enum quota_kind kind)
{
	switch (kind) {
	case QUOTA_CONNECTION:
		return k->listener->limit - k->listener->limit / 8;
	case QUOTA_STATUS:
		return QUOTA_STATUS_ALL;
	default:
		return QUOTA_WHO_ALL;
	}
}

static struct quota_user *quota_find(const struct quotas *quotas, uid_t uid)
{
	struct quota_user *user;

	HASH_FIND(hh, quotas->users, &uid, sizeof(uid), user);
	return user;
}

static struct quota_user *quota_add(struct quotas *quotas, uid_t uid)
{
	struct quota_user *user = calloc(1, sizeof(*user));

	if (!user)
		return NULL;
	user->uid = uid;
	HASH_ADD(hh, quotas->users, uid, sizeof(user->uid), user);
	if (!user->is_lost)
		return user;
	free(user);
	return NULL;
}

int quota_take(struct keeper *k, uid_t uid, enum quota_kind kind)
{
	struct quotas *quotas = &k->sessions->quotas;
	struct quota_user *user;

	if (!quota_is_limited(k, uid))
		return 0;
	user = quota_find(quotas, uid);
	if (user && user->has[kind] >= quota_each(k, kind)) /* mutant: quota-each */
		return -EDQUOT;
	if (quotas->all[kind] >= quota_all(k, kind))
		return -EBUSY;
	if (!user && !(user = quota_add(quotas, uid)))
		return -ENOMEM;
	user->has[kind]++;
	quotas->all[kind]++;
	return 0;
}

void quota_give(struct keeper *k, uid_t uid, enum quota_kind kind)
{
	struct quotas *quotas = &k->sessions->quotas;
	struct quota_user *user;

	if (!quota_is_limited(k, uid))
		return;
	user = quota_find(quotas, uid);
	user->has[kind]--;
	quotas->all[kind]--;
	for (int i = 0; i < QUOTA_KINDS; i++)
		if (user->has[i])
			return;
	HASH_DEL(quotas->users, user);
	free(user);
}
