/*
 * The id of a host in the store: "NAME-XXXXXXXXXXXXXXXX". NAME is for people. The first four hex digits are the same for all
 * keepers of one machine since it was started, containers included; the other twelve are random: two keepers of one
 * machine are two hosts. Any thread.
 */
#ifndef DFLOCK_KEEPER_HOSTID_H
#define DFLOCK_KEEPER_HOSTID_H

#include <stdbool.h>

#include "store/store.h"

/* The number of this machine's start, 16 bits. */
unsigned hostid_machine(void);

/* A new one, with the number of this machine's start. 0 or -errno. */
int hostid_make(const char *name, unsigned machine, char out[STORE_HOST_BYTES]);

/* Are these keepers of one machine? True also for one in 65,536 of other machines. Pure. */
bool hostid_same_machine(const char *a, const char *b);

#endif
