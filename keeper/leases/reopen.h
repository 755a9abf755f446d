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

#endif
