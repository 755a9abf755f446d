/* See shared.h. */
#include "net/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "wire/memfd.h"

struct shared *shared;

int shared_map(int fd)
{
	void *at = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (at == MAP_FAILED)
		return -errno;
	shared = at;
	return 0;
}

static void shared_init_mutex(pthread_mutex_t *mutex)
{
	pthread_mutexattr_t attributes;

	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(mutex, &attributes);
	pthread_mutexattr_destroy(&attributes);
}

int shared_make(void)
{
	int fd = memfd_make("dflock-net", MFD_CLOEXEC), ret;

	if (fd < 0)
		return -errno;
	ret = ftruncate(fd, sizeof(*shared)) < 0 ? -errno : -posix_fallocate(fd, 0, offsetof(struct shared, calls));
	if (ret == 0)
		ret = shared_map(fd);
	if (ret < 0) {
		close(fd);
		return ret;
	}
	shared_init_mutex(&shared->first);
	shared_init_mutex(&shared->places);
	return fd;
}

void shared_lock(pthread_mutex_t *mutex)
{
	if (pthread_mutex_lock(mutex) == EOWNERDEAD)
		pthread_mutex_consistent(mutex);
}

/* The architecture is no zero, and part of what the kernel writes in NOTIF_RECV. */
static bool shared_is_free(const struct caught *caught)
{
	return __atomic_load_n(&caught->notif.data.arch, __ATOMIC_ACQUIRE) == 0;
}

/* Takes it now: where none is left (vm.overcommit_memory = 2), to touch it would be SIGBUS. EINVAL: Linux before 5.14. */
static bool shared_has_memory(const struct caught *caught)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)caught / page * page;

	return madvise((void *)from, (uintptr_t)(caught + 1) - from, MADV_POPULATE_WRITE) == 0 || errno == EINVAL;
}

/* A place that is used for the first time: until then its page is not there, and costs no memory. */
static struct caught *shared_new(void)
{
	struct caught *caught;

	if (shared->used == SHARED_CALLS)
		return NULL;
	caught = &shared->calls[shared->used];
	if (!shared_has_memory(caught))
		return NULL;
	shared_init_mutex(&caught->mine);
	shared->used++;
	shared_lock(&caught->mine);
	return caught;
}

static bool shared_try(struct caught *caught)
{
	const int ret = pthread_mutex_trylock(&caught->mine);

	if (ret == EOWNERDEAD)
		pthread_mutex_consistent(&caught->mine);
	return ret == 0 || ret == EOWNERDEAD;
}

static bool shared_take(struct caught *caught)
{
	if (!shared_try(caught))
		return false;
	if (shared_is_free(caught))
		return true;
	pthread_mutex_unlock(&caught->mine); /* for shared_inherit() */
	return false;
}

struct caught *shared_find(void)
{
	static unsigned next;
	struct caught *caught = NULL;

	shared_lock(&shared->places);
	for (unsigned i = 0; i < shared->used && !caught; i++) {
		caught = &shared->calls[next++ % shared->used];
		if (!shared_take(caught))
			caught = NULL;
	}
	if (!caught)
		caught = shared_new();
	pthread_mutex_unlock(&shared->places);
	if (caught) {
		memset(&caught->notif, 0, sizeof(caught->notif));
		caught->has_question = false;
		__atomic_store_n(&caught->uid, 0, __ATOMIC_RELAXED);
	}
	return caught;
}

bool shared_count(struct caught *caught, uid_t uid)
{
	unsigned count = 0;

	__atomic_store_n(&caught->uid, uid, __ATOMIC_RELAXED);
	shared_lock(&shared->places);
	for (unsigned i = 0; i < shared->used; i++)
		count += !shared_is_free(&shared->calls[i]) &&
			 __atomic_load_n(&shared->calls[i].uid, __ATOMIC_RELAXED) == uid;
	pthread_mutex_unlock(&shared->places);
	return count <= SHARED_EACH;
}

void shared_free(struct caught *caught)
{
	__atomic_store_n(&caught->notif.data.arch, 0, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&caught->mine);
}

static bool shared_is_left(struct caught *caught, bool busy)
{
	bool left;

	if (!shared_try(caught))
		return busy;
	left = !shared_is_free(caught);
	pthread_mutex_unlock(&caught->mine);
	return left;
}

struct caught *shared_next(unsigned *at, bool busy)
{
	struct caught *caught = NULL;

	shared_lock(&shared->places);
	while (*at < shared->used && !caught) {
		caught = &shared->calls[(*at)++];
		if (!shared_is_left(caught, busy))
			caught = NULL;
	}
	pthread_mutex_unlock(&shared->places);
	return caught;
}

bool shared_inherit(struct caught *caught)
{
	shared_lock(&caught->mine);
	if (!shared_is_free(caught))
		return true;
	pthread_mutex_unlock(&caught->mine);
	return false;
}
