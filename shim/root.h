/*
 * Programs that call chroot(). In the new root directory there is mostly no configuration, no page, no keeper and no
 * /proc. So what a later lock call must know is found out before the call of chroot(), while all of that is there.
 * Callable wherever flock() is.
 */
#ifndef DFLOCK_SHIM_ROOT_H
#define DFLOCK_SHIM_ROOT_H

#include <stdbool.h>

#include "shim/settings.h"

/* chroot(path), after noting what later calls must know. errno is that of chroot(); kept if it succeeds. */
int root_change(const char *path);

/* Is "/" another directory than at the program's start? */
bool root_was_left(const struct settings *s);

/*
 * Where root_was_left() and the configuration cannot be found: is the file protected, as far as this can be known? Goes
 * by the rules that the page has now. `name`: the file's, as the kernel shows it in this root; NULL: there is no /proc.
 * PAGE_SAYS_NOTHING: this cannot be known here.
 */
enum page_answer root_ask(int fd, const char *name);

#endif
