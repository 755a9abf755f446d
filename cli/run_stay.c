/* dflock run with what needs more than libc: --require, --report, --init. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/ask.h"
#include "cli/container.h"
#include "cli/report.h"
#include "cli/run.h"
#include "wire/rundir.h"

/* Before the job starts, so that it does not run for hours without a report. What an earlier report left there stays
 * until this one is written. */
static FILE *open_report(const struct run_options *options)
{
	int fd = -1;
	FILE *f;

	if (!options->report_file)
		return stderr;
	fd = open(options->report_file, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY, 0666);
	f = fd < 0 ? NULL : fdopen(fd, "w");
	if (!f)
		cli_error("not started: the report cannot be written to %s: %s", options->report_file, strerror(errno));
	return f;
}

/* For the lock names of the report. NULL: there is none, or it is invalid, and a line said so. */
static struct config *load_config(void)
{
	char why[CLI_LINE_BYTES], dir[PLACE_DIR_BYTES], names[PLACE_DIR_BYTES + sizeof(NAMES_DIR) + 1], *path = NULL;
	struct config *config;
	struct place place;

	cli_place(&place, NULL);
	if (!place.config[0])
		return NULL;
	if (config_load_rules(place.config, &config, why, sizeof(why))) {
		cli_error("the report has no lock names: %s", why);
		return NULL;
	}
	/* Those of `dflock lock` are the keeper's own. */
	if (rundir_find(&place, geteuid(), dir, why, sizeof(why)) == 0) {
		snprintf(names, sizeof(names), "%s/" NAMES_DIR, dir);
		path = realpath(names, NULL);
	}
	if (path && config_set_names(config, path))
		cli_error("the report has not all lock names: %s", strerror(ENOMEM));
	free(path);
	return config;
}

/* A report that cannot be written changes nothing in what the job did: the exit status stays. */
static void write_report(const struct run_options *options, const struct report *report, const struct config *config,
			 FILE *f)
{
	bool written;

	/* It fails where it has no meaning: for a terminal, a pipe. */
	if (f != stderr && ftruncate(fileno(f), 0) && errno != EINVAL)
		cli_error("%s: %s", options->report_file, strerror(errno));
	written = (options->json ? report_print_json : report_print)(report, config, options->job[0], f);
	if (!written || (f != stderr && fclose(f)))
		cli_error("the report could not be written%s%s: %s", options->report_file ? " to " : "",
			  options->report_file ? options->report_file : "", strerror(errno));
}

/* With --require=taken: on each FILE that another --require names, or on any. Says which is missing. */
static bool has_taken(const struct run_options *options, const struct report *report, const struct config *config)
{
	bool all = options->file_count || report_has_taken(report, config, NULL);

	if (!all)
		cli_error("%s took no lock on a protected file", options->job[0]);
	for (size_t i = 0; i < options->file_count; i++) {
		if (report_has_taken(report, config, options->files[i]))
			continue;
		cli_error(
			"%s took no lock on %s that dflock has seen: it locked past the library (env -i, sudo, a static "
			"program; see --net), or not at all",
			options->job[0], options->files[i]);
		all = false;
	}
	return all;
}

/* The job's end, when it was counted which locks it took. Another exit status than the job's, or 0. */
static int conclude(const struct run_options *options, struct report *report, FILE *f, int status)
{
	int ret = report_read(report);
	struct config *config;

	if (ret) {
		cli_error("there is no report: %s", strerror(-ret));
		return CLI_RUN_FAILED;
	}
	config = load_config();
	if (options->report)
		write_report(options, report, config, f);
	if (options->taken && !has_taken(options, report, config) && WIFEXITED(status) && WEXITSTATUS(status) == 0)
		ret = CLI_RUN_NOT_TAKEN;
	config_free(config);
	return ret;
}

/* Where dflock was started without standard error, its messages must not get into a file that is opened now. For the
 * job, these descriptors stay closed. */
static void fill_stdio(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	while (fd >= 0 && fd <= 2);
	if (fd > 2)
		close(fd);
}

/* For reports. 0, or the exit status, when a line was printed. */
static int begin_report(const struct run_options *options, struct report *report, FILE **f)
{
	int ret;

	fill_stdio();
	*f = options->report ? open_report(options) : stderr;
	if (!*f)
		return CLI_RUN_FAILED;
	ret = report_start(report);
	if (!ret)
		return 0;
	cli_error("not started: no memory for the report: %s", strerror(-ret));
	return CLI_RUN_FAILED;
}

/* Runs the job as a child, for what is to be done at its end. */
static int run_and_stay(const struct run_options *options)
{
	const bool counted = options->report || options->taken;
	int ret = 0, run, status = 0;
	struct report report;
	FILE *f = stderr;

	if (counted)
		ret = begin_report(options, &report, &f);
	if (ret)
		return ret;
	run = job_run(options->words, options->init, &status);
	if (run)
		ret = run_cannot(options, -run);
	else if (counted)
		ret = conclude(options, &report, f, status);
	if (counted)
		report_end(&report);
	if (options->init)
		container_end(options->patience_s);
	return ret ? ret : job_exit(status);
}

/* The configuration, keeper and store that the job needs. */
static int run_fit(const struct run_options *options)
{
	char why[CLI_LINE_BYTES];
	struct place place;

	cli_place(&place, NULL);
	if (require_fit(&place, options->files, options->file_count, why))
		return 0;
	cli_error("not started: %s", why);
	return CLI_RUN_UNFIT;
}

static int run_more(struct run_options *options, int argc, char **argv)
{
	int ret = options->init ? container_begin() : 0;

	(void)argc, (void)argv;
	if (ret) {
		cli_error("not started: cannot become the parent of orphans: %s", strerror(-ret));
		return CLI_RUN_FAILED;
	}
	ret = run_prepare(options, options->require ? run_fit : NULL);
	if (ret)
		return ret;
	if (options->report || options->taken || options->init)
		return run_and_stay(options);
	execvp(options->words[0], options->words);
	return run_cannot(options, errno);
}

int cmd_run(int argc, char **argv)
{
	return run_job(argc, argv, run_more);
}
