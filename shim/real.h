/*
 * The functions that the program would have called without us: the next ones in the search order of the
 * dynamic linker, so that other preloads still work; until real_init() the raw system calls. Callable
 * anywhere, also before constructors. They set errno as usual.
 *
 * real_fcntl and its sisters are called with exactly three arguments, the third a pointer-sized value: that
 * is how libc itself reads it, whatever the command.
 */
#ifndef DFLOCK_SHIM_REAL_H
#define DFLOCK_SHIM_REAL_H

#include <sys/types.h>

typedef int real_fcntl_fn(int fd, int cmd, ...);

extern int (*real_chroot)(const char *path);
extern int (*real_flock)(int fd, int op);
extern int (*real_lockf)(int fd, int cmd, off_t len);
extern int (*real_lockf64)(int fd, int cmd, off64_t len);
extern real_fcntl_fn *real_fcntl;
extern real_fcntl_fn *real_fcntl64;
extern real_fcntl_fn *real___fcntl;
#if __SIZEOF_POINTER__ == 4
extern real_fcntl_fn *real___fcntl_time64;
#endif

/* Once, from the constructor. */
void real_init(void);

#endif
