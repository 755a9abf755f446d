#include "shim/blocker.h"

#include <errno.h>
#include <stdbool.h>
#include <unistd.h>

#include "shim/call.h"

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
	*t->found = (struct flock64){
		.l_type = reply->mode == WIRE_SHARED ? F_RDLCK : F_WRLCK,
		.l_whence = SEEK_SET,
		.l_start = reply->from,
		.l_len = intent_len(reply->from, intent_last(reply->to)),
		.l_pid = reply->pid,
	};
	t->blocked = true;
	return 0;
}

/* Does the page show a lease of this host for the wanted lock? Then no other host has a lock there that conflicts. */
static bool blocker_is_leased(const struct intent *want, const struct protect_look *look)
{
	const struct leases_range wanted = {
		.from = want->from, .to = want->to, .space = want->space, .mode = want->mode};

	return look->page && leases_shown(&look->page->leases, &look->file, &wanted) && protect_page_is_near(look);
}

__attribute__((noinline)) int blocker_ask(const struct ask *behalf, int fd, const struct intent *want,
					  struct protect_look *look, struct flock64 *found)
{
	static const struct call_kind blocker_kind = {.op = WIRE_TEST, .answer = blocker_take_answer};
	struct test_call t = {.call = {.kind = &blocker_kind, .fd = fd, .want = want, .look = look, .ask = *behalf},
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
