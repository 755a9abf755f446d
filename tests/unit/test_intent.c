/* What flock(fd, op) wants, for every op that there is. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

/* The shim is no part of the library that unit tests are linked with. */
#include "shim/intent.c"

static const struct {
	int op;
	bool locks;
	enum wire_mode mode;
	bool nonblock;
} ops[] = {
	{LOCK_SH, true, WIRE_SHARED, false},
	{LOCK_EX, true, WIRE_EXCLUSIVE, false},
	{LOCK_SH | LOCK_NB, true, WIRE_SHARED, true},
	{LOCK_EX | LOCK_NB, true, WIRE_EXCLUSIVE, true},
	{LOCK_UN, false, 0, false},
	{LOCK_UN | LOCK_NB, false, 0, false},
	{0, false, 0, false},
	{LOCK_NB, false, 0, false},
	{LOCK_SH | LOCK_EX, false, 0, false},
	{LOCK_SH | LOCK_UN, false, 0, false},
	{LOCK_EX | LOCK_UN | LOCK_NB, false, 0, false},
	{LOCK_MAND, false, 0, false},
	{LOCK_MAND | LOCK_RW, false, 0, false},
	{LOCK_EX | 0x100, false, 0, false},
	{-1, false, 0, false},
};

START_TEST(flock_ops)
{
	struct intent want, untouched;

	memset(&want, 0x5a, sizeof(want));
	untouched = want;
	ck_assert_int_eq(intent_flock(ops[_i].op, &want), ops[_i].locks);
	if (!ops[_i].locks) {
		ck_assert_mem_eq(&want, &untouched, sizeof(want));
		return;
	}
	ck_assert_int_eq(want.space, WIRE_FLOCK);
	ck_assert_int_eq(want.owner, WIRE_OWNER_DESCRIPTION);
	ck_assert_int_eq(want.mode, ops[_i].mode);
	ck_assert_int_eq(want.nonblock, ops[_i].nonblock);
	ck_assert_int_eq(want.from, 0);
	ck_assert_int_eq(want.to, WIRE_EOF);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("intent");
	TCase *tc = tcase_create("flock");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, flock_ops, 0, sizeof(ops) / sizeof(ops[0]));
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
