/* F_GETLK and its kin: is a lock of another host in the way? */
#ifndef DFLOCK_NET_GETLK_H
#define DFLOCK_NET_GETLK_H

#include "net/lockcall.h"
#include "net/shared.h"
#include "net/thread.h"
#include "net/want.h"
#include "shim/protect.h"

/* An answer as decide() gives it; -ENOLCK after a line; another -errno: a look has failed. *look is that of ground_look(), and *want is
 * resolved. */
int getlk(struct caught *caught, struct thread *t, const struct lockcall *call, struct want *want, bool elsewhere,
	  struct protect_look *look);

#endif
