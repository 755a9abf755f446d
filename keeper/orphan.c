/*
 * See orphan.h.
 *
 * Why nothing is lost: a keeper may die at any moment, and the next one takes up what is in the table of leases; so this one
 * just ends, in the middle of whatever it does. The next one is started before that, so that it is known that it can
 * be. It waits until this one is no more (--after-fd ends), for it must find no socket on which somebody serves, and no
 * lock on keeper.lock. A thread of this one that waits for a file system that does not answer may keep the process for as
 * long: so connections, keeper.lock and that pipe are ended by hand, as the last thing that is done. A program that asks in between may start one itself: whichever comes first stays. Until then
 * this keeper goes on renewing.
 */
#include "keeper/orphan.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "keeper/log.h"
#include "keeper/callers/sessions.h"

#define RETRY_MS 1000
#define AFTER_FD 3 /* in the new one */

/* Where the keeper's program is, though its file be replaced by a newer one: leases are best taken up by what left
 * them. */
#define SELF "/proc/self/exe"

static int spawn(const struct keeper_options *o, int after_fd)
{
	char fd[12];
	char *const argv[] = {"dflockd",
			      "--config",
			      (char *)o->config,
			      "--runtime-dir",
			      (char *)o->runtime_dir,
			      "--after-fd",
			      fd,
			      o->foreground ? "--foreground" : NULL,
			      NULL};
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t none, all;
	pid_t pid;
	int err;

	snprintf(fd, sizeof(fd), "%d", AFTER_FD);
	sigemptyset(&none);
	sigfillset(&all);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setsigdefault(&attr, &all);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, after_fd, AFTER_FD);
	err = posix_spawn(&pid, SELF, &actions, &attr, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attr);
	return -err;
}

/* Does not come back if all is well. */
static int make_room(struct keeper *k)
{
	unsigned frozen = table_frozen(k->table);
	int fds[2], ret;

	if (pipe2(fds, O_CLOEXEC) != 0)
		return -errno;
	ret = spawn(k->options, fds[0]);
	close(fds[0]);
	if (ret < 0) {
		close(fds[1]);
		return ret;
	}
	log_error("the keeper's parent was killed: a new parent and keeper take up the leases%s",
		  frozen ? "; the processes that it held frozen died with it" : "");
	sessions_abandon(k);
	flock(k->options->lock_fd, LOCK_UN);
	close(fds[1]); /* nothing is done from here on */
	_exit(KEEPER_EXIT_IDLE);
}

static void on_retry(uv_timer_t *timer)
{
	struct keeper *k = timer->data;
	int ret = make_room(k);

	if (!k->orphan)
		log_error("the keeper's parent was killed, and no other can be started (%s; tried again): nobody would "
			  "stop the "
			  "processes whose leases cannot be renewed",
			  strerror(-ret));
	k->orphan = true;
	uv_timer_start(timer, on_retry, RETRY_MS, 0);
}

static void on_parent(uv_poll_t *poll, int status, int events)
{
	struct keeper *k = poll->data;

	(void)status, (void)events;
	uv_poll_stop(poll);
	if (k->leaving)
		return; /* it ends already */
	on_retry(&k->orphan_timer);
}

int orphan_watch(struct keeper *k)
{
	int ret;

	uv_timer_init(k->loop, &k->orphan_timer);
	k->orphan_timer.data = k->parent.data = k;
	ret = uv_poll_init(k->loop, &k->parent, k->options->parent_fd);
	return ret < 0 ? ret : uv_poll_start(&k->parent, UV_READABLE | UV_DISCONNECT, on_parent);
}

void orphan_close(struct keeper *k)
{
	uv_close((uv_handle_t *)&k->parent, NULL);
	uv_close((uv_handle_t *)&k->orphan_timer, NULL);
}
