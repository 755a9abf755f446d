/*
 * Files whose leases were taken up from the table, and of which the keeper has no description: opens them again, and
 * finds out without a description that no process uses them.
 *
 * A lease without a description is confirmed, renewed and held like others. But it cannot be probed: it goes back only
 * when the kernel's list of locks (refind.h), read after the lease was closed and its pins had ended, has no lock on
 * the file. If the list cannot tell, the lease stays, and status and log say what it waits for. A caller that locks the
 * file brings a description.
 *
 * What may block (resolving a path, opening a file that is not on a local file system) is a worker's job, with the bound of
 * workers.h for the file's device. Loop only.
 */
#ifndef DFLOCK_KEEPER_REOPEN_H
#define DFLOCK_KEEPER_REOPEN_H

#include <stdbool.h>

#include "keeper/guard/table.h"

struct file;
struct keeper;
struct lease;
struct reopen;

/* Part of struct keeper. */
struct reopens {
	struct reopen *searched; /* files that wait for a search of all processes */
	bool searching;
};

/* Tries to open the file in the background, unless that is under way: by its path, then through any process that has it
 * open. */
void reopen_file(struct file *file);

/* The lease is closed, its pins have ended, and its file has no description to probe it with: LEASE_CUE_FREE, _IN_USE,
 * _KEPT or _STOPPED follows. */
void reopen_to_probe(struct lease *lease);

/* What keeps the file from being opened, for people; NULL: nothing, or it is not known yet. */
const char *reopen_trouble(const struct file *file);

/* The file is freed. */
void reopen_forget(struct file *file);

/*
 * --- takeup.c: the leases of a keeper that died are taken up from the table. This happens before the loop runs, so it waits for no file
 * system: the keeper has to renew what it takes up, and one mount that hangs must not prevent that ---
 */

/* table_take_up()'s callback: makes a lease of one entry. The lease stays closed until the store confirms it, or goes
 * back. arg: the keeper. Opens the lease's file at once if that cannot block, else in the background. */
bool takeup_entry(void *arg, const struct table_entry *entry);

#endif
