/* News from leases/ (queue.h): which function here takes it. Loop only. */
#ifndef DFLOCK_KEEPER_NEWS_H
#define DFLOCK_KEEPER_NEWS_H

#include "keeper/keeper.h"

/* Before the first of it. */
void news_start(struct keeper *k);

#endif
