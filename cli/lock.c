/*
 * dflock lock: a lock without a file.
 *
 * The keeper protects the files of a directory of its own, each as lock:NAME (keeper/names.c). On one of these runs
 * flock(1), under the preload, with the options that were given here. With --at-least it is another file of the same lock,
 * NAME~MS, whose name tells the keeper the rest (config_set_names()). So waiting, time limits, exit statuses and the way
 * in which a child inherits the lock are flock(1)'s. flock(1) starts this program again (--taken), which sets
 * DFLOCK_FENCE and becomes the job.
 */

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <paths.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/ask.h"
#include "config/config.h"
#include "wire/rundir.h"

static const char lock_doc[] =
	"Runs JOB while the lock NAME is held, which excludes every host that shares the store. It needs neither a file "
	"nor a rule in the configuration. JOB runs as under `dflock run', and finds the fence number of its lease in "
	"DFLOCK_FENCE.\v"
	"The options are those of flock(1), which takes the lock. The exit status is that of JOB; 1, or what -E says, if "
	"the lock was not obtained; 123, with one line, if it would not hold across the cluster: then JOB is not started.";

#define LOCK_WORDS 16
#define AT_LEAST   256 /* the key of an option without a letter */
/* For the library in flock(1): names the holders of a lock that is refused. */
#define LOCK_VERBOSE      "DFLOCK_VERBOSE"
#define LOCK_VERBOSE_HERE "lock"

struct lock_options {
	const char *words[LOCK_WORDS]; /* of flock(1) */
	char flags[LOCK_WORDS][3];     /* some of these */
	size_t count;
	const char *name, *command;
	int64_t at_least_ms;
	bool shared;
	const char *taken; /* flock(1) has the lock: through this descriptor, which the job is not to have */
	char **job;
};

/* Options of flock(1), given to it as they are. */
static const struct argp_option lock_known[] = {
	{"shared", 's', NULL, 0, "share the lock with others that share it", 0},
	{"exclusive", 'x', NULL, 0, "exclude all others (the default)", 0},
	{"exclusive", 'e', NULL, OPTION_HIDDEN, NULL, 0},
	{"nonblock", 'n', NULL, 0, "fail at once if the lock is held elsewhere", 0},
	{"nonblocking", 0, NULL, OPTION_ALIAS | OPTION_HIDDEN, NULL, 0},
	{"nb", 0, NULL, OPTION_ALIAS | OPTION_HIDDEN, NULL, 0},
	{"timeout", 'w', "SECONDS", 0, "fail if the lock cannot be obtained within this time", 0},
	{"wait", 0, NULL, OPTION_ALIAS | OPTION_HIDDEN, NULL, 0},
	{"conflict-exit-code", 'E', "NUMBER", 0, "the exit status if the lock was not obtained", 0},
	{"close", 'o', NULL, 0, "JOB does not inherit the lock, which flock(1) alone has", 0},
	{"no-fork", 'F', NULL, 0, "JOB takes the place of flock(1)", 0},
	{"verbose", 'v', NULL, 0, "say how long it took to get the lock, and which processes hold it if it is taken",
	 0},
	{"command", 'c', "COMMAND", 0, "run COMMAND through the shell", 0},
	{"at-least", AT_LEAST, "TIME", 0,
	 "keep all others from the lock for TIME from its start, also after its end: 90 or 90s, 500ms, 5m, 2h, 1d", 0},
	{"taken", 't', "FD", OPTION_HIDDEN, NULL, 0},
	{0}};

/* Like 90, 1.5s, 500ms, 5m, 2h or 1d; seconds without a unit, as with flock(1). False: it is no such time, or too long. */
static bool lock_read_time(const char *text, int64_t *ms)
{
	static const struct {
		const char *name;
		double ms;
	} units[] = {{"", 1e3}, {"ms", 1}, {"s", 1e3}, {"m", 6e4}, {"h", 3.6e6}, {"d", 8.64e7}};
	size_t digits = strspn(text, "0123456789."), i = 0;
	char number[24], *end;
	double value;

	if (digits == 0 || digits >= sizeof(number))
		return false;
	memcpy(number, text, digits);
	number[digits] = '\0';
	value = strtod(number, &end);
	while (i < sizeof(units) / sizeof(*units) && strcmp(text + digits, units[i].name))
		i++;
	if (*end || i == sizeof(units) / sizeof(*units) || value * units[i].ms > (double)CONFIG_RULE_MAX_MS)
		return false;
	*ms = (int64_t)(value * units[i].ms);
	return *ms > 0 || value == 0; /* what is shorter than 1 ms would be no rest at all */
}

static void lock_check(const struct lock_options *options, struct argp_state *state)
{
	if (!options->name)
		argp_usage(state);
	if (!*options->name)
		argp_error(state, "the NAME of the lock is empty");
	if (options->command ? *options->job != NULL : *options->job == NULL)
		argp_error(state, "%s",
			   options->command ? "it takes a JOB or --command, but got both" : "there is no JOB to run");
	if (options->at_least_ms && options->shared)
		argp_error(state, "--at-least is for exclusive locks, not for --shared");
}

/* The first argument is the name. All others are the job's, options too. */
static void lock_take_name(struct lock_options *options, char *name, struct argp_state *state)
{
	options->name = name;
	options->job = &state->argv[state->next];
	if (*options->job && !strcmp(*options->job, "--"))
		options->job++;
	else if (*options->job && !options->command &&
		 (!strcmp(*options->job, "-c") || !strcmp(*options->job, "--command"))) {
		/* As with flock(1), behind the name. */
		options->command = *++options->job;
		if (!options->command)
			argp_error(state, "%s needs a command", options->job[-1]);
		options->job++;
	}
	state->next = state->argc;
}

static error_t lock_parse(int key, char *arg, struct argp_state *state)
{
	struct lock_options *options = state->input;

	switch (key) {
	case 'c':
		options->command = arg;
		return 0;
	case 't':
		options->taken = arg;
		return 0;
	case ARGP_KEY_ARG:
		lock_take_name(options, arg, state);
		return 0;
	case AT_LEAST:
		if (!lock_read_time(arg, &options->at_least_ms))
			argp_error(state,
				   "--at-least is %s; expected a time like 90, 90s, 500ms, 5m or 2h, at most 30d", arg);
		return 0;
	case ARGP_KEY_END:
		lock_check(options, state);
		return 0;
	}
	if (key == 's' || key == 'x' || key == 'e')
		options->shared = key == 's';
	for (const struct argp_option *o = lock_known; o->name; o++) {
		char *flag = options->flags[options->count];

		if (o->key != key)
			continue;
		if (options->count + 2 > LOCK_WORDS)
			argp_error(state, "too many options");
		snprintf(flag, sizeof(options->flags[0]), "-%c", key);
		options->words[options->count++] = key == 'v' ? "--verbose" : flag;
		if (key == 'v' && setenv(LOCK_VERBOSE, LOCK_VERBOSE_HERE, 0))
			argp_error(state, "%s", strerror(errno));
		if (arg)
			options->words[options->count++] = arg;
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

/* The same with the rest that begins with the lock. */
static bool lock_resting_name(const char *name, int64_t at_least_ms, char file[NAME_MAX + 1])
{
	size_t len;

	if (!cli_lock_file(name, file))
		return false;
	len = strlen(file);
	return !at_least_ms || snprintf(file + len, NAME_MAX + 1 - len, "%c%" PRId64, CONFIG_NAMES_REST, at_least_ms) <=
				       (int)(NAME_MAX - len);
}

/* Where all users make files, the kernel may refuse O_CREAT for one that another user has made; and what another user has made may be
 * a FIFO, whose open() would wait for ever without O_NONBLOCK. -1 with errno. */
static int lock_open_file(const char *path)
{
	const int flags = O_RDONLY | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK;
	int fd = open(path, flags);

	if (fd < 0 && errno == ENOENT) {
		mode_t mask = umask(022); /* else one user's 077 would keep all others from the name */

		fd = open(path, flags | O_CREAT | O_EXCL, 0644);
		umask(mask);
	}
	if (fd < 0 && errno == EEXIST)
		fd = open(path, flags);
	return fd;
}

/* fd -1: it could not be opened (errno). False with the line printed. */
static bool lock_is_file(int fd, const char *path)
{
	const int error = errno;
	struct stat st;

	if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
		return true;
	if (lstat(path, &st) == 0 && (!S_ISREG(st.st_mode) || error == EACCES))
		cli_error("not started: %s cannot be the lock's, as it is %s: uid %u has made it; remove it", path,
			  S_ISREG(st.st_mode) ? "closed to this user" : "no regular file", (unsigned)st.st_uid);
	else
		cli_error("not started: %s: %s; see `dflock doctor`", path, strerror(error));
	return false;
}

/* The keeper makes the directory when it starts. -1 with the line printed. */
static int lock_open(const char *name, int64_t at_least_ms)
{
	char why[CLI_LINE_BYTES], file[NAME_MAX + 1], path[PLACE_DIR_BYTES + sizeof(NAMES_DIR) + NAME_MAX + 3];
	struct place place;
	struct ask ask;
	int fd;

	if (!lock_resting_name(name, at_least_ms, file)) {
		cli_error("not started: the name of the lock is too long; expected at most %d letters", NAME_MAX);
		return -1;
	}
	cli_place(&place, NULL);
	if (start_connect(&place, &ask, why)) {
		cli_error("not started: %s", why);
		return -1;
	}
	ask_close(&ask);
	snprintf(path, sizeof(path), "%s/" NAMES_DIR "/%s", ask.dir, file);
	fd = lock_open_file(path);
	if (lock_is_file(fd, path))
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

/* flock(1) has the lock, and this is its child, or has taken its place. */
static int lock_become_job(const struct lock_options *options)
{
	char lock[sizeof(CONFIG_NAMES) + NAME_MAX], why[CLI_LINE_BYTES], number[24];
	int64_t fence;
	int ret;

	memcpy(lock, CONFIG_NAMES, sizeof(CONFIG_NAMES));
	if (!cli_lock_file(options->name, lock + strlen(CONFIG_NAMES)))
		return CLI_RUN_FAILED;
	close(atoi(options->taken));
	if (getenv(LOCK_VERBOSE) && !strcmp(getenv(LOCK_VERBOSE), LOCK_VERBOSE_HERE))
		unsetenv(LOCK_VERBOSE); /* for flock(1), not for the job */
	if (!fence_find(lock, getpid(), false, &fence, why)) {
		cli_error("not started: %s", why);
		return CLI_RUN_UNFIT;
	}
	snprintf(number, sizeof(number), "%" PRId64, fence);
	if (setenv("DFLOCK_FENCE", number, 1)) {
		cli_error("cannot set DFLOCK_FENCE: %s", strerror(errno));
		return CLI_RUN_FAILED;
	}
	execvp(options->job[0], options->job);
	ret = errno;
	cli_error("cannot run %s: %s", options->job[0], strerror(ret));
	return ret == ENOENT ? CLI_RUN_NOT_FOUND : CLI_RUN_CANNOT_EXECUTE;
}

/* dflock run --require -- flock OPTIONS FILE dflock lock --taken FD NAME -- JOB */
static int lock_run(const struct lock_options *options, int fd, size_t job_count)
{
	const char *shell = getenv("SHELL");
	char own[PATH_MAX] = "", file[64], number[16];
	const char **words = calloc(options->count + job_count + 16, sizeof(*words));
	size_t n = 0;
	int status;

	if (!words || readlink("/proc/self/exe", own, sizeof(own) - 1) < 0) {
		cli_error("not started: %s", strerror(errno));
		free(words);
		return CLI_RUN_FAILED;
	}
	snprintf(number, sizeof(number), "%d", fd);
	snprintf(file, sizeof(file), "/proc/self/fd/%d", fd);
	words[n++] = "dflock lock";
	words[n++] = "--require";
	words[n++] = "--";
	words[n++] = "flock";
	for (size_t i = 0; i < options->count; i++)
		words[n++] = options->words[i];
	words[n++] = file;
	words[n++] = own;
	words[n++] = "lock";
	words[n++] = "--taken";
	words[n++] = number;
	words[n++] = "--"; /* the name may begin with one */
	words[n++] = options->name;
	words[n++] = "--";
	if (options->command) {
		words[n++] = shell && *shell ? shell : _PATH_BSHELL;
		words[n++] = "-c";
		words[n++] = options->command;
	}
	for (char **job = options->job; *job; job++)
		words[n++] = *job;
	status = cmd_run((int)n, (char **)words);
	free(words);
	return status;
}

int cmd_lock(int argc, char **argv)
{
	static const struct argp argp = {.options = lock_known,
					 .parser = lock_parse,
					 .args_doc = "NAME [--] JOB [ARGUMENT...]\n-c COMMAND NAME",
					 .doc = lock_doc};
	struct lock_options options = {.name = NULL};
	int fd;

	argp_err_exit_status = CLI_RUN_FAILED;
	argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &options);
	if (options.taken)
		return lock_become_job(&options);
	fd = lock_open(options.name, options.at_least_ms);
	return fd < 0 ? CLI_RUN_UNFIT : lock_run(&options, fd, (size_t)argc);
}
