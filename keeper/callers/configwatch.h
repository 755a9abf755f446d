/*
 * Looks at the configuration file once a second, in a worker: a mount that hangs must not stop the loop. configfile.h
 * judges what a look found. Callers may wait for a look that begins after they asked: `dflock reload`, and programs
 * whose file is in a state that the keeper has not looked at. SIGHUP is the same as `dflock reload`, for service managers and scripts that
 * know no other way: whether it was done, and why not, the log says. Loop only.
 */
#ifndef DFLOCK_KEEPER_CONFIGWATCH_H
#define DFLOCK_KEEPER_CONFIGWATCH_H

#include <stdbool.h>
#include <stdint.h>

struct configfile_look;
struct configwatch_wait;
struct keeper;

#define CONFIGWATCH_SLOW_MS 5000 /* the longest time that a caller waits for a look */

/* The look has ended, and configfile.h knows what it found; NULL: it has not ended within CONFIGWATCH_SLOW_MS. `wait`
 * may be used again. */
typedef void configwatch_cb(struct configwatch_wait *wait, struct configfile_look *look);

/* Embedded in the struct that waits; all 0: it does not wait. */
struct configwatch_wait {
	struct configwatch *watch; /* waits there; NULL: it does not */
	uint64_t look;             /* for the look of this number or a later one */
	bool contents;             /* the look must read the file, in whatever state that is */
	int64_t until_ns;
	configwatch_cb *cb;
	struct configwatch_wait *prev, *next;
};

/* Sets k->configwatch, and unblocks SIGHUP. 0 or -ENOMEM. */
int configwatch_start(struct keeper *k);
/* A look that is under way ends in the loop. No caller may be waiting. */
void configwatch_close(struct keeper *k);

/* Waits for a look that has not begun. cb is called once, never from inside this call, and not after
 * configwatch_leave(). configwatch_leave() does nothing if `wait` does not wait. */
void configwatch_wait(struct keeper *k, struct configwatch_wait *wait, bool contents, configwatch_cb *cb);
void configwatch_leave(struct configwatch_wait *wait);

#endif
