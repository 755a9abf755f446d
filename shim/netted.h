/*
 * Under the net (docs/net.md) the kernel hands every lock call to a supervisor. The shim's own calls need none: they have a
 * lease, or are of files that no rule names. So they carry a key in the sixth argument, which lock calls do not use, and the
 * filter lets them pass.
 *
 * The kernel keeps that register, and a program's next lock call may have it still. So the key is bound to the call: it is
 * K ^ fd ^ command, in the low half; and the register is cleared as soon as the call has returned.
 *
 * A program that means to go past the net can read K in its environment. It can also lock nothing, or take the lock of another
 * file: the net is for programs that want to be protected.
 *
 * F_SETLKW, F_OFD_SETLKW and F_LOCK that take a lock are cancellation points, so libc makes them, without a key; the supervisor then
 * asks the keeper once more. To unlock they never wait, and become F_SETLK and F_OFD_SETLK (record.c): a call without the key may end
 * with EINTR though it does not wait (docs/net.md, finding 6).
 */
#ifndef DFLOCK_SHIM_NETTED_H
#define DFLOCK_SHIM_NETTED_H

#include <stdbool.h>

/* The net's key: K as 16 hexadecimal digits. */
#define NETTED_VARIABLE "DFLOCK_NET"

/* After real_init(), once, from the constructor: the real functions for lock calls carry the key from now on. Does nothing without
 * one, or where the calls are not inline (wire/sys.h). */
void netted_init(void);
/* Do they? Then this process is under the net, and must start no keeper, which would be, too. */
bool netted_is_on(void);

#endif
