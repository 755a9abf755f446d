#include <check.h>
#include <stdlib.h>

#include "keeper/kernel/overflowuid.h"

START_TEST(which_maps_are_whole)
{
	/* The initial namespace; the same in parts; `unshare -Ur`; a container's; one that leaves out a single uid. */
	ck_assert(overflowuid_maps_all("         0          0 4294967295\n"));
	ck_assert(overflowuid_maps_all("0 0 65536\n65536 65536 4294901759\n"));
	ck_assert(!overflowuid_maps_all("         0       1000          1\n"));
	ck_assert(!overflowuid_maps_all("0 100000 65536\n"));
	ck_assert(!overflowuid_maps_all("0 0 4294967294\n"));
	ck_assert(!overflowuid_maps_all(""));
	ck_assert(!overflowuid_maps_all("nonsense"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("overflowuid");
	TCase *t = tcase_create("maps");
	SRunner *runner;
	int failed;

	tcase_add_test(t, which_maps_are_whole);
	suite_add_tcase(suite, t);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
