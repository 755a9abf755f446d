#include "cli/report.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/show.h"
#include "wire/memfd.h"

/* --- the tally --- */

/* All its memory is taken now: a process of the job that found none later would get SIGBUS. */
static int fill(int fd, struct tally *tally)
{
	ssize_t n;

	if (ftruncate(fd, sizeof(*tally)) || (errno = posix_fallocate(fd, 0, sizeof(*tally))))
		return -errno;
	tally_init(tally);
	n = pwrite(fd, tally, offsetof(struct tally, entries), 0);
	if (n != (ssize_t)offsetof(struct tally, entries))
		return n < 0 ? -errno : -EIO;
	return fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) ? -errno : 0;
}

int report_start(struct report *report)
{
	char path[64];
	int ret;

	*report = (struct report){.fd = memfd_make("dflock-report", MFD_CLOEXEC)};
	if (report->fd < 0)
		return -errno;
	report->tally = calloc(1, sizeof(*report->tally));
	ret = report->tally ? fill(report->fd, report->tally) : -ENOMEM;
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)getpid(), report->fd);
	if (!ret && setenv(TALLY_ENV, path, 1))
		ret = -errno;
	if (ret)
		report_end(report);
	return ret;
}

void report_end(struct report *report)
{
	close(report->fd);
	free(report->tally);
	free(report->lines);
	*report = (struct report){.fd = -1};
}

static int order_lines(const void *a, const void *b)
{
	const struct tally_line *x = a, *y = b;
	int order = strcmp(x->path, y->path);

	order = order ? order : (int)x->moved - (int)y->moved;
	order = order ? order : strcmp(x->program, y->program);
	return order ? order : (int)x->space - (int)y->space;
}

static void add_up(struct tally_line *line, const struct tally_line *more)
{
	for (int i = 0; i < TALLY_COUNTS; i++) {
		if (i != TALLY_WAITED_MAX_NS && i != TALLY_HELD_MAX_NS)
			line->counts[i] += more->counts[i];
		else if (line->counts[i] < more->counts[i])
			line->counts[i] = more->counts[i];
	}
}

int report_read(struct report *report)
{
	struct tally_line *lines = calloc(TALLY_ENTRIES, sizeof(*lines));
	size_t count = 0, merged = 0;

	if (!lines)
		return -ENOMEM;
	free(report->lines);
	report->lines = lines;
	report->count = 0;
	if (pread(report->fd, report->tally, sizeof(*report->tally), 0) != (ssize_t)sizeof(*report->tally))
		return -EIO;
	for (size_t i = 0; i < TALLY_ENTRIES; i++)
		count += tally_read(report->tally, i, &lines[count]);
	qsort(lines, count, sizeof(*lines), order_lines);
	for (size_t i = 0; i < count; i++) {
		if (merged && !order_lines(&lines[merged - 1], &lines[i]))
			add_up(&lines[merged - 1], &lines[i]);
		else
			lines[merged++] = lines[i];
	}
	report->count = merged;
	return 0;
}

/* --- what it says --- */

/* The lock name of the file, "" if no rule of the configuration is about it. A path in another root directory says
 * nothing about the file here. */
static const char *name_of(const struct tally_line *line, const struct config *config, char name[LOCK_NAME_BYTES])
{
	if (line->moved || line->path[0] != '/' || !config || config_lock_name(config, line->path, name))
		name[0] = '\0';
	return name;
}

bool report_has_taken(const struct report *report, const struct config *config, const char *file)
{
	char path[PATH_MAX] = "", name[LOCK_NAME_BYTES];
	bool found = false;

	if (file && files_resolve(file, path)) /* the job may have removed it */
		snprintf(path, sizeof(path), "%s", file);

	for (size_t i = 0; i < report->count && !found; i++) {
		const struct tally_line *line = &report->lines[i];
		const uint64_t *n = line->counts;
		const bool busy = n[TALLY_BUSY] || n[TALLY_CAUGHT_BUSY];

		if (file && strcmp(line->path, path) != 0)
			continue;
		/* A file that is not protected may be busy, too. */
		found = n[TALLY_LEASED] || n[TALLY_CAUGHT] || (busy && *name_of(line, config, name));
	}
	return found;
}

/* Got as many locks without a lease as with one? The programs have found that out; the configuration may be another by
 * now, or one of the job's own. */
static void protected_cell(struct grid *grid, const struct tally_line *line, const struct config *config)
{
	char name[LOCK_NAME_BYTES];
	const uint64_t *n = line->counts;

	name_of(line, config, name);
	if (n[TALLY_ALONE] && n[TALLY_LEASED])
		grid_cell(grid, "%" PRIu64 " of %" PRIu64, n[TALLY_LEASED], n[TALLY_LEASED] + n[TALLY_ALONE]);
	else if (n[TALLY_ALONE] || (!n[TALLY_LEASED] && !*name))
		grid_cell(grid, "no");
	else
		grid_cell(grid, "%s", *name ? name : "yes");
}

static uint64_t unfinished(const struct tally_line *line)
{
	const uint64_t *n = line->counts;
	uint64_t ended = n[TALLY_LEASED] + n[TALLY_ALONE] + n[TALLY_BUSY] + n[TALLY_REFUSED] + n[TALLY_FAILED];

	return n[TALLY_CALLS] > ended ? n[TALLY_CALLS] - ended : 0;
}

static void result_cell(struct grid *grid, const struct tally_line *line)
{
	const uint64_t *n = line->counts;
	const struct {
		uint64_t n;
		const char *what;
	} parts[] = {
		{n[TALLY_LEASED] + n[TALLY_ALONE], "taken"},
		{n[TALLY_BUSY], "busy"},
		{n[TALLY_REFUSED], "refused"},
		{n[TALLY_FAILED], "failed"},
		{unfinished(line), "not ended"},
		{n[TALLY_TESTS] > n[TALLY_FOUND] ? n[TALLY_TESTS] - n[TALLY_FOUND] : 0, "tested"},
		{n[TALLY_FOUND], "tested and a lock found"},
		{n[TALLY_CAUGHT], "granted by the net"},
		{n[TALLY_CAUGHT_BUSY], "busy by the net"},
		{n[TALLY_CAUGHT_FAILED] > n[TALLY_CAUGHT_BUSY] ? n[TALLY_CAUGHT_FAILED] - n[TALLY_CAUGHT_BUSY] : 0,
		 "failed by the net"},
	};
	char text[320] = "";
	size_t used = 0;

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (parts[i].n && used < sizeof(text))
			used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%" PRIu64 " %s", used ? ", " : "",
						 parts[i].n, parts[i].what);
	grid_cell(grid, "%s", used ? text : "-");
}

static int64_t ms_of(uint64_t ns)
{
	return (int64_t)(ns / 1000000);
}

static void time_cell(struct grid *grid, uint64_t sum_ns, uint64_t max_ns, uint64_t times, const char *more)
{
	char sum[SHOW_TIME_BYTES], max[SHOW_TIME_BYTES];

	show_ms(ms_of(sum_ns), sum);
	show_ms(ms_of(max_ns), max);
	if (times > 1)
		grid_cell(grid, "%s, longest %s%s", sum, max, more);
	else
		grid_cell(grid, "%s%s", sum, more);
}

static void held_cell(struct grid *grid, const struct tally_line *line)
{
	const uint64_t *n = line->counts;
	uint64_t taken = n[TALLY_LEASED] + n[TALLY_ALONE];
	char more[64] = "";

	if (n[TALLY_ENDED] < taken)
		snprintf(more, sizeof(more), " (%" PRIu64 " of %" PRIu64 ")", n[TALLY_ENDED], taken);
	if (n[TALLY_ENDED])
		time_cell(grid, n[TALLY_HELD_NS], n[TALLY_HELD_MAX_NS], n[TALLY_ENDED], more);
	else
		grid_cell(grid, "%s", taken ? "until closed" : "-");
}

static void add_row(struct grid *grid, const struct tally_line *line, const struct config *config)
{
	const uint64_t *n = line->counts;

	grid_cell(grid, "%s%s", line->path, line->moved ? " (in another root directory)" : "");
	grid_cell(grid, "%s", line->program);
	grid_cell(grid, "%s", line->space == WIRE_RECORD ? "record" : "flock");
	protected_cell(grid, line, config);
	grid_cell(grid, "%" PRIu64, n[TALLY_CALLS]);
	result_cell(grid, line);
	time_cell(grid, n[TALLY_WAITED_NS], n[TALLY_WAITED_MAX_NS], n[TALLY_CALLS], "");
	held_cell(grid, line);
}

bool report_print(const struct report *report, const struct config *config, const char *job, FILE *f)
{
	static const char *const heads[] = {"FILE",  "PROGRAM", "LOCK",   "PROTECTED AS",
					    "CALLS", "RESULT",  "WAITED", "HELD"};
	struct grid *grid = grid_new(sizeof(heads) / sizeof(heads[0]));
	bool alone = false;

	fputs("dflock: lock calls of ", f);
	show_text(f, job);
	fputs(report->count ? ":\n" : ": none that dflock saw\n", f);
	for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]) && report->count; i++)
		grid_cell(grid, "%s", heads[i]);
	for (size_t i = 0; i < report->count; i++) {
		add_row(grid, &report->lines[i], config);
		alone |= report->lines[i].counts[TALLY_ALONE] > 0;
	}
	if (report->tally->left_out)
		grid_note(grid, "%" PRIu64 " calls on further files are not listed: there were too many files",
			  report->tally->left_out);
	if (alone)
		grid_note(
			grid,
			"Locks that are not protected hold on this machine only; a rule protects them (dflock.conf(5)).");
	grid_note(
		grid,
		"Calls that went past the preload and the net are not listed; `dflock doctor PROGRAM` says whether the preload reaches it.");
	grid_print(grid, f);
	grid_free(grid);
	return fflush(f) == 0 && !ferror(f);
}

static json_t *text_json(const char *text)
{
	char shown[4 * PATH_MAX + 1];
	json_t *json = json_string(text);

	if (json)
		return json;
	show_escape(text, shown, sizeof(shown)); /* it is no UTF-8 */
	return json_string(shown);
}

static json_t *line_json(const struct tally_line *line, const struct config *config)
{
	const uint64_t *n = line->counts;
	char name[LOCK_NAME_BYTES];

	name_of(line, config, name);
	return json_pack(
		"{s:o, s:b, s:o, s:s, s:o*, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
		"file", text_json(line->path), "other_root", line->moved, "program", text_json(line->program), "space",
		line->space == WIRE_RECORD ? "record" : "flock", "lock", *name ? text_json(name) : NULL, "calls",
		(json_int_t)n[TALLY_CALLS], "taken", (json_int_t)n[TALLY_LEASED], "taken_unprotected",
		(json_int_t)n[TALLY_ALONE], "busy", (json_int_t)n[TALLY_BUSY], "refused", (json_int_t)n[TALLY_REFUSED],
		"failed", (json_int_t)n[TALLY_FAILED], "not_ended", (json_int_t)unfinished(line), "tests",
		(json_int_t)n[TALLY_TESTS], "tests_found", (json_int_t)n[TALLY_FOUND], "unlocks",
		(json_int_t)n[TALLY_UNLOCKS], "waited_ms", (json_int_t)ms_of(n[TALLY_WAITED_NS]), "waited_max_ms",
		(json_int_t)ms_of(n[TALLY_WAITED_MAX_NS]), "held", (json_int_t)n[TALLY_ENDED], "held_ms",
		(json_int_t)ms_of(n[TALLY_HELD_NS]), "held_max_ms", (json_int_t)ms_of(n[TALLY_HELD_MAX_NS]), "caught",
		(json_int_t)n[TALLY_CAUGHT], "caught_failed", (json_int_t)n[TALLY_CAUGHT_FAILED], "caught_busy",
		(json_int_t)n[TALLY_CAUGHT_BUSY]);
}

bool report_print_json(const struct report *report, const struct config *config, const char *job, FILE *f)
{
	json_t *lines = json_array(), *all;
	bool whole = lines != NULL;

	for (size_t i = 0; i < report->count && whole; i++)
		whole = json_array_append_new(lines, line_json(&report->lines[i], config)) == 0;
	all = json_pack("{s:o, s:o, s:I}", "job", text_json(job), "files", lines, "left_out",
			(json_int_t)report->tally->left_out);
	whole = whole && all && json_dumpf(all, f, JSON_INDENT(2)) == 0;
	json_decref(all);
	if (!whole)
		errno = ENOMEM;
	return whole && fputc('\n', f) != EOF && fflush(f) == 0 && !ferror(f);
}
