/* See copies.h. */
#include "keeper/kernel/copies.h"

static bool copies_begun;

void copies_begin(void)
{
	copies_begun = true;
}

bool copies_are_possible(void)
{
	return copies_begun;
}
