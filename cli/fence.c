/*
 * dflock fence: the fence number of a lease, for a resource that turns away older writers.
 *
 * Of the leases of a file or name, the one counts that the process which asks relies on: one that a process above it
 * holds (its script, or the flock(1) around it). Without such a process, the only one that has a holder at all.
 */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/ask.h"
#include "cli/field.h"
#include "cli/show.h"
#include "cli/status.h"
#include "config/config.h"
#include "procfs/procfs.h"

static const char fence_doc[] =
	"Prints the fence number of the lease under which a lock is held on this host: the one that the calling script or "
	"a process above it holds, else the only one that any process holds. A later holder of the lock always has a "
	"larger number, on whatever host. LOCK is a file, or a lock name as `dflock status' shows it.\v"
	"The exit status is 1, with one line, if the lock is not held on this host, if its lease was lost, or if "
	"several processes hold it under different leases (name one with --pid).";

#define ANCESTORS_MAX 64

/* Which processes hold the lock under a lease: none; any; one of `own`. */
enum fence_rank { FENCE_UNUSED, FENCE_HELD, FENCE_OWN };

struct fence_search {
	const char *lock, *path;     /* path: where a file of this name is; "" if there can be none */
	char bytes[LOCK_NAME_BYTES]; /* the name, if `lock` is what is shown of it; else "" */
	pid_t own[ANCESTORS_MAX];
	size_t own_count;
	const json_t *found; /* NULL: none so far */
	enum fence_rank rank;
	bool several; /* of this rank */
};

/*
 * The process and those above it. What cannot be read ends the list: then fewer leases count as the caller's own. A keeper in another
 * pid namespace has other numbers for them, and says in "asker" which this process and those above it have: of another process
 * they are not known then.
 */
static void fence_ancestors(struct fence_search *search, pid_t pid, const json_t *asker)
{
	const bool own = pid == getpid(), other = asker && json_integer_value(json_array_get(asker, 0)) != getpid();
	int proc = other ? -1 : open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct procfs_stat stat;
	const json_t *number;
	char name[32];
	size_t i;

	if (other && own)
		json_array_foreach (asker, i, number)
			if (i < ANCESTORS_MAX)
				search->own[search->own_count++] = (pid_t)json_integer_value(number);
	while (!other && pid > 0 && search->own_count < ANCESTORS_MAX) {
		search->own[search->own_count++] = pid;
		snprintf(name, sizeof(name), "%d/stat", (int)pid);
		if (proc < 0 || !procfs_stat_read(proc, name, &stat))
			break;
		pid = stat.parent;
	}
	if (proc >= 0)
		close(proc);
}

static bool fence_is_meant(const struct fence_search *search, const json_t *lease)
{
	return field_is(lease, "name", search->lock) || (*search->bytes && field_is(lease, "name", search->bytes)) ||
	       (*search->path && field_is(lease, "path", search->path));
}

static enum fence_rank fence_rank(const struct fence_search *search, const json_t *lease)
{
	enum fence_rank rank = FENCE_UNUSED;
	const json_t *holder;
	size_t i;

	json_array_foreach (json_object_get(lease, "holders"), i, holder) {
		rank = rank == FENCE_OWN ? rank : FENCE_HELD;
		for (size_t n = 0; n < search->own_count; n++)
			if (field_number(holder, "pid") == search->own[n])
				rank = FENCE_OWN;
	}
	return rank;
}

/* While a lease is asked for, processes that hold the file's lock do so under another one; while it is given back, none does. */
static bool fence_counts(const json_t *lease)
{
	const char *state = field_text(lease, "state");

	return field_number(lease, "fence") > 0 && strcmp(state, "asking") && strcmp(state, "releasing");
}

/* The lease that ranks highest. */
static void fence_search(struct fence_search *search, const json_t *leases, enum fence_rank least)
{
	const json_t *lease;
	size_t i;

	json_array_foreach (leases, i, lease) {
		enum fence_rank rank = fence_rank(search, lease);

		if (rank < least || rank < search->rank || !fence_is_meant(search, lease) || !fence_counts(lease))
			continue;
		search->several = search->found && rank == search->rank;
		search->found = lease;
		search->rank = rank;
	}
}

static bool fence_was_lost(const struct fence_search *search, const json_t *lost)
{
	const json_t *lease;
	size_t i;

	json_array_foreach (lost, i, lease)
		if (fence_is_meant(search, lease) && fence_rank(search, lease) != FENCE_UNUSED)
			return true;
	return false;
}

/* False with one line in why. */
static bool fence_choose(const struct ask *ask, const char *lock, pid_t pid, bool any, const json_t *status,
			 int64_t *fence, char why[CLI_LINE_BYTES])
{
	struct fence_search search = {.lock = lock};
	char path[PATH_MAX] = "";

	search.path = files_resolve(lock, path) ? "" : path;
	if (!show_unescape(lock, search.bytes, sizeof(search.bytes)))
		search.bytes[0] = '\0';
	fence_ancestors(&search, pid, json_object_get(status, "asker"));
	fence_search(&search, json_object_get(status, "leases"), any ? FENCE_HELD : FENCE_OWN);
	if (search.found && !search.several) {
		*fence = field_number(search.found, "fence");
		return true;
	}
	if (!search.found && !status_find_lock(status, lock) && !who_is_known(ask, lock, why))
		return false;
	if (search.several)
		snprintf(
			why, CLI_LINE_BYTES,
			"%.512s: processes hold it under several leases, which have different fence numbers; name one of "
			"the processes with --pid",
			lock);
	else if (fence_was_lost(&search, json_object_get(status, "lost")))
		snprintf(why, CLI_LINE_BYTES,
			 "%.512s: its lease was lost, and another host may hold the lock; see dflock status", lock);
	else if (any)
		snprintf(why, CLI_LINE_BYTES, "%.512s: no process on this host holds this lock; see dflock status",
			 lock);
	else
		snprintf(why, CLI_LINE_BYTES,
			 "%.512s: neither process %d nor one above it holds this lock; see dflock status", lock,
			 (int)pid);
	return false;
}

bool fence_find(const char *lock, pid_t pid, bool any, int64_t *fence, char why[CLI_LINE_BYTES])
{
	struct place place;
	json_t *status = NULL;
	struct ask ask;
	bool found;
	int ret;

	cli_place(&place, NULL);
	ret = ask_connect(&place, &ask, why);
	if (ret == -ENOENT)
		snprintf(why, CLI_LINE_BYTES,
			 "%.512s: no keeper runs for %s, so no process on this host holds this lock", lock, ask.dir);
	/* `dflock lock` asks for one process: no other host has it, so no store is waited for. */
	ask.flags = any ? 0 : WIRE_F_OWN;
	if (!ret)
		status = ask_json(&ask, WIRE_STATUS, NULL, why);
	found = status && fence_choose(&ask, lock, pid, any, status, fence, why);
	json_decref(status);
	ask_close(&ask);
	return found;
}

int cmd_fence(int argc, char **argv)
{
	static const struct argp_option known[] = {
		{"pid", 'p', "PID", 0, "the lease that this process, or one above it, relies on", 0},
		{"json", 'j', NULL, 0, "print it for programs", 0},
		{0}};
	const char *word = NULL;
	char why[CLI_LINE_BYTES], *end;
	int64_t fence;
	long pid = 0;
	bool json = false;
	json_t *answer;

	cli_options(argc, argv, fence_doc, "LOCK", known, (void *[]){&word, &json});
	errno = 0;
	if (word)
		pid = strtol(word, &end, 10);
	snprintf(why, sizeof(why), "--pid is %s; expected the number of a process", word ? word : "");
	if (word && (errno || end == word || *end || pid < 1 || pid > INT32_MAX))
		cli_misused(argv, why);
	if (!fence_find(argv[argc - 1], pid ? (pid_t)pid : getpid(), !pid, &fence, why))
		return cli_fail(why);
	if (!json) {
		printf("%" PRId64 "\n", fence);
		return CLI_OK;
	}
	answer = json_pack("{s:i, s:o, s:I}", "schema", 1, "lock", show_json(argv[argc - 1]), "fence",
			   (json_int_t)fence);
	field_print(answer);
	json_decref(answer);
	return CLI_OK;
}
