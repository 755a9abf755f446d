/* What loop.c and loop_events.c share: a keeper's loop. */
#ifndef DFLOCK_TESTS_SIM_LOOP_H
#define DFLOCK_TESTS_SIM_LOOP_H

#include <uv.h>

#include "tests/sim/sim.h"

struct loop {
	uv_loop_t *uv;
	struct armed *armed;
	struct watched *watched;
	struct closing *closing;
	struct job *jobs;
	uv_signal_t *signal;
	uv_signal_cb signal_cb;
	bool poll_posted;
};
extern struct loop loops[SIM_HOSTS];

static inline struct host *host_of(const uv_loop_t *loop) { return loop->data; }
static inline struct loop *loop_of(const uv_loop_t *loop) { return &loops[host_of(loop)->id]; }

/* uv_close() of a poll handle. */
void loop_forget_poll(struct loop *loop, const uv_poll_t *handle);

#endif
