/* See shared.h. */
#include "net/shared.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct shared *shared;

int shared_map(int fd)
{
	void *at = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (at == MAP_FAILED)
		return -errno;
	shared = at;
	return 0;
}

int shared_make(void)
{
	int fd = memfd_create("dflock-net", MFD_CLOEXEC), ret;

	if (fd < 0)
		return -errno;
	ret = ftruncate(fd, sizeof(*shared)) < 0 ? -errno : shared_map(fd);
	if (ret < 0)
		close(fd);
	return ret < 0 ? ret : fd;
}

/* Written by the kernel in NOTIF_RECV, and by shared_free(). */
static bool shared_is_free(const struct caught *caught)
{
	return __atomic_load_n(&caught->notif.pid, __ATOMIC_ACQUIRE) == 0;
}

struct caught *shared_find(void)
{
	static unsigned next;

	for (unsigned i = 0; i < SHARED_CALLS; i++) {
		struct caught *caught = &shared->calls[next++ % SHARED_CALLS];

		if (shared_is_free(caught)) {
			memset(caught, 0, sizeof(*caught));
			return caught;
		}
	}
	return NULL;
}

void shared_free(struct caught *caught)
{
	__atomic_store_n(&caught->notif.pid, 0, __ATOMIC_RELEASE);
}

struct caught *shared_next(unsigned *at)
{
	while (*at < SHARED_CALLS) {
		struct caught *caught = &shared->calls[(*at)++];

		if (!shared_is_free(caught))
			return caught;
	}
	return NULL;
}
