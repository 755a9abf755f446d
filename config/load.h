/* Reading whole files, bounded. Blocks on the file system. */
#ifndef DFLOCK_CONFIG_LOAD_H
#define DFLOCK_CONFIG_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

/*
 * Reads a regular file into *bytes, which the caller frees, with a NUL behind them that *len does not count; *st is the file's. In the
 * directory `dir` it may be no link; anywhere (AT_FDCWD) it may. -EFBIG: more than `max` bytes. -EINVAL: not a regular file. Else -errno.
 */
int load_file(int dir, const char *path, size_t max, char **bytes, size_t *len, struct stat *st);

/* May every user read or write it? A file with a secret in it is refused then. Pure. */
static inline bool load_is_exposed(const struct stat *st)
{
	return st->st_mode & (S_IROTH | S_IWOTH);
}

#endif
