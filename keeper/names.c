/* See main.h. */
#include "keeper/main.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "wire/rundir.h"

#define PRIVATE_MODE 0700
#define SYSTEM_MODE  01777

/* Nobody else can have made it: the runtime directory is the keeper's user's alone. */
static char *names_open(int dir_fd, mode_t mode)
{
	int fd = openat(dir_fd, NAMES_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), error;
	struct stat st;
	char link[64], *path = NULL;

	if (fd < 0)
		return NULL;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	if (fstat(fd, &st) == 0 && st.st_uid != geteuid())
		errno = EPERM;
	else if (fchmod(fd, mode) == 0) /* mkdir() goes by the umask */
		path = realpath(link, NULL);
	error = errno;
	close(fd);
	errno = error;
	return path;
}

char *names_make(int dir_fd, bool system)
{
	if (mkdirat(dir_fd, NAMES_DIR, PRIVATE_MODE) < 0 && errno != EEXIST)
		return NULL;
	return names_open(dir_fd, system ? SYSTEM_MODE : PRIVATE_MODE);
}
