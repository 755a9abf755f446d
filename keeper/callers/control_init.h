/* `dflock init`: opens a store that has lost its memory, or is new, before its grace is over. Loop only. */
#ifndef DFLOCK_KEEPER_CONTROL_INIT_H
#define DFLOCK_KEEPER_CONTROL_INIT_H

struct keeper;
struct session;

/* A session has asked for it: answers now or later. */
void control_init(struct session *s);

/* News for sessions that wait for it: the store is reachable for the first time since the start, or is not. */
void control_init_store_tried(struct keeper *k);

#endif
