/* See awaited.h. */
#include "keeper/leases/awaited.h"

#include <stdlib.h>

#include "keeper/clock.h"
#include "keeper/leases/locks.h"
#include "keeper/log.h"

#define RETRY_MS 1000

struct awaited *awaited_new(struct lease *lease)
{
	struct awaited *awaited = malloc(sizeof(*awaited));

	if (!awaited)
		abort(); /* the lease could not be renewed or released: a fresh keeper does better */
	awaited->lease = lease;
	awaited->sent_ns = clock_now_ns();
	awaited->beat = false;
	lease->requests++;
	return awaited;
}

struct lease *awaited_end(void *arg, int64_t *sent_ns)
{
	struct awaited *awaited = arg;
	struct lease *lease = awaited->lease;

	*sent_ns = awaited->sent_ns;
	free(awaited);
	lease->requests--;
	return lease;
}

void awaited_try_again(struct lease *lease, const char *what, const struct store_reply *reply)
{
	if (!lease->warned)
		log_about(LINE_STORE_REFUSED, &(struct log_about){.lock = lease->lock->file->name},
			  "%s: cannot be %s: %s; trying again", lease->lock->file->name, what, reply->error);
	lease->warned = true;
	lease_start_timer(lease, RETRY_MS);
}
