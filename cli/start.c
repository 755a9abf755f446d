/* A keeper that runs, started if need be, and is fit to protect a job: see ask.h. */
#include "cli/ask.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "config/config.h"

/* The keeper inherits DFLOCK_RUNTIME_DIR; without it, it finds the runtime directory by the same rule as this
 * program. */
static void __attribute__((noreturn)) become_keeper(int ready, const char *config)
{
	char program[PATH_MAX], number[16];
	const char *argv[] = {program, "--ready-fd", number, NULL, NULL, NULL};
	int null = open("/dev/null", O_RDWR);

	/* It may have the number of a standard descriptor that dflock was started without. */
	ready = fcntl(ready, F_DUPFD, STDERR_FILENO + 1);
	/* The keeper outlives this program, and a process that reads this program's output through a pipe must not wait
	 * for the keeper. The keeper's messages come over `ready`. */
	for (int fd = 0; fd <= 2 && null >= 0; fd++)
		if (dup2(null, fd) < 0)
			_exit(1);
	if (null > 2)
		close(null);
	place_find("dflockd", "sbin", DFLOCKD_INSTALLED, program);
	snprintf(number, sizeof(number), "%d", ready);
	if (config[0]) {
		argv[3] = "--config";
		argv[4] = config;
	}
	/* "/": the keeper must keep no mount busy. */
	if (ready < 0 || chdir("/"))
		_exit(1);
	execv(program, (char **)argv);
	dprintf(ready, "cannot execute %s: %s", program, strerror(errno));
	_exit(CLI_RUN_NOT_FOUND);
}

/* Reads the keeper's message until the keeper closes its end. An empty message: the keeper serves. -ETIMEDOUT: it has
 * not closed its end. */
static int read_ready(int fd, char line[CLI_LINE_BYTES])
{
	int64_t deadline = cli_now_ms() + ASK_DEADLINE_S * 1000;
	size_t used = 0;

	for (;;) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		int64_t left = deadline - cli_now_ms();
		char skipped[256];
		ssize_t n;

		if (left <= 0 || poll(&p, 1, (int)left) == 0)
			return -ETIMEDOUT;
		n = used < CLI_LINE_BYTES - 1 ? read(fd, line + used, CLI_LINE_BYTES - 1 - used)
					      : read(fd, skipped, sizeof(skipped));
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0)
			break;
		if (n > 0 && used < CLI_LINE_BYTES - 1)
			used += (size_t)n;
	}
	line[used] = '\0';
	line[strcspn(line, "\n")] = '\0';
	return 0;
}

/* Forks twice: `dflock run` becomes the job, which must not find a child that it does not know. 0 or -errno. */
static int start_unrelated(int ready, const char *config)
{
	pid_t pid = fork();
	int status;

	if (pid < 0)
		return -errno;
	if (pid == 0) {
		pid = fork();
		if (pid == 0)
			become_keeper(ready, config);
		_exit(pid < 0 ? errno : 0);
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return 0; /* SIGCHLD is ignored: it is not told, and `ready` says the rest */
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -ECHILD;
}

static int start_keeper(const char *config, char why[CLI_LINE_BYTES])
{
	int ends[2], ret;

	if (pipe2(ends, O_CLOEXEC)) {
		ret = -errno;
		snprintf(why, CLI_LINE_BYTES, "cannot start a keeper: %s", strerror(-ret));
		return ret;
	}
	fflush(NULL);
	ret = start_unrelated(ends[1], config);
	close(ends[1]);
	if (ret)
		snprintf(why, CLI_LINE_BYTES, "cannot start a keeper: %s", strerror(-ret));
	else {
		char line[CLI_LINE_BYTES];

		ret = read_ready(ends[0], line);
		if (ret)
			snprintf(why, CLI_LINE_BYTES, "the keeper that was started does not get ready: %s",
				 strerror(-ret));
		else if (line[0]) {
			snprintf(why, CLI_LINE_BYTES, "%s", line);
			ret = -ECHILD;
		}
	}
	close(ends[0]);
	return ret;
}

int start_connect(const struct place *place, struct ask *ask, char why[CLI_LINE_BYTES])
{
	int ret = ask_connect(place, ask, why);

	if (ret != -ENOENT)
		return ret;
	ret = start_keeper(place->config, why);
	if (ret)
		return ret;
	ret = ask_connect(place, ask, why);
	ask->started = true;
	if (ret == -ENOENT)
		snprintf(why, CLI_LINE_BYTES, "the keeper that was started for %s has ended at once; its log says why",
			 ask->dir);
	return ret;
}

/*
 * --- is everything there that protects a job? ---
 *
 * A keeper that has just started is not connected to the store, and is asked again until the time is over.
 */

#define AGAIN_MS 20

static bool file_is_protected(const struct config *config, const char *file, char why[CLI_LINE_BYTES])
{
	char path[PATH_MAX], name[LOCK_NAME_BYTES];
	int ret = files_resolve(file, path);

	if (ret == 0)
		ret = config_lock_name(config, path, name);
	else
		snprintf(path, sizeof(path), "%s", file);
	if (ret == -ENOENT)
		snprintf(why, CLI_LINE_BYTES, "%.512s is not protected: no rule of %.256s is about it", path,
			 config->path);
	else if (ret < 0)
		snprintf(why, CLI_LINE_BYTES, "%.512s: %s", path, strerror(-ret));
	return ret == 0;
}

static bool configuration_is_fit(const struct place *place, const char *const *files, size_t count,
				 char why[CLI_LINE_BYTES])
{
	struct config *config;
	bool fit = true;

	if (!place->config[0]) {
		snprintf(why, CLI_LINE_BYTES, "there is no configuration: " CLI_WRITE_ONE);
		return false;
	}
	if (config_load_rules(place->config, &config, why, CLI_LINE_BYTES))
		return false;
	for (size_t i = 0; i < count && fit; i++)
		fit = file_is_protected(config, files[i], why);
	config_free(config);
	return fit;
}

static bool keeper_is_fit(const struct place *place, char why[CLI_LINE_BYTES])
{
	const struct timespec again = {.tv_nsec = AGAIN_MS * 1000000};
	int64_t until = 0;
	struct ask ask;
	int ret;

	do { /* an idle keeper may end just now: the next one is asked */
		if (until)
			nanosleep(&again, NULL);
		if (start_connect(place, &ask, why))
			return false;
		if (!until)
			until = cli_now_ms() + REQUIRE_PATIENCE_MS;
		while ((ret = ask_about(&ask, WIRE_FIT, NULL, NULL, why)) == -EAGAIN && cli_now_ms() < until)
			nanosleep(&again, NULL);
		ask_close(&ask);
	} while (ret == -ECONNRESET && cli_now_ms() < until);
	return ret == 0;
}

bool require_fit(const struct place *place, const char *const *files, size_t count, char why[CLI_LINE_BYTES])
{
	return configuration_is_fit(place, files, count, why) && keeper_is_fit(place, why);
}
