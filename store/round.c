#include "store/round.h"

void round_begin(struct round *round)
{
	round->asked = round->elsewhere = 0;
}

size_t round_next(struct round *round)
{
	size_t index = round->next;

	round->next = (index + 1) % round->count;
	round->asked++;
	return index;
}

bool round_was_first(const struct round *round)
{
	return round->next == 1 % round->count;
}

enum round_verdict round_found(const struct round *round, bool named)
{
	if (named)
		return ROUND_BELIEVE;
	return round->asked < round->count ? ROUND_ASK : ROUND_OVER;
}

enum round_verdict round_checked(struct round *round, bool named, bool here)
{
	if (named && here)
		return ROUND_OVER;
	if (named && ++round->elsewhere > round->count / 2)
		return ROUND_BELIEVE;
	return round->elsewhere > 0 && round->asked < round->count ? ROUND_ASK : ROUND_OVER;
}
