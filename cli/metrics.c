/*
 * dflock metrics: see metrics.h.
 *
 * The file of --textfile. node_exporter reads DIR/dflock.prom at any moment, so that name always has a whole file: it is
 * written under another name, which node_exporter does not read, and then renamed. If dflock is killed in between, that name stays,
 * and the next dflock removes it. Only one at a time writes it, by a kernel lock on DIR, which ends with the process: else one
 * would rename what the other has half written. The file is made anew and exclusively, so no other user of DIR can have it
 * open. It is not synced: after a crash of the machine its numbers say nothing.
 */
#include "cli/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/ask.h"
#include "cli/cli.h"

#define TEXTFILE_NAME    "dflock.prom"
#define TEXTFILE_NEW     ".dflock.prom.new"
#define TEXTFILE_WAIT_MS 5000
#define TEXTFILE_LOOK_MS 20

static const char metrics_doc[] =
	"Prints what the keeper counts, as text for Prometheus; with --textfile, into a file for node_exporter. If no keeper "
	"runs, it says \"dflock_up 0\".\v"
	"The exit status is 0, also if no keeper runs, and 1 if there is one that does not answer (then, too, it says "
	"\"dflock_up 0\"), or if the file cannot be written. dflock(1) lists the metrics.";

static error_t metrics_parse(int key, char *arg, struct argp_state *state)
{
	const char **dir = state->input;

	switch (key) {
	case 't':
		*dir = arg;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "it takes no arguments, but got %s", arg);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* The keeper's answer; NULL: it is away. Then `why` says so, and is "" if none runs. */
static json_t *metrics_ask(char why[CLI_LINE_BYTES])
{
	json_t *answer = NULL;
	char *text = NULL;
	size_t len;
	int ret = ask_once(WIRE_METRICS, NULL, &text, &len, why);

	if (!ret)
		answer = ask_parse(text, len, why);
	free(text);
	if (answer || ret == -ENOENT)
		why[0] = '\0';
	return answer;
}

/* Waits for another dflock that writes there. 0 or -errno. */
static int textfile_lock(int dir)
{
	const struct timespec pause = {.tv_nsec = TEXTFILE_LOOK_MS * 1000000};
	int64_t until = cli_now_ms() + TEXTFILE_WAIT_MS;

	while (flock(dir, LOCK_EX | LOCK_NB)) {
		if (errno != EWOULDBLOCK || cli_now_ms() > until)
			return -errno;
		nanosleep(&pause, NULL);
	}
	return 0;
}

/* 0 or -errno. */
static int textfile_write(int dir, const json_t *answer)
{
	int fd, ret = 0;
	FILE *f;

	if (unlinkat(dir, TEXTFILE_NEW, 0) && errno != ENOENT)
		return -errno;
	fd = openat(dir, TEXTFILE_NEW, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	f = fdopen(fd, "w");
	if (!f) {
		close(fd);
		return -ENOMEM;
	}
	metrics_print(answer, f);
	if (fflush(f) || ferror(f) || fchmod(fd, 0644)) /* whatever the umask is: node_exporter is another user */
		ret = errno ? -errno : -EIO;
	if (fclose(f) && !ret)
		ret = -errno;
	if (!ret && renameat(dir, TEXTFILE_NEW, dir, TEXTFILE_NAME))
		ret = -errno;
	if (ret)
		unlinkat(dir, TEXTFILE_NEW, 0);
	return ret;
}

static int textfile(const char *path, const json_t *answer)
{
	int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), ret;

	ret = dir < 0 ? -errno : textfile_lock(dir);
	if (ret == -EWOULDBLOCK)
		cli_error("%s: another process has had a lock on this directory for %d s: " TEXTFILE_NAME
			  " stays as it was",
			  path, TEXTFILE_WAIT_MS / 1000);
	else if (!ret && (ret = textfile_write(dir, answer)))
		cli_error("%s/" TEXTFILE_NAME " cannot be written, and stays as it was: %s", path, strerror(-ret));
	else if (ret)
		cli_error("%s: %s; --textfile takes the directory that node_exporter's "
			  "--collector.textfile.directory names",
			  path, strerror(-ret));
	if (dir >= 0)
		close(dir);
	return ret;
}

int cmd_metrics(int argc, char **argv)
{
	static const struct argp_option known[] = {
		{"textfile", 't', "DIR", 0, "write " TEXTFILE_NAME " in this directory, for node_exporter", 0}, {0}};
	static const struct argp argp = {.options = known, .parser = metrics_parse, .doc = metrics_doc};
	char why[CLI_LINE_BYTES];
	const char *dir = NULL;
	json_t *answer;
	int ret = 0;

	argp_parse(&argp, argc, argv, 0, NULL, &dir);
	answer = metrics_ask(why);
	if (*why)
		cli_error("%s", why);
	if (dir)
		ret = textfile(dir, answer);
	else
		metrics_print(answer, stdout);
	json_decref(answer);
	return ret || *why ? CLI_FAILED : CLI_OK;
}
