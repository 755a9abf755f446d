#include "shim/verbose.h"

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "shim/ask.h"
#include "shim/note.h"
#include "shim/settings.h"
#include "shim/sys.h"

#define AGAIN_NS    1000000000
#define PATIENCE_NS (5 * INT64_C(1000000000))

/* Was this file asked about just now? It does no harm if two threads both ask. */
static bool verbose_is_early(const struct protect_look *look)
{
	static int64_t last_ns;
	static uint64_t last_ino;
	int64_t now = sys_clock_ns(CLOCK_MONOTONIC_COARSE);

	if (__atomic_load_n(&last_ino, __ATOMIC_RELAXED) == look->file.ino &&
	    now - __atomic_load_n(&last_ns, __ATOMIC_RELAXED) < AGAIN_NS)
		return true;
	__atomic_store_n(&last_ino, look->file.ino, __ATOMIC_RELAXED);
	__atomic_store_n(&last_ns, now, __ATOMIC_RELAXED);
	return false;
}

/* One attempt with one keeper: a keeper of an older version closes the connection. */
void verbose_refused(int fd, const struct intent *want, struct protect_look *look)
{
	const struct settings *s = settings_get();
	struct wire_reply reply;
	struct ask ask = {.thread = 0};
	int ret;

	if (!s || !s->verbose || verbose_is_early(look) || protect_ask(fd, look) != PROTECT_ASK)
		return;
	if (ask_open(&ask, &look->by, want, fd, 0) < 0)
		return;
	ask.deadline_ns = sys_clock_ns(CLOCK_MONOTONIC) + PATIENCE_NS;
	ret = ask_send(&ask, &look->by, WIRE_HELD, want, false);
	if (ret == 0)
		ret = ask_receive(&ask, &reply);
	if (ret == 0 && reply.verdict == WIRE_OK && *reply.reason)
		note_line(fd, reply.reason);
	ask_close(&ask);
}
