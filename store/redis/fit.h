/*
 * Is this a server that dflock's promises hold on? Decided from what INFO says. Pure.
 *
 * What is needed of a server: each script runs as one step, sees all that the scripts before it wrote, and may use keys that
 * follow from its arguments; one server at a time takes writes; INFO replication, inside a script too, shows a replication id
 * that is new whenever the server may have lost what it knew (store/rules/common.lua); WAIT counts replicas that have the
 * write. A server that takes Redis's protocol but cannot give that grants one lock twice, and no test of a keeper would
 * find out: so it is refused by name.
 */
#ifndef DFLOCK_STORE_FIT_H
#define DFLOCK_STORE_FIT_H

#include <stdbool.h>

#include "store/redis/explain.h"

/* Does the answer to INFO show a server that will do? False: one line, for people, is in `why`. */
bool fit_server(const char *info, char why[REPLY_LINE_BYTES]);

/* Is it a node of a Redis Cluster? */
bool fit_is_cluster(const char *info);

/* For people: "7.0.15", "7.2.4 (valkey 8.1.1)"; and whether it knows the flags of scripts. For an `info` that fits. */
void fit_version(const char *info, char version[STORE_VERSION_BYTES], bool *redis7);

/* Does the answer to INFO show the replication id that an incarnation is made of? False: one line is in `why`. */
bool fit_replication(const char *info, char why[REPLY_LINE_BYTES]);

#endif
