
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

#include "shim/ask.h"
#include "shim/call.h"
#include "shim/note.h"
#include "shim/settings.h"
#include "wire/sys.h"

#define AGAIN_NS    1000000000
#define PATIENCE_NS (5 * INT64_C(1000000000))

/* Was this file asked about just now? It does no harm if two threads both ask. */
static bool blocker_is_early(const struct protect_look *look)
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

bool blocker_tells(void)
{
	const struct settings *s = settings_get();

	return s && s->verbose;
}

/* One attempt with one keeper: a keeper of an older version closes the connection. */
int blocker_tell(const struct call *c)
{
	struct wire_reply reply;
	struct ask ask = {.thread = c->ask.thread,
			  .call = c->ask.call,
			  .command = c->ask.command,
			  .connect = c->ask.connect,
			  .over = c->ask.over,
			  .as = c->ask.as};
	int ret;

	if (!blocker_tells() || blocker_is_early(c->look) || protect_ask(c->fd, c->look) != PROTECT_ASK)
		return 0;
	ret = ask_open(&ask, &c->look->by, c->want, c->fd, 0);
	if (ret < 0)
		return ret == -EINTR ? ret : 0;
	ask.deadline_ns = sys_clock_ns(CLOCK_MONOTONIC) + PATIENCE_NS;
	ask.cancellable = false; /* nothing would close it */
	ret = ask_send(&ask, &c->look->by, ask_request(WIRE_HELD, c->want, false), c->fd);
	if (ret == 0)
		ret = ask_receive(&ask, &reply);
	if (ret == 0 && reply.verdict == WIRE_OK && *reply.reason)
		note_line(c->fd, reply.reason);
	ask_close(&ask);
	return ret == -EINTR ? ret : 0;
}

struct test_call {
	struct call call; /* first: it is what the operation gets */
	bool blocked;
	struct flock64 *found;
};

static int blocker_take_answer(struct call *c, const struct wire_reply *reply)
{
	struct test_call *t = (struct test_call *)c;

	switch (reply->verdict) {
	case WIRE_GRANTED:
	case WIRE_NOT_PROTECTED:
		return 0;
	case WIRE_WOULD_BLOCK:
		break;
	default:
		return -EPROTO;
	}
	if (reply->mode >= WIRE_MODES || reply->from < 0 || reply->to <= reply->from)
		return -EPROTO;
	*t->found = intent_lock(reply->mode == WIRE_SHARED ? F_RDLCK : F_WRLCK, reply->from, intent_last(reply->to));
	t->found->l_pid = reply->pid;
	t->blocked = true;
	return 0;
}

/* Does the page show a lease of this host for the wanted lock? Then no other host has a lock there that conflicts. */
static bool blocker_is_leased(const struct intent *want, const struct protect_look *look)
{
	const struct leases_range wanted = intent_wanted(want);
	const struct leases_slot *slot = look->page ? leases_find(&look->page->leases, &look->file, &wanted) : NULL;

	return slot && leases_stand(&look->page->leases, slot, &look->file, &wanted) && protect_page_is_near(look);
}

__attribute__((noinline)) int blocker_ask(const struct ask *behalf, int fd, const struct intent *want,
					  struct protect_look *look, struct flock64 *found)
{
	struct test_call t = {
		.call = {.answer = blocker_take_answer, .fd = fd, .want = want, .look = look, .ask = *behalf},
		.found = found};
	int ret = call_run(&t.call);

	return ret < 0 ? ret : t.blocked;
}

int blocker_find(int fd, const struct intent *want, struct protect_look *look, struct flock64 *found)
{
	static const struct ask own;

	if (blocker_is_leased(want, look))
		return 0;
	switch (protect_ask(fd, look)) {
	case PROTECT_NO:
		return 0;
	case PROTECT_REFUSED:
		return -ENOLCK;
	case PROTECT_ASK:
		break;
	}
	return blocker_ask(&own, fd, want, look, found);
}
