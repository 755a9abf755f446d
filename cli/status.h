/* Prints the keeper's status for people. */
#ifndef DFLOCK_CLI_STATUS_H
#define DFLOCK_CLI_STATUS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

struct status_options {
	bool json;
	bool all; /* also lock names that only silent hosts have, and all hosts */
	bool html;
	bool check;
	bool expect_keeper; /* with check */
	int watch_s;        /* 0: once */
};

/* status_leases.c: this host's leases, and those that were lost, each with the processes that hold and await it. */
void status_leases_print(const json_t *leases, FILE *f);
void status_leases_print_lost(const json_t *lost, FILE *f);

/* Locks that are held too long. */
void status_toolong_print(const json_t *too_long, FILE *f);

/* Locks that were taken past dflock. */
void status_past_print(const json_t *status, FILE *f);

/* "10-14" for the half-open range of a lease or waiter, "10-end", "whole file" for flock. */
#define STATUS_RANGE_BYTES 48
const char *status_leases_range(const json_t *lease, char out[STATUS_RANGE_BYTES]);
/* A cell, "flock exclusive, whole file". */
struct grid;
void status_leases_add_range(struct grid *grid, const json_t *row);

/* status_check.c: one line for monitoring systems. Returns 0, 1 (warning) or 2 (critical). */
int status_check(const json_t *status, FILE *f);
/* The beginning of such a line, without its end. `why` may be hostile text. */
void status_check_line(int level, const char *why, FILE *f);

/* status_page.c: writes a page for a browser, with the state in it. False: no memory. */
bool status_page(const json_t *status, FILE *f);

/* status_watch.c: calls `write` again and again, until q is pressed or a signal comes: on a terminal in place, else one
 * text behind the other. Returns the exit status. */
typedef void status_writer(void *arg, FILE *f);
int status_watch(int seconds, status_writer *write, void *arg);

/* status_cluster.c: the part about other hosts, {"hosts": .., "locks": ..}. own: this host. */
void status_cluster_print(const json_t *cluster, const char *own, bool all, FILE *f);

/* What the store knows of the lock of this name. NULL: nothing. Part of status. */
const json_t *status_find_lock(const json_t *status, const char *name);

#endif
