/* News from leases/ (queue.h): which function here takes it. Loop only. */
#ifndef DFLOCK_KEEPER_NEWS_H
#define DFLOCK_KEEPER_NEWS_H

struct keeper;

/* To be called before there is any news. */
void news_start(struct keeper *k);

#endif
