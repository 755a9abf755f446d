/* `dflock break`: takes leases away here or on another host, ends rests, and gives up a silent host. Loop only. */
#ifndef DFLOCK_KEEPER_CONTROL_BREAK_H
#define DFLOCK_KEEPER_CONTROL_BREAK_H

#include <stdint.h>
#include <sys/types.h>

#include "store/store.h"

struct keeper;
struct session;

/* A session has asked for one of these: answers now or later. text: the lock name, or the host. */
void control_break(struct session *s, const char *text);

/* News: queue_news.broken. */
void control_break_told(struct keeper *k, const struct store_message *m);

#endif
