/*
 * Asks the kernel whether a process has a lock on a file, and waits until none has. A probe that waits has a thread, and
 * so has the test of a file that is not known to be local, since flock() and the file system behind it may block without
 * limit. Other tests are made at once. A few threads are kept for the next probes.
 *
 * The answer is about one moment: the probe holds nothing when it gives the answer. That is enough: a process that
 * takes the kernel lock without a pin has to ask the keeper before it may rely on the lock.
 *
 * In the flock space the test is to take the lock, on the keeper's own open file description, and to let go of it
 * at once. A program that tries the lock without waiting in just that moment is refused; so no probe runs over a pinned
 * range. In the record space the kernel tells without taking a lock (F_OFD_GETLK, which works on a read-only
 * description). To wait for the end of a record lock, the probe takes that lock for a moment, as a POSIX lock: other
 * processes, and the keeper itself, may then see it with this process's pid.
 *
 * Call probe_start() and probe_stop() in the event loop, which also delivers the answers. A probe keeps the loop alive.
 */
#ifndef DFLOCK_KEEPER_PROBE_H
#define DFLOCK_KEEPER_PROBE_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "wire/msg.h"

enum probe_answer {
	PROBE_IN_USE,  /* a process has the lock; with `wait` the probe goes on, else this is the last answer */
	PROBE_FREE,    /* last: no process had a lock */
	PROBE_SHARED,  /* last: no process had it exclusively */
	PROBE_STOPPED, /* last: the probe was stopped, or the kernel refused (error) */
};
typedef void probe_cb(void *arg, enum probe_answer answer, int error);

struct probes;
struct probe;

/* One per loop. Installs an empty handler for SIGUSR2, the signal that wakes waiting threads. NULL with errno set on
 * failure. */
struct probes *probes_new(uv_loop_t *loop);
/* No probe may exist any more. */
void probes_free(struct probes *probes);

struct probe_want {
	enum wire_space space;
	int64_t from, to;    /* record space */
	bool shared_will_do; /* PROBE_SHARED is an answer too */
	bool wait;           /* goes on after PROBE_IN_USE */
	bool local;          /* the file is on a local file system (mounts.h) */
};

/*
 * Starts a probe on fd, which stays open until the last answer. NULL with errno set if no thread could be started. The
 * probe frees itself when its last answer has been given. No answer comes from inside this call.
 */
struct probe *probe_start(struct probes *probes, int fd, const struct probe_want *want, probe_cb *cb, void *arg);

/*
 * While the probe waits: if no process has the lock any more, its thread calls fire(arg) before the last answer, and the loop learns of
 * that answer, PROBE_FREE, when it wakes for another reason, if fire() returned true: then something else will wake it soon.
 * For flock only. False: too late, or no such probe. Once for each probe.
 *
 * fire() runs in the thread, while the loop cannot begin or end probe_disarm(), and must not wait.
 */
typedef bool probe_fire_fn(void *arg);
bool probe_arm(struct probe *probe, probe_fire_fn *fire, void *arg);
/* After this call fire() is not called any more, and not running. */
void probe_disarm(struct probe *probe);

/* Stops the probe. The last answer comes soon: PROBE_STOPPED, or what the probe got before it noticed. May be called
 * again. */
void probe_stop(struct probe *probe);

#endif
