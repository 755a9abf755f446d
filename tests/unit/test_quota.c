/* keeper/callers/quota.c: the shares of users, one kind beside another, and what is left when all was given back. */
#include "keeper/callers/listener.h"
#include "keeper/callers/session.h"
#include "keeper/leases/keeper.h"
#include "tests/unit/suite.h"

#define FIRST_UID 4242
#define LIMIT     40 /* connections: ten for each user, 35 for all */

static struct sessions sessions;
static struct listener listener;
static struct keeper k;
static unsigned taken[64][QUOTA_KINDS]; /* by the users from FIRST_UID on */

static void quota_begin(void)
{
	memset(taken, 0, sizeof(taken));
	listener = (struct listener){.limit = LIMIT};
	sessions = (struct sessions){.count = 0};
	k = (struct keeper){.member_count = 1,
			    .members[0].keeper = &k,
			    .system = true,
			    .sessions = &sessions,
			    .listener = &listener};
}

static int take(uid_t uid, enum quota_kind kind)
{
	int ret = quota_take(&k, uid, kind);
	taken[uid - FIRST_UID][kind] += ret == 0;
	return ret;
}

static void give(uid_t uid, enum quota_kind kind)
{
	taken[uid - FIRST_UID][kind]--;
	quota_give(&k, uid, kind);
}

static void quota_end(void)
{
	for (unsigned user = 0; user < sizeof(taken) / sizeof(*taken); user++)
		for (int kind = 0; kind < QUOTA_KINDS; kind++)
			while (taken[user][kind])
				give(FIRST_UID + user, kind);
	ck_assert_ptr_null(sessions.quotas.users);
}

/* How many a user gets until it is refused with `end`. */
static unsigned take_all(uid_t uid, enum quota_kind kind, int end)
{
	unsigned count = 0;
	int ret;
	while ((ret = take(uid, kind)) == 0)
		ck_assert_uint_le(++count, 1000);
	ck_assert_int_eq(ret, end);
	return count;
}

TEST(each_user_has_a_share)
{
	quota_begin();
	ck_assert_uint_eq(take_all(FIRST_UID, QUOTA_CONNECTION, -EDQUOT), LIMIT / 4);
	ck_assert_uint_eq(take_all(FIRST_UID, QUOTA_STATUS, -EDQUOT), QUOTA_STATUS_EACH);
	ck_assert_uint_eq(take_all(FIRST_UID, QUOTA_WHO, -EDQUOT), QUOTA_WHO_EACH);
	ck_assert_uint_eq(take_all(FIRST_UID + 1, QUOTA_CONNECTION, -EDQUOT), LIMIT / 4);
	give(FIRST_UID, QUOTA_STATUS);
	ck_assert_int_eq(take(FIRST_UID, QUOTA_CONNECTION), -EDQUOT);
	ck_assert_int_eq(take(FIRST_UID, QUOTA_STATUS), 0);
	quota_end();
}

TEST(all_together_leave_some)
{
	static const struct {
		enum quota_kind kind;
		unsigned each, all;
	} kinds[] = {{QUOTA_CONNECTION, LIMIT / 4, LIMIT - LIMIT / 8},
		     {QUOTA_STATUS, QUOTA_STATUS_EACH, QUOTA_STATUS_ALL},
		     {QUOTA_WHO, QUOTA_WHO_EACH, QUOTA_WHO_ALL}};

	quota_begin();
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		uid_t uid = FIRST_UID;

		for (unsigned left = kinds[i].all; left; uid++) {
			unsigned share = left < kinds[i].each ? left : kinds[i].each;

			ck_assert_uint_eq(take_all(uid, kinds[i].kind, share < kinds[i].each ? -EBUSY : -EDQUOT),
					  share);
			left -= share;
		}
		ck_assert_int_eq(take(uid, kinds[i].kind), -EBUSY);
		give(FIRST_UID, kinds[i].kind);
		ck_assert_int_eq(take(uid, kinds[i].kind), 0);
	}
	quota_end();
}

TEST(root_and_the_keepers_user_are_not_counted)
{
	quota_begin();
	for (int i = 0; i < 10 * LIMIT; i++) {
		ck_assert_int_eq(quota_take(&k, 0, QUOTA_STATUS), 0);
		ck_assert_int_eq(quota_take(&k, 0, QUOTA_WHO), 0);
	}
	quota_give(&k, 0, QUOTA_STATUS);
	k.system = false;
	for (int i = 0; i < 10 * LIMIT; i++)
		ck_assert_int_eq(quota_take(&k, FIRST_UID, QUOTA_CONNECTION), 0);
	quota_give(&k, FIRST_UID, QUOTA_CONNECTION);
	ck_assert_ptr_null(sessions.quotas.users);
}
