/*
 * Programs that call chroot(). In the new root directory there is mostly no configuration, no page, no keeper and no
 * /proc: what a later lock call must know is found out before, while all of that is there. Callable wherever flock()
 * is.
 */
#ifndef DFLOCK_SHIM_ROOT_H
#define DFLOCK_SHIM_ROOT_H

#include <stdbool.h>

#include "shim/settings.h"

/* chroot(path), with what is to be noted before. errno as chroot() leaves it; kept if it succeeds. */
int root_change(const char *path);

/* Is "/" another directory than when the program started? */
bool root_was_left(const struct settings *s);

enum root_says {
	ROOT_SAYS_NO,      /* not protected */
	ROOT_SAYS_YES,     /* protected */
	ROOT_SAYS_NOTHING, /* it cannot be known here */
};

/*
 * After root_was_left(), and where the configuration is not there: is the file protected, as far as can be known? By
 * the rules as the keeper has them now. `name`: as the kernel shows it in this root; NULL: there is no /proc.
 */
enum root_says root_ask(int fd, const char *name);

#endif
