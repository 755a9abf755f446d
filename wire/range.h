/* Plain values that keepers, the table of leases and the store have in common: what is locked, and how hosts are named. */
#ifndef DFLOCK_WIRE_RANGE_H
#define DFLOCK_WIRE_RANGE_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/msg.h"

#define STORE_TOKEN_BYTES 33  /* 32 hex digits and NUL */
#define STORE_HOST_BYTES  128 /* NAME-XXXXXXXXXXXXXXXX, no spaces */
#define STORE_INC_BYTES   128 /* incarnation: hex digits and '-' */
#define STORE_FILE_BYTES  48  /* which inode of the host, "DEV:INO" */

/* What a lease covers: bytes [from, to) of a space. The owner is (host, file): two files of one host under one name
 * exclude each other as two hosts do. */
struct store_range {
	enum wire_space space;
	enum wire_mode mode;
	int64_t from, to;
};

/* A host in the way and its beat as the answer showed it. */
struct store_blocker {
	char host[STORE_HOST_BYTES];
	uint64_t beat;
	int64_t age_ms; /* since its last beat, by the server's clock; may be wrong by a clock step */
	bool waiter;    /* it waits; else it holds a lease */
};

/* A chase: process `pid` of `host`, which waits with `token`, waits through `hops` other waiters for `range` of
 * the name. */
struct store_chase {
	char host[STORE_HOST_BYTES];
	char token[STORE_TOKEN_BYTES];
	int pid;
	uint64_t youngest; /* arrival of the waiter on the way that came last */
	unsigned hops;
	struct store_range range; /* of the message's name */
};

#endif
