/*
 * The store is away, and back again: two events. A connection that stands again within ABSENCE_MS is neither. Loop only.
 */
#ifndef DFLOCK_KEEPER_ABSENCE_H
#define DFLOCK_KEEPER_ABSENCE_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct keeper;

#define ABSENCE_MS 1000 /* after this time callers are told, too (callers/waiting.c) */

/* Part of struct keeper. */
struct absence {
	int64_t since_ns; /* 0: the store is there */
	bool said;
	uv_timer_t timer;
};

void absence_start(struct keeper *k);
void absence_stop(struct keeper *k);

/* The store cannot be used; may be called again while that lasts. */
void absence_begins(struct keeper *k);
void absence_ends(struct keeper *k);

#endif
