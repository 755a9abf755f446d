/*
 * See getlk.h. A lock of another host is written into the program's memory, and the call succeeds. Else the kernel is to
 * say what local lock is in the way. Nothing is taken, so an answer that gets lost does no harm.
 */
#include "net/getlk.h"

#include <errno.h>

#include "net/behalf.h"
#include "net/decide.h"
#include "net/ground.h"
#include "shim/blocker.h"

/* If this process dies between the two steps, the other one must not take the answer for the question. */
static int getlk_write(struct caught *caught, struct thread *t, const struct lockcall *call, const struct want *want,
		       const struct flock64 *found)
{
	const size_t size = lockcall_form_bytes(call->form);
	unsigned char bytes[LOCKCALL_BYTES] = {0};
	int ret = thread_read(t, call->at, bytes, size);

	if (ret == 0)
		ret = thread_may_write(t, call->at, size);
	if (ret == 0)
		ret = lockcall_print(call->form, found, bytes);
	if (ret < 0)
		return ret;
	caught->question = want->lock;
	__atomic_store_n(&caught->has_question, true, __ATOMIC_RELEASE);
	return thread_write(t, call->at, bytes, size);
}

int getlk(struct caught *caught, struct thread *t, const struct lockcall *call, struct want *want, bool elsewhere,
	  struct protect_look *look)
{
	struct flock64 found;
	struct behalf behalf;
	struct ask ask;
	int ret = ground_ask(want->fd, look, elsewhere);

	if (ret == GROUND_KERNEL)
		return DECIDE_CONTINUE;
	if (ret != 0)
		return ret;
	want->intent.nonblock = true; /* a test never waits */
	ret = behalf_begin(&behalf, t, &ask);
	if (ret == 0)
		ret = blocker_ask(&ask, want->fd, &want->intent, look, &found);
	behalf_end(&behalf);
	if (ret <= 0)
		return ret < 0 ? ret : DECIDE_CONTINUE;
	return getlk_write(caught, t, call, want, &found);
}
