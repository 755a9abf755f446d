/* A folder of the test's own on a tmpfs, `base`: a fixture calls base_make(), and at the end base_remove(). */
#ifndef DFLOCK_TESTS_UNIT_BASE_FOLDER_H
#define DFLOCK_TESTS_UNIT_BASE_FOLDER_H

#include <limits.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "tests/unit/suite.h"

static char base[SUITE_PATH_BYTES];

/* A path below base; valid until four more were asked for. */
static inline const char *in_base(const char *name)
{
	static char paths[4][PATH_MAX];
	static unsigned next;
	char *path = paths[next++ % 4];
	snprintf(path, PATH_MAX, "%s/%s", base, name);
	return path;
}

static inline void base_make(void) { suite_make_folder(base, "/dev/shm"); }

static inline void base_remove(void)
{
	char command[128];
	snprintf(command, sizeof(command), "rm -rf '%s'", base);
	ck_assert_int_eq(system(command), 0);
}

static inline int base_open(void)
{
	int dir = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(dir, 0);
	return dir;
}

/* A socket for datagrams to `name`, a path or "@" with an abstract name, which a test reads without waiting. */
static inline int listen_at(const char *name)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name) + (*name == '/'));
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	memcpy(address.sun_path, name, strlen(name));
	if (*name == '@')
		address.sun_path[0] = '\0';
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, size), 0);
	return fd;
}

static inline void make_file(const char *path)
{
	int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	close(fd);
}

#endif
