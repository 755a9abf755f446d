/* Prints the keeper's status for people. Fields that are derived from others are added to it. */
#ifndef DFLOCK_CLI_STATUS_H
#define DFLOCK_CLI_STATUS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

/* status_leases.c: this host's leases, each with the processes that hold and await it, and what went wrong with locks; then
 * which hosts hold and await which locks. all: also lock names that only silent hosts have, and all hosts. */
void status_leases_print(const json_t *status, FILE *f);
void status_cluster_print(const json_t *status, bool all, FILE *f);

/* status_page.c: writes a page for a browser, with the state in it. False: no memory. */
bool status_page(const json_t *status, FILE *f);

/* status_watch.c: calls `write` again and again, until q is pressed or a signal comes: on a terminal in place, else one
 * text behind the other. Returns the exit status. */
typedef void status_writer(void *arg, FILE *f);
int status_watch(int seconds, status_writer *write, void *arg);

/* What the store knows of the lock of this name. NULL: nothing. Part of status. */
const json_t *status_find_lock(const json_t *status, const char *name);

#endif
