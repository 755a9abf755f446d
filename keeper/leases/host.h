/* This host and the store: what comes from the store by itself (messages, its ups and downs), and hosts that are silent for
 * long. Beats: deadline.h. Loop only. */
#ifndef DFLOCK_KEEPER_HOST_H
#define DFLOCK_KEEPER_HOST_H

#include "keeper/keeper.h"

int host_start(struct keeper *k); /* 0 or -errno */
void host_stop(struct keeper *k);

#endif
