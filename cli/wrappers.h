/* Names of programs that start others without the preload: they clean the environment, or another process starts
 * the job. */
#ifndef DFLOCK_CLI_WRAPPERS_H
#define DFLOCK_CLI_WRAPPERS_H

#include <stdbool.h>

struct wrapper {
	const char *name;
	bool always;      /* whatever its arguments are */
	const char *with; /* if not always: with one of these options, "-l --login"; NULL: its configuration may make it
			     do so */
	const char *reason; /* "it ..." */
	const char *instead;
};

/* Is this one of the options that make it clean the environment? */
bool wrappers_cleans_with(const struct wrapper *w, const char *option);

/* Does it take locks itself, which the preload sees? */
bool wrappers_takes_locks(const struct wrapper *w);

/* path: of the program; its last part counts, and that of the file to which it is a link. NULL: not a known
 * wrapper. */
const struct wrapper *wrappers_find(const char *path);

#endif
