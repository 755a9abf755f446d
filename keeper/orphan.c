/*
 * A keeper whose parent was killed: no process would stop the holders of leases that it cannot renew. So it makes room
 * for a new parent and a new keeper, which take up its leases as after any other death. Loop only.
 *
 * Processes that the old parent had stopped by ptrace died with it (EXITKILL). Those that it had stopped by SIGSTOP,
 * the new parent takes up.
 *
 * Why nothing is lost: a keeper may die at any moment, and the next one takes up what is in the table of leases. So
 * this keeper just ends, in the middle of whatever it does. It starts the next one before that, to know that it can be
 * started, and goes on renewing until then. The next one waits until this one is gone (--after-fd ends), since it must
 * find no socket on which a keeper serves, and no lock on keeper.lock. If a thread of this keeper waits for a file
 * system that does not answer, the process stays for as long: so this keeper's last act is to close connections,
 * keeper.lock and that pipe by hand. A program that asks in between may start a keeper itself: the first one stays.
 *
 * The runtime directory may have been removed (by a cleaner, or RemoveIPC of logind). The next parent would find no table, and so no
 * holder. So this keeper makes the directory and the table's files anew, from its memory. If a program has started a keeper there
 * meanwhile, two tables would have to become one: then this keeper goes on without a parent, and renews.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "keeper/log.h"
#include "keeper/callers/listener.h"
#include "keeper/kernel/hook.h"
#include "keeper/leases/event.h"
#include "keeper/leases/keeper.h"
#include "keeper/main.h"
#include "wire/rundir.h"

#define RETRY_MS 1000
#define AFTER_FD 3 /* in the new keeper */

/* The keeper's own program, even if its file was replaced by a newer one: the program that left the leases is the best
 * one to take them up. */
#define SELF "/proc/self/exe"

static int spawn_next(const struct keeper_options *o, int after_fd)
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
	int ret;

	snprintf(fd, sizeof(fd), "%d", AFTER_FD);
	sigemptyset(&none);
	sigfillset(&all);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setsigdefault(&attr, &all);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, after_fd, AFTER_FD);
	copies_begin();
	ret = posix_spawn(&pid, SELF, &actions, &attr, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attr);
	return -ret;
}

/* From now on lock_fd is keeper.lock of the directory that has the runtime directory's name. */
static int take_lock(const struct keeper_options *o, int dir_fd)
{
	int fd = openat(dir_fd, RUNDIR_LOCK_NAME, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600), ret = 0;
	struct stat st, ours;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) != 0 || fstat(o->lock_fd, &ours) != 0)
		ret = -errno;
	else if (st.st_dev == ours.st_dev && st.st_ino == ours.st_ino)
		ret = 0;
	else if (flock(fd, LOCK_EX | LOCK_NB) != 0 || dup3(fd, o->lock_fd, O_CLOEXEC) < 0)
		ret = -errno;
	close(fd);
	return ret;
}

static int restore(struct keeper *k)
{
	char why[1024];
	int dir_fd = rundir_open(k->runtime_dir, k->uid, true, why, sizeof(why)), ret = 0;

	if (dir_fd < 0)
		return dir_fd;
	if (!table_is_there(k->table, dir_fd)) {
		ret = take_lock(k->options, dir_fd);
		if (ret == 0)
			ret = table_restore(k->table, dir_fd);
		if (ret == 0)
			log_event(LINE_PARENT_KILLED, "%s was removed: it is made anew, with the table of leases",
				  k->runtime_dir);
	}
	close(dir_fd);
	return ret;
}

/* Returns only on failure. */
static int make_way(struct keeper *k)
{
	unsigned frozen = table_frozen(k->table);
	int fds[2], ret = restore(k);

	if (ret < 0)
		return ret;
	if (pipe2(fds, O_CLOEXEC) != 0)
		return -errno;
	ret = spawn_next(k->options, fds[0]);
	close(fds[0]);
	if (ret < 0) {
		close(fds[1]);
		return ret;
	}
	log_event(LINE_PARENT_KILLED, "the keeper's parent was killed: a new parent and keeper take up the leases%s",
		  frozen ? "; the processes that it held frozen died with it" : "");
	if (frozen)
		event_raise(k, &(struct event){.kind = EVENT_HOLDERS_KILLED, .processes = frozen},
			    "the keeper's parent was killed, and %u processes that it held frozen died with it",
			    frozen);
	event_stop(k); /* the command goes on without this keeper */
	log_flush();
	listener_abandon(k);
	flock(k->options->lock_fd, LOCK_UN);
	close(fds[1]); /* no further work from here on */
	_exit(KEEPER_EXIT_IDLE);
}

static void on_orphan_retry(uv_timer_t *timer)
{
	struct keeper *k = timer->data;
	int ret = make_way(k);

	if (!k->unsupervised)
		log_event(LINE_PARENT_KILLED,
			  "the keeper's parent was killed, and no other can be started (%s; tried again): no "
			  "process would stop processes whose leases cannot be renewed",
			  ret == -EWOULDBLOCK ? "the runtime directory was removed, and another keeper serves there"
					      : strerror(-ret));
	k->unsupervised = true;
	uv_timer_start(timer, on_orphan_retry, RETRY_MS, 0);
}

static void on_parent_died(uv_poll_t *poll, int status, int events)
{
	struct keeper *k = poll->data;

	(void)status, (void)events;
	uv_poll_stop(poll);
	if (k->leaving)
		return; /* it ends already */
	on_orphan_retry(&k->orphan.retry);
}

int orphan_watch(struct keeper *k)
{
	struct orphan *o = &k->orphan;
	int ret;

	uv_timer_init(k->loop, &o->retry);
	o->retry.data = o->parent.data = k;
	ret = uv_poll_init(k->loop, &o->parent, k->options->parent_fd);
	return ret < 0 ? ret : uv_poll_start(&o->parent, UV_READABLE | UV_DISCONNECT, on_parent_died);
}

void orphan_close(struct keeper *k)
{
	uv_close((uv_handle_t *)&k->orphan.parent, NULL);
	uv_close((uv_handle_t *)&k->orphan.retry, NULL);
}
