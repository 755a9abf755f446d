/* A request to the store for a lease, whose answer is awaited. Loop only. */
#ifndef DFLOCK_KEEPER_AWAITED_H
#define DFLOCK_KEEPER_AWAITED_H

#include <stdbool.h>
#include <stdint.h>

struct lease;
struct store_reply;

/* The argument of the answer's function. */
struct awaited {
	struct lease *lease;
	int64_t sent_ns;
	bool beat; /* the request counts as a beat; false until its sender says so */
};

/* The lease stays until the answer has come (lease->requests). */
struct awaited *awaited_new(struct lease *lease);
/* The answer is here: frees it. Returns the lease, and the time of sending. The lease stays at least until
 * queue_settle(). */
struct lease *awaited_end(void *arg, int64_t *sent_ns);

/* The answer is an error: the lease's timer raises LEASE_CUE_UP in a second. what: it cannot be ... */
void awaited_try_again(struct lease *lease, const char *what, const struct store_reply *reply);

#endif
