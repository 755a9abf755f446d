/* See workers.h. */
#include "keeper/kernel/workers.h"

#include <errno.h>
#include <stdlib.h>
#include <uthash.h>
#include <utlist.h>

struct workers {
	uv_loop_t *loop;
	struct workers_device *devices; /* those that there is work on */
};

struct workers_device {
	struct workers *workers;
	uint64_t dev;
	unsigned running;
	struct work *waiting;
	UT_hash_handle hh;
};

struct workers *workers_new(uv_loop_t *loop)
{
	struct workers *workers = calloc(1, sizeof(*workers));

	if (!workers)
		return NULL;
	workers->loop = loop;
	setenv("UV_THREADPOOL_SIZE", WORKERS_THREADS, 0); /* read when the pool is first used */
	return workers;
}

void workers_free(struct workers *workers)
{
	free(workers);
}

static struct workers_device *workers_device_get(struct workers *workers, uint64_t dev)
{
	struct workers_device *device;

	HASH_FIND(hh, workers->devices, &dev, sizeof(dev), device);
	if (device)
		return device;
	device = calloc(1, sizeof(*device));
	if (!device)
		return NULL;
	device->workers = workers;
	device->dev = dev;
	HASH_ADD(hh, workers->devices, dev, sizeof(device->dev), device);
	return device;
}

static void workers_device_put(struct workers_device *device)
{
	if (device->running || device->waiting)
		return;
	HASH_DEL(device->workers->devices, device);
	free(device);
}

static void workers_run(uv_work_t *uv)
{
	struct work *work = uv->data;

	work->run(work);
}

static void workers_done(uv_work_t *uv, int status);

static void workers_begin(struct workers_device *device, struct work *work)
{
	work->uv.data = work;
	device->running++;
	uv_queue_work(device->workers->loop, &work->uv, workers_run,
		      workers_done); /* fails without a function to run, and only then */
}

static void workers_done(uv_work_t *uv, int status)
{
	struct work *work = uv->data, *next;
	struct workers_device *device = work->device;

	(void)status; /* never cancelled */
	device->running--;
	next = device->waiting;
	if (next) {
		DL_DELETE(device->waiting, next);
		workers_begin(device, next);
	}
	workers_device_put(device);
	work->done(work);
}

int workers_start(struct workers *workers, uint64_t dev, struct work *work)
{
	struct workers_device *device = workers_device_get(workers, dev);

	if (!device)
		return -ENOMEM;
	work->device = device;
	if (device->running < WORKERS_PER_DEVICE)
		workers_begin(device, work);
	else
		DL_APPEND(device->waiting, work);
	return 0;
}
