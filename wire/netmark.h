/*
 * How a search for the holders of locks recognises a supervisor of the net (net/supervisor.h). While a call waits, the supervisor has
 * a copy of the thread's descriptor, and with it the lock that the description has already; but no program relies on the copy.
 *
 * Both must be so: the name of the process, and that this descriptor listens to a seccomp filter. So no other program looks like one
 * by accident.
 */
#ifndef DFLOCK_WIRE_NETMARK_H
#define DFLOCK_WIRE_NETMARK_H

#define NETMARK_NAME     "dflock-net"
#define NETMARK_LISTENER 3
#define NETMARK_LINK     "anon_inode:seccomp notify" /* what /proc/PID/fd says of it */

#endif
