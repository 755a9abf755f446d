/*
 * dflock wrap: what puts a service or the jobs of a crontab below dflock: a drop-in for systemd, or the changed crontab as a diff. It
 * changes nothing without --write.
 */
#ifndef DFLOCK_CLI_WRAP_H
#define DFLOCK_CLI_WRAP_H

#include <limits.h>
#include <stdbool.h>

/* What the command line says. */
struct wrap {
	const char *unit, *crontab; /* one of them */
	const char *require;        /* NULL: without; "": no FILE */
	bool net, write;
	char run[2 * PATH_MAX + 64]; /* "PATH/dflock run ... --" */
};

/* Is the command below dflock already? */
bool wrap_is_below(const char *command);

/* Prints or writes the drop-in of w->unit. Returns an exit status (cli.h); what is wrong is said. */
int wrap_service(const struct wrap *w);

/* Runs a program with these descriptors (-1: ours). Its exit status; 127 with a line if it cannot be run. */
int wrap_execute(char *const words[], int in, int out);
/* A descriptor at the beginning of this text, or with NULL of an empty file; the caller closes it. -1 with a line. */
int wrap_memfd(const char *text);
/* What a program prints; the caller frees it. NULL with a line, the program's own if it fails. */
char *wrap_output(char *const words[]);

#endif
