
#include "keeper/kernel/overflowuid.h"
#include "tests/unit/suite.h"

TEST(which_maps_are_whole)
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
