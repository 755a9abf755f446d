/*
 * What a service manager is told, by the protocol of sd_notify(3): datagrams to the socket that NOTIFY_SOCKET names. Said
 * are READY=1 (programs are served), STOPPING=1 and WATCHDOG=1. The keeper's parent sends them, since it is the main
 * process of the service: the manager need believe no other process (NotifyAccess=main).
 *
 * Nothing here waits: a datagram for which the manager has no room is not sent. Without a service manager, and for any
 * other kind of NOTIFY_SOCKET (vsock), nothing is sent.
 */
#ifndef DFLOCK_KEEPER_MANAGER_H
#define DFLOCK_KEEPER_MANAGER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

struct manager {
	struct sockaddr_un address;
	socklen_t address_size;
	int fd;               /* -1: no manager */
	int64_t watchdog_ns;  /* it must hear of this process once in this time; 0: need not */
	int64_t told_ns;      /* when it was told WATCHDOG=1 last */
	bool ready, stopping; /* it was told so */
};

/*
 * Takes NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID out of the environment: no process that this one starts may speak for
 * it. With `ours`, the manager that they name is told of this process; else they are another service's, whose program
 * started this one. First thing in main(), before there are threads. manager_end() closes the socket.
 */
void manager_begin(struct manager *m, bool ours);
void manager_end(struct manager *m);

/* Once each, however often they are called; again at the next call if there was no room. */
void manager_ready(struct manager *m);
void manager_stopping(struct manager *m);

/* This process runs: tells so if a quarter of watchdog_ns is over. now_ns: clock_now_ns(). */
void manager_alive(struct manager *m, int64_t now_ns);
/* The same, from work that may take long: of the manager that was begun last, if it was not ended. */
void manager_tick(void);
/* How long this process may wait before it calls manager_alive() again: at most wait_ms. */
int manager_wait_ms(const struct manager *m, int wait_ms);

#endif
