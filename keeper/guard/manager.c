/* See manager.h. */
#include "keeper/guard/manager.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "keeper/clock.h"
#include "keeper/log.h"

#define NS_PER_US        1000ll
#define WATCHDOG_MOST_US (INT64_MAX / NS_PER_US)
#define WATCHDOG_PARTS   4 /* it is told so often in the time that it grants */

static struct manager *manager_ours; /* NULL: none, or it was ended */

/* A path, or with "@" an abstract name. False: neither, or too long. */
static bool manager_address(struct manager *m, const char *name)
{
	size_t len = strlen(name);

	if ((*name != '/' && *name != '@') || len < 2 || len >= sizeof(m->address.sun_path))
		return false;
	m->address.sun_family = AF_UNIX;
	memcpy(m->address.sun_path, name, len);
	m->address_size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
	if (*name == '@')
		m->address.sun_path[0] = '\0';
	else
		m->address_size++; /* the zero at its end */
	return true;
}

/* A positive number, or 0. */
static int64_t manager_number(const char *text)
{
	char *end;
	long long number;

	if (!text || *text < '0' || *text > '9')
		return 0;
	errno = 0;
	number = strtoll(text, &end, 10);
	return *end || errno ? 0 : number;
}

static int64_t manager_watchdog_ns(void)
{
	const char *pid = getenv("WATCHDOG_PID");
	int64_t us = manager_number(getenv("WATCHDOG_USEC"));

	if ((pid && manager_number(pid) != getpid()) || us > WATCHDOG_MOST_US)
		return 0;
	return us * NS_PER_US;
}

void manager_begin(struct manager *m, bool ours)
{
	static const char *const names[] = {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"};
	const char *name = ours ? getenv(names[0]) : NULL;

	*m = (struct manager){.fd = -1};
	manager_ours = m;
	if (name && manager_address(m, name)) {
		m->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		m->watchdog_ns = manager_watchdog_ns();
	}
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		unsetenv(names[i]);
}

void manager_end(struct manager *m)
{
	if (m->fd >= 0)
		close(m->fd);
	m->fd = -1;
	manager_ours = NULL;
}

static bool manager_tell(const struct manager *m, const char *what)
{
	size_t len = strlen(what);

	if (m->fd < 0)
		return false;
	if (sendto(m->fd, what, len, MSG_DONTWAIT | MSG_NOSIGNAL, (const struct sockaddr *)&m->address,
		   m->address_size) == (ssize_t)len)
		return true;
	log_debug("the service manager was not told %s: %s", what, strerror(errno));
	return false;
}

void manager_ready(struct manager *m)
{
	if (!m->ready)
		m->ready = manager_tell(m, "READY=1");
}

void manager_stopping(struct manager *m)
{
	if (!m->stopping)
		m->stopping = manager_tell(m, "STOPPING=1");
}

void manager_alive(struct manager *m, int64_t now_ns)
{
	if (m->watchdog_ns && now_ns - m->told_ns >= m->watchdog_ns / WATCHDOG_PARTS && manager_tell(m, "WATCHDOG=1"))
		m->told_ns = now_ns;
}

void manager_tick(void)
{
	if (manager_ours)
		manager_alive(manager_ours, clock_now_ns());
}

int manager_wait_ms(const struct manager *m, int wait_ms)
{
	int64_t most_ms = m->watchdog_ns / WATCHDOG_PARTS / NS_PER_MS;

	return m->fd < 0 || !m->watchdog_ns || most_ms > wait_ms ? wait_ms : (int)most_ms + 1;
}
