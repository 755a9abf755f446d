/*
 * Work that may block on a file system: the loop's pool of threads does it, at most WORKERS_PER_DEVICE at a time for
 * one device. So a mount that hangs keeps some threads busy, and leaves others for the files of other mounts. Loop
 * only, except run().
 */
#ifndef DFLOCK_KEEPER_WORKERS_H
#define DFLOCK_KEEPER_WORKERS_H

#include <stdint.h>
#include <uv.h>

#define WORKERS_PER_DEVICE 2
#define WORKERS_THREADS    "16" /* of the pool: enough while seven mounts hang */

/* "Devices" for work on no certain file system: paths to local files may lead through a mount that hangs; searches. */
#define WORKERS_PATHS    (~UINT64_C(0))
#define WORKERS_REFIND   (~UINT64_C(1))
#define WORKERS_DEADLOCK (~UINT64_C(2))

struct workers;

/* Embedded in the work's data. The data belongs to the caller again when done() is called; run() may touch nothing
 * else. */
struct work {
	void (*run)(struct work *work);  /* in a thread */
	void (*done)(struct work *work); /* in the loop, never from inside workers_start() */
	struct workers_device *device;
	uv_work_t uv;
	struct work *prev, *next;
};

/* Before the loop's pool is used for anything. NULL: no memory. */
struct workers *workers_new(uv_loop_t *loop);
/* No work may be under way. */
void workers_free(struct workers *workers);

/* dev: st_dev of the file. 0 or -ENOMEM: then nothing happens. */
int workers_start(struct workers *workers, uint64_t dev, struct work *work);

#endif
