/* See getlk.h. */
#include "keeper/kernel/getlk.h"

#include <errno.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#define GETLK_TRIES    20 /* a probe that waited has the lock for a moment (probe.c) */
#define GETLK_PAUSE_NS 1000000

struct flock getlk_flock(enum wire_mode mode, int64_t from, int64_t to)
{
	return (struct flock){.l_type = mode == WIRE_SHARED ? F_RDLCK : F_WRLCK,
			      .l_whence = SEEK_SET,
			      .l_start = from,
			      .l_len = to == WIRE_EOF ? 0 : to - from};
}

int getlk_ask(int fd, const struct store_range *wanted, struct store_range *found)
{
	struct flock lock = getlk_flock(wanted->mode, wanted->from, wanted->to);

	if (fcntl(fd, F_OFD_GETLK, &lock) != 0)
		return errno == EAGAIN ? -EIO : -errno;
	if (lock.l_type == F_UNLCK)
		return 0;
	if (lock.l_pid == getpid()) /* a probe that waited takes the lock for a moment, and is about to report that */
		return -EAGAIN;
	*found = (struct store_range){.space = WIRE_RECORD,
				      .mode = lock.l_type == F_RDLCK ? WIRE_SHARED : WIRE_EXCLUSIVE,
				      .from = lock.l_start,
				      .to = lock.l_len ? lock.l_start + lock.l_len : WIRE_EOF};
	return 1;
}

int getlk_ask_again(int fd, const struct store_range *wanted, struct store_range *found)
{
	static const struct timespec pause = {.tv_nsec = GETLK_PAUSE_NS};
	int ret = -EAGAIN;

	for (int tries = 0; tries < GETLK_TRIES && ret == -EAGAIN; tries++) {
		if (tries)
			nanosleep(&pause, NULL);
		ret = getlk_ask(fd, wanted, found);
	}
	return ret;
}
