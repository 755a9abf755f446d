/*
 * Runs an operator's command with a text on its standard input, one at a time. The command cannot delay the loop: the
 * loop starts the keeper's own program anew (`dflockd --run-event`, runevent.c), and that starts the command, ends it
 * when its time is over, and says what went wrong. So it does not matter where the command is, whether it reads its
 * input, and whether it ends. If one cannot even be killed, because it waits in the kernel for a mount that does not
 * answer, none is started any more until it has ended.
 *
 * Loop only.
 */
#ifndef DFLOCK_KEEPER_HOOK_H
#define DFLOCK_KEEPER_HOOK_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <uv.h>

#define HOOK_RUN_EVENT  "--run-event" /* the program's first word; the limit in ms and the command follow */
#define HOOK_LIMIT_MS   10000         /* how long a command, and what it started, may run */
#define HOOK_SAID_BYTES 512

/* It has ended, and another one may be started. said: one line on what went wrong; "": nothing did. */
typedef void hook_cb(void *arg, const char *said);

struct hook {
	uv_loop_t *loop;
	hook_cb *done;
	void *arg;
	int64_t limit_ms;
	pid_t pid; /* of `dflockd --run-event`; 0: none runs */
	int fd;    /* ends when that has ended */
	uv_poll_t end;
	uv_timer_t reap;
	char said[HOOK_SAID_BYTES];
	size_t said_len;
};

void hook_init(struct hook *hook, uv_loop_t *loop, hook_cb *done, void *arg);
/* Closes its handles. A command that runs goes on, until its time is over; done() is not called any more. */
void hook_stop(struct hook *hook);

static inline bool hook_is_running(const struct hook *hook)
{
	return hook->pid != 0;
}

/* None may be running. words: the command, and NULL. env: its environment, "NAME=value", and NULL; runevent.c adds to it.
 * 0 or -errno; done() is called only after 0, and never from inside this call. */
int hook_start(struct hook *hook, char *const words[], char *const env[], const char *text, size_t len);

/*
 * Has this process ever started another one? The other one has copies of all descriptors until exec() has closed them, and
 * that may be some time after posix_spawn() has returned. While there is a copy, close() does not take a descriptor out of
 * epoll.
 *
 * The processes that the keeper gives descriptors to on purpose (fronts.h) do not count, nor does the door, which the keeper
 * forks before it has any connection. Loop only.
 *
 * copies_begin(): before a process is started. copies_are_possible(): false: no process has copies.
 */
void copies_begin(void);
bool copies_are_possible(void);

#endif
