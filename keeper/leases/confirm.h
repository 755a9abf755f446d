/*
 * The question to the store whether token and fence of an unsure lease stand; for a lease that the store has forgotten, the
 * request to put it back. Loop only.
 */
#ifndef DFLOCK_KEEPER_CONFIRM_H
#define DFLOCK_KEEPER_CONFIRM_H

struct keeper;
struct lease;

/* Part of struct member. */
struct confirms {
	struct lease *waiting; /* CONFIRM_WAITS */
	unsigned sent;         /* not answered */
};

/* Asks when no event waits (confirm_send_waiting()). A question that is under way is repeated when it is answered: its
 * answer is too old. LEASE_CUE_STANDS, _UNSHRUNK or _GONE follows, or LEASE_CUE_UP after an error. */
void lease_send_confirm(struct lease *lease);
/* Sends questions that wait, a few at a time: queue_work.send(). Not before waiting events are applied: one may say that
 * the lease has gone. */
void confirm_send_waiting(struct keeper *k);

#endif
