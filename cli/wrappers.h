/* Programs that start others without the preload, by their names: they clean the environment, or others start the job.
 */
#ifndef DFLOCK_CLI_WRAPPERS_H
#define DFLOCK_CLI_WRAPPERS_H

#include <stdbool.h>

struct wrapper {
	const char *name;
	bool always;        /* whatever its arguments are */
	const char *with;   /* if not always: with one of these, "-l --login"; NULL: may be by its configuration */
	const char *reason; /* "it ..." */
	const char *instead;
};

/* Is this option one of those that make it clean the environment? */
bool wrappers_cleans_with(const struct wrapper *w, const char *option);

/* path: of the program; its last part counts, also of what it is a link to. NULL: not known to do so. */
const struct wrapper *wrappers_find(const char *path);

#endif
