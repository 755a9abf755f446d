/*
 * Work that may block on a file system: done by the loop's pool of threads, at most WORKERS_PER_DEVICE at a time for
 * one device. So a mount that hangs keeps some threads, and not those that the files of other mounts need. Loop only,
 * but for run().
 */
#ifndef DFLOCK_KEEPER_WORKERS_H
#define DFLOCK_KEEPER_WORKERS_H

#include <stdint.h>
#include <uv.h>

#define WORKERS_PER_DEVICE 2
#define WORKERS_THREADS    "16" /* of the pool: enough for as many mounts that hang as half of this, less one */

struct workers;

/* Part of what is worked on, which belongs to the caller again when done() is called. run() may touch that alone. */
struct work {
	void (*run)(struct work *work);  /* in a thread */
	void (*done)(struct work *work); /* in the loop, never from inside workers_start() */
	struct workers_device *device;
	uv_work_t uv;
	struct work *prev, *next;
};

/* Before the loop's pool is used for anything. NULL: no memory. */
struct workers *workers_new(uv_loop_t *loop);
/* No work may be left. */
void workers_free(struct workers *workers);

/* dev: st_dev of the file. 0 or -ENOMEM: then nothing happens. */
int workers_start(struct workers *workers, uint64_t dev, struct work *work);

#endif
