/*
 * Who holds a kernel lock: a search of /proc for the processes that have locked one of several files.
 *
 * Every descriptor of every process is looked at (/proc/PID/fdinfo has a "lock:" line for each lock that the
 * description or the process has), so one search should serve all files that are asked about. A file is compared by
 * what stat says of the descriptor: the device in the "lock:" line differs from st_dev on btrfs and overlayfs.
 *
 * What it cannot see: processes of other users unless the caller is root (they are counted), a description that has
 * no descriptor left and lives on in a mapping or in a message on its way (hidden.h).
 *
 * Blocking (it reads /proc for as long as that takes, a few microseconds per descriptor), without state of its own:
 * for a worker thread. It starts nothing, opens no file outside /proc and asks no file server for anything.
 */
#ifndef DFLOCK_KEEPER_HOLDERS_H
#define DFLOCK_KEEPER_HOLDERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "wire/msg.h"

#define HOLDER_COMMAND_BYTES 256

/* A file as fstat names it. */
struct holders_file {
	dev_t dev;
	ino_t ino;
};

/* One lock of one process. Of several descriptors with the same lock, one is reported, whichever. */
struct holder {
	size_t file; /* index of the file that was asked about */
	pid_t pid;
	int fd; /* of that process, one of those that have the lock */
	enum wire_space space;
	enum wire_owner owner; /* WIRE_OWNER_PROCESS: a POSIX lock. flock and OFD locks belong to the description */
	enum wire_mode mode;
	int64_t from, to;     /* half open; flock: 0, WIRE_EOF */
	pid_t locker;         /* who took it, and may have ended; -1: OFD locks */
	int64_t started;      /* of the process, Unix time in seconds; 0: unknown */
	uint64_t start_ticks; /* the same as /proc/PID/stat has it: with pid, names the process; 0: unknown */
	const char *command;  /* command line, cut off after HOLDER_COMMAND_BYTES; UTF-8 without control characters */
};

/* holder and what it points to are valid during the call. Anything but 0 ends the search with that value. */
typedef int holders_cb(void *arg, const struct holder *holder);

/*
 * Calls back for every lock on files[0..count), in no particular order. ignore_pid (0: none) is left out: the keeper
 * itself, whose own probe shows up like any other lock. *unseen, unless NULL, is the number of processes that could
 * not be looked into (EACCES). Processes that end meanwhile are no error.
 *
 * 0; what the callback returned if not 0; -errno if /proc cannot be read; -ENOMEM.
 */
int holders_find(const struct holders_file *files, size_t count, pid_t ignore_pid, holders_cb *cb, void *arg,
		 size_t *unseen);

/*
 * From now on no command lines are read in this process; they are "". Reading one waits for the memory of the process that
 * it belongs to, which may be on a file system that does not answer.
 */
void holders_without_commands(void);

/* The same for one file and one process. -EACCES: it may not be looked into; 0 if it has ended. */
int holders_of_process(pid_t pid, const struct holders_file *file, holders_cb *cb, void *arg);

/*
 * Reads one line of fdinfo ("lock:\t1: FLOCK  ADVISORY  WRITE 359 00:13:11691 0 EOF") into space, owner, mode, from,
 * to and locker. False if it is no line about a lock (leases and delegations are none either). Pure.
 */
bool holders_parse_line(const char *line, struct holder *out);

#endif
