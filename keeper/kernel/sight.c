/* See sight.h. */
#include "keeper/kernel/sight.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum sight sight_of(pid_t pid)
{
	static const char *const names[] = {"fd", "fdinfo"};
	char path[40];

	if (pid <= 0)
		return SIGHT_GONE;
	for (int i = 0; i < 2; i++) {
		int fd;

		snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, names[i]);
		fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd < 0 && (errno == EACCES || errno == EPERM))
			return kill(pid, 0) == 0 ? SIGHT_SIGNAL : SIGHT_BEYOND;
		if (fd < 0)
			return SIGHT_GONE;
		close(fd);
	}
	return SIGHT_OPEN;
}
