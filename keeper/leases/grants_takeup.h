/* Grants that an earlier keeper has left (grants.h has the argument why they count). */
#ifndef DFLOCK_KEEPER_GRANTS_TAKEUP_H
#define DFLOCK_KEEPER_GRANTS_TAKEUP_H

struct keeper;

/* The leases of an earlier keeper have been taken up: what it granted under them counts. Start-up, before anything is granted. */
void grants_takeup(struct keeper *k);

#endif
