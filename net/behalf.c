/*
 * See decide.h. The effective ids of one thread can be set by the system calls themselves (libc's functions set those of all threads).
 * The thread that connects is made for that, and ends then: with a user's effective id, it may be slowed down by processes of this user
 * (setpriority(), sched_setaffinity()), which compare that. Signals and ptrace go by the real and the saved id, which stay root's.
 */
#include "net/decide.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "procfs/procfs.h"
#include "wire/sys.h"

#define BEHALF_STACK    (64 << 10)
#define BEHALF_PAUSE_NS 10000000
#define BEHALF_TRIES    3000 /* 30 s: the keeper has much to do */

/* --- who T is --- */

static const char *behalf_line(const char *status, const char *name)
{
	const char *at = strstr(status, name);

	return at ? at + strlen(name) : NULL;
}

static int behalf_read_groups(struct behalf *b, const char *line)
{
	const char *end = strchrnul(line, '\n');
	char *next;

	b->groups = malloc(((size_t)(end - line) / 2 + 1) * sizeof(*b->groups)); /* a digit and a blank for each */
	if (!b->groups)
		return -ENOMEM;
	for (;; line = next) {
		unsigned long group = strtoul(line, &next, 10);

		if (next == line || next > end)
			return 0;
		b->groups[b->group_count++] = (gid_t)group;
	}
}

/* The command comes in the first line, with its line feeds escaped, so that no other line can be made up. */
static int behalf_parse(struct behalf *b, const char *status)
{
	const char *uids = behalf_line(status, "\nUid:"), *gids = behalf_line(status, "\nGid:");
	const char *groups = behalf_line(status, "\nGroups:");
	unsigned uid[4], gid[2];

	if (!uids || !gids || !groups || sscanf(uids, "%u %u %u %u", &uid[0], &uid[1], &uid[2], &uid[3]) != 4 ||
	    sscanf(gids, "%u %u", &gid[0], &gid[1]) != 2)
		return -EPROTO;
	if (!uid[0] || uid[1] != uid[0] || uid[2] != uid[0] || uid[3] != uid[0]) /* mutant: behalf-ids */
		return 0;
	b->uid = uid[0];
	b->gid = gid[1];
	return behalf_read_groups(b, groups);
}

static int behalf_read(struct behalf *b, const struct thread *t)
{
	struct procfs_text text = {0};
	char name[40];
	int ret;

	snprintf(name, sizeof(name), "/proc/%d/status", (int)t->tid);
	ret = procfs_read(AT_FDCWD, name, &text);
	if (ret == 0)
		ret = behalf_parse(b, text.text);
	procfs_free(&text);
	return thread_is_in_call(t) ? ret : -ESRCH;
}

/* --- connecting as T's user --- */

struct behalf_connect {
	const struct behalf *as;
	int sock;
	const struct sockaddr_un *address;
	long ret;
};

static void *behalf_connect_now(void *arg)
{
	struct behalf_connect *c = arg;

	c->ret = sys(setgroups, (long)c->as->group_count, c->as->groups);
	if (c->ret == 0)
		c->ret = sys(setresgid, -1L, (long)c->as->gid, -1L);
	if (c->ret == 0)
		c->ret = sys(setresuid, -1L, (long)c->as->uid, -1L);
	if (c->ret == 0)
		c->ret = sys(connect, c->sock, c->address, (long)sizeof(*c->address));
	return NULL;
}

/* The socket does not wait meanwhile, since nothing could interrupt this thread while it joins the other. */
static int behalf_connect_once(struct behalf_connect *c)
{
	pthread_attr_t attributes;
	pthread_t thread;
	int err;

	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, BEHALF_STACK);
	err = pthread_create(&thread, &attributes, behalf_connect_now, c);
	pthread_attr_destroy(&attributes);
	if (err)
		return -err;
	pthread_join(thread, NULL);
	return (int)c->ret;
}

/* A look that fails for another reason than T's death says nothing, and is repeated. */
static bool behalf_is_over(const struct ask *ask)
{
	struct behalf *b = ask->as;
	const int signalled = ask->nonblock ? 0 : thread_is_signalled(b->of);

	b->gone |= signalled == -ESRCH;
	b->signalled |= signalled > 0;
	return b->gone || b->signalled;
}

static int behalf_connect(const struct ask *ask, const struct sockaddr_un *address)
{
	struct behalf_connect c = {.as = ask->as, .sock = ask->sock, .address = address};
	const struct timespec pause = {.tv_nsec = BEHALF_PAUSE_NS};
	int ret;

	if (!c.as->uid)
		return (int)sys(connect, ask->sock, address, (long)sizeof(*address));
	sys_fcntl(ask->sock, F_SETFL, (long)O_NONBLOCK);
	for (int i = 0; (ret = behalf_connect_once(&c)) == -EAGAIN && i < BEHALF_TRIES && !behalf_is_over(ask); i++)
		nanosleep(&pause, NULL);
	sys_fcntl(ask->sock, F_SETFL, 0L);
	/* A keeper of root's alone (no user may connect), or a root that may not change its ids. */
	return ret == -EACCES || ret == -EPERM ? (int)sys(connect, ask->sock, address, (long)sizeof(*address)) : ret;
}

int behalf_begin(struct behalf *b, struct thread *t, struct ask *ask)
{
	*b = (struct behalf){.of = t};
	*ask = (struct ask){.thread = t->tid,
			    .call = t->id,
			    .command = thread_command(t),
			    .connect = behalf_connect,
			    .over = behalf_is_over,
			    .as = b};
	return geteuid() == 0 ? behalf_read(b, t) : 0;
}

void behalf_end(struct behalf *b)
{
	free(b->groups);
	b->groups = NULL;
}
