/* See lookup.h. */
#include "keeper/callers/session.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "keeper/callers/configfile.h"
#include "keeper/kernel/ownlocks.h"
#include "keeper/callers/configwatch.h"
#include "keeper/fronts/away.h"
#include "keeper/fronts/fronts.h"
#include "keeper/kernel/inspect.h"
#include "keeper/leases/locks.h"
#include "keeper/leases/past.h"
#include "keeper/leases/queue.h"
#include "keeper/kernel/mounts.h"
#include "keeper/callers/serve.h"
#include "keeper/callers/who.h"
#include "keeper/leases/keeper.h"
#include "keeper/kernel/holders.h"

/* The kernel shows no path of the file. Of an inode that the keeper knows it knows the path, too. Any other file may be
 * protected, unless no rule has covered a file of its device and none names what the kernel shows now. */
static bool lookup_is_lost(const struct session *s, struct inspect_result *r)
{
	const struct page *page = s->keeper->page;
	const struct file *file;
	char name[LOCK_NAME_BYTES];

	if (!r->gone_type || r->nameless)
		return false;
	file = file_find(s->keeper, r->st.st_dev, r->st.st_ino);
	if (!file)
		return page_covers(page, r->st.st_dev) || page_covers(page, r->gone_type) ||
		       config_lock_name(s->keeper->config, r->path, name) != -ENOENT;
	snprintf(r->path, sizeof(r->path), "%s", file->path);
	r->id = (struct identity){0};
	return false;
}

/* Finds the lock name. If the file has none, this answers the caller. */
static bool find_name(struct session *s, struct inspect_result *r, struct away *away, char name[LOCK_NAME_BYTES])
{
	const bool lost = lookup_is_lost(s, r);
	int ret = r->nameless ? -ENOENT : config_lock_name(s->keeper->config, r->path, name);

	if (ret == 0 && !r->named_late && !lost)
		return true;
	lookup_drop(s, r, away);
	if (lost)
		session_refuse_call(
			s, REFUSAL_FILE, false,
			"%s: %s, and nothing else tells which rule covers it: close it, and open it by its path",
			r->path,
			strcmp(r->path, "/") == 0 ? "it was opened by its handle" : "its mount is gone (umount -l?)");
	else if (ret == 0)
		session_refuse_call(
			s, REFUSAL_FILE, false,
			"%s: it was made without a name (O_TMPFILE), and the keeper cannot see the one that it "
			"has now: open it by that to lock it",
			r->path);
	else if (ret == -ENOENT)
		session_reply(s, WIRE_NOT_PROTECTED, r->path, -1);
	else
		session_refuse_call(s, REFUSAL_FILE, false, "%s: its lock name is longer than %d bytes", r->path,
				    LOCK_NAME_BYTES - 1);
	return false;
}

/* Does the file's rule forbid a lock to a process that may not be looked into? Opens directories of /proc only, which
 * waits for no process (holders.c). */
static bool is_refused(const struct session *s, const char *path)
{
	enum sight sight;

	if (s->request.op != WIRE_LOCK || !config_rule(s->keeper->config, path)->refuse_unstoppable)
		return false;
	sight = sight_of(s->peer.pid);
	return sight == SIGHT_SIGNAL || sight == SIGHT_BEYOND;
}

static void lookup_refuse_unseen(struct session *s, struct inspect_result *r, struct away *away)
{
	lookup_drop(s, r, away);
	session_refuse_call(s, REFUSAL_RULE, false,
			    "%s: the keeper may not look into this process (pid %d), and so could not stop it if the "
			    "lease ran out: unstoppable = \"refuse\" in %s",
			    r->path, (int)s->peer.pid, s->keeper->config->path);
}

void lookup_found(struct session *s, struct inspect_result *r, struct away *away)
{
	struct keeper *k = s->keeper;
	char name[LOCK_NAME_BYTES];
	struct file *file;
	int ret;

	if (*r->refused) {
		session_refuse_call(s, REFUSAL_FILE, false, "%s%s%s", r->path, *r->path ? ": " : "", r->refused);
		return;
	}
	if (!find_name(s, r, away, name))
		return;
	if (is_refused(s, r->path))
		return lookup_refuse_unseen(s, r, away);
	own_free(&s->before);
	s->before = r->before;
	page_cover(k->page, r->st.st_dev);
	ret = file_get(member_of_path(k, r->path, name), &r->st, s->lookup.local, r->path, name, r->fd, &file);
	if (away && ret < 0)
		away_forget(away);
	else if (away)
		file_is_away(file, away);
	if (ret == -EEXIST)
		session_refuse_call(s, REFUSAL_FILE, false,
				    "%s: this file is in use as lock \"%s\" already and cannot be lock \"%s\" too: "
				    "give both paths the same name in %s",
				    r->path, file->name, name, k->config->path);
	else if (ret < 0)
		session_refuse_call(s, REFUSAL_ROOM, true, "the keeper has no memory left");
	else {
		file_learnt(file, &r->id);
		if (s->lookup.local && S_ISREG(r->st.st_mode) && r->st.st_nlink > 1)
			past_linked(k, &file->id, file->path);
		file_follow_rule(file);
		s->holds = r->holds;
		s->shared = SESSION_SHARED_UNTESTED;
		if (s->request.op == WIRE_HELD) {
			who_blocks(s, file);
			file_unused(file);
			return;
		}
		serve_begin(s, &file->locks[s->request.space]);
	}
}

/* ret: own_of_process()'s, of r->before. */
static void look_up_with(struct session *s, struct inspect_result *r, int ret)
{
	if (ret == 0)
		return lookup_found(s, r, NULL);
	lookup_drop(s, r, NULL);
	session_refuse_call(
		s, REFUSAL_PROGRAM, false,
		"%s: the keeper cannot see which locks the program has, which it needs to undo a failed call: %s",
		r->path, strerror(-ret));
}

static void on_before_read(void *arg, int ret, struct own_locks *before)
{
	struct session *s = arg;
	struct keeper *k = s->keeper;
	struct inspect_result *r = s->lookup.inspected;

	s->lookup.inspected = NULL;
	r->before = *before;
	if (s->state == SESSION_INSPECTING)
		look_up_with(s, r, ret);
	else
		lookup_drop(s, r, NULL);
	free(r);
	session_unuse(s);
	queue_settle(k);
}

/* POSIX locks belong to the process, which may have any number of descriptors. */
static void read_before(struct session *s, struct inspect_result *r)
{
	const struct holders_file file = inspect_file(r);

	if (own_is_quick(s->peer.pid, &file)) {
		look_up_with(s, r, own_of_process(&r->before, s->peer.pid, &file));
		return;
	}
	s->lookup.inspected = malloc(sizeof(*r));
	if (s->lookup.inspected)
		*s->lookup.inspected = *r;
	if (!s->lookup.inspected || own_start(s->keeper->workers, &s->peer, &file, on_before_read, s) < 0) {
		free(s->lookup.inspected);
		s->lookup.inspected = NULL;
		lookup_drop(s, r, NULL);
		session_refuse_call(s, REFUSAL_ROOM, true, "the keeper has no memory left");
		return;
	}
	session_enter(s, SESSION_INSPECTING);
	session_use(s);
}

static void looked_at(struct session *s, struct inspect_result *r)
{
	if (!*r->refused && s->request.space == WIRE_RECORD && s->request.owner == WIRE_OWNER_PROCESS)
		read_before(s, r);
	else
		lookup_found(s, r, NULL);
}

static void on_inspected(void *arg, struct inspect_result *r)
{
	struct session *s = arg;
	struct keeper *k = s->keeper;

	s->lookup.job = NULL;
	if (s->state != SESSION_INSPECTING) { /* closed, or answered meanwhile */
		lookup_drop(s, r, NULL);
		return session_unuse(s);
	}
	session_enter(s, SESSION_READING);
	looked_at(s, r);
	session_unuse(s);
	queue_settle(k);
}

/* Returns the descriptor if the caller is to close it, else -1. */
static int inspect(struct session *s, int fd)
{
	struct keeper *k = s->keeper;
	struct inspect_request request = {.fd = fd,
					  .peer = s->peer,
					  .foreign = s->peer.uid != k->uid,
					  .takes = s->request.op == WIRE_LOCK,
					  .space = s->request.space,
					  .mode = s->request.mode,
					  .owner = s->request.owner};
	struct inspect_result result;
	const struct file *file;
	uint64_t dev;

	s->lookup.local = inspect_ground(k->mounts, fd, &dev, &request.seen) == INSPECT_LOCAL;
	if (s->lookup.local) {
		file = file_find(k, dev, request.seen.st.st_ino);
		request.unused = !file;
		/* A worker opens the file anew: the keeper might forget the file meanwhile. */
		request.known = !request.foreign && file && file->fd >= 0;
	}
	request.same_path = k->system && !s->lookup.local; /* root's, in a container */
	if (!s->lookup.local || request.foreign) {
		lookup_inspect(s, dev, &request, on_inspected);
		return -1;
	}
	inspect_here(&request, &result);
	looked_at(s, &result);
	return fd;
}

/* --- questions --- */

static void inspect_held(struct session *s)
{
	int fd = s->lookup.held_fd;

	s->lookup.held_fd = -1;
	fd = inspect(s, fd);
	if (fd >= 0)
		close(fd);
}

static void refuse_stranger(struct session *s)
{
	session_refuse_call(
		s, REFUSAL_CONFIG, false,
		"the keeper goes by another configuration than this program: by %s. Set DFLOCK_CONFIG to that, or "
		"DFLOCK_RUNTIME_DIR to a directory of its own for a keeper of its own%s",
		s->keeper->config->path,
		s->request.config_path == leases_hash(s->keeper->config->path)
			? " (under this path the program sees another file than the keeper: is it in a container?)"
			: "");
}

static void on_config_looked_at(struct configwatch_wait *wait, struct configfile_look *look)
{
	struct session *s = (struct session *)((char *)wait - offsetof(struct session, look));

	session_enter(s, SESSION_READING);
	if (look && configfile_is_ours(s->keeper, &s->request.config, s->request.config_path)) {
		s->lookup.then(s);
		return;
	}
	lookup_leave(s);
	if (look)
		refuse_stranger(s);
	else
		session_refuse_call(s, REFUSAL_CONFIG, true, "%s: its file system has not answered the keeper for %d s",
				    s->keeper->config->path, CONFIGWATCH_SLOW_MS / 1000);
}

void lookup_await_config(struct session *s, void (*then)(struct session *s))
{
	session_enter(s, SESSION_LOOKING);
	s->lookup.then = then;
	configwatch_wait(s->keeper, &s->look, false, on_config_looked_at);
}

bool lookup_is_behind(struct session *s)
{
	if (!s->lookup.job && !s->lookup.inspected)
		return false;
	session_refuse_call(s, REFUSAL_FILE, false,
			    s->lookup.job ? "the file system of the previous question's file has not answered so far"
					  : "the keeper still looks for what the previous question needs");
	return true;
}

void lookup_start(struct session *s, int fd)
{
	if (lookup_is_behind(s)) {
		lookup_close(s->keeper, fd);
		return;
	}
	if (configfile_is_ours(s->keeper, &s->request.config, s->request.config_path)) {
		fd = inspect(s, fd);
		queue_settle(s->keeper); /* asks the store before the descriptor is closed */
		if (fd >= 0)
			close(fd);
		return;
	}
	s->lookup.held_fd = fd;
	lookup_await_config(s, inspect_held);
}
