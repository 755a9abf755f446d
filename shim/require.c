/* See settings.h, require_check(). */

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "shim/ask.h"
#include "shim/name.h"
#include "shim/note.h"
#include "shim/protect.h"
#include "shim/settings.h"
#include "wire/sys.h"
#include "wire/text.h"

#define VARIABLE "DFLOCK_REQUIRE"
#define AGAIN_NS 20000000
/* How long a keeper that has just started may take to reach the store. */
#define STORE_PATIENCE_NS INT64_C(1000000000)

/* --- the page --- */

static enum page_answer require_path(const char *path)
{
	const struct page *page;
	struct protect_by by;

	if (protect_gather_all(NOTE_JOB, &by, &page) < 0 || !page || !protect_same_root(page))
		return PAGE_SAYS_NOTHING;
	return page_ask(page, &by.mine, path, NULL);
}

/* --- the keeper --- */

/* One question after the other, while the keeper is not connected to the store. 0, -ECONNRESET, or -ENOLCK after a
 * line. */
static int require_converse(struct ask *ask, const struct protect_by *by)
{
	const int64_t until_ns = sys_kernel_clock_ns(CLOCK_MONOTONIC) + STORE_PATIENCE_NS;
	const struct wire_request fit = {.op = WIRE_FIT, .to = WIRE_EOF};
	struct timespec pause = {.tv_nsec = AGAIN_NS};
	struct wire_reply reply;
	int ret;

	for (;;) {
		ask->deadline_ns = sys_clock_ns(CLOCK_MONOTONIC) + ASK_JOB_PATIENCE_NS;
		ret = ask_send(ask, by, fit, -1);
		if (ret == 0)
			ret = ask_receive(ask, &reply);
		if (ret < 0 || reply.verdict == WIRE_OK)
			return ret;
		if (reply.verdict != WIRE_WOULD_BLOCK || sys_kernel_clock_ns(CLOCK_MONOTONIC) > until_ns)
			break;
		sys(nanosleep, &pause, NULL);
	}
	note_refused(NOTE_JOB, "%s", reply.reason[0] ? reply.reason : "the keeper's answer makes no sense here");
	return -ENOLCK;
}

static bool require_keeper(const struct protect_by *by)
{
	const struct intent want = {.nonblock = true};
	int ret = -ECONNRESET;
	struct ask ask = {.sock = -1};

	for (int attempt = 0; attempt < ASK_ATTEMPTS && ret == -ECONNRESET; attempt++) {
		ret = ask_open(&ask, by, &want, NOTE_JOB, attempt);
		if (ret == 0) {
			ret = require_converse(&ask, by);
			ask_close(&ask);
		}
	}
	if (ret == -ECONNRESET)
		note_refused(NOTE_JOB, "keepers end before they answer; run dflockd --foreground to see why");
	return ret == 0;
}

/* --- the file --- */

/* Where the path leads, as the kernel shows it; the file itself may be missing. */
static bool require_resolve(const char *file, char path[PATH_MAX])
{
	const char *base = strrchr(file, '/') + 1;
	char folder[PATH_MAX];
	long fd = sys(openat, AT_FDCWD, file, O_PATH | O_CLOEXEC);
	bool whole = fd >= 0;
	int ret;

	if (!whole && text_print(folder, sizeof(folder), "%s", file)) {
		folder[base - file] = '\0';
		fd = sys(openat, AT_FDCWD, folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	}
	if (fd < 0)
		return false;
	ret = name_read((int)fd, path);
	sys(close, fd);
	if (ret != 0 || whole)
		return ret == 0;
	memcpy(folder, path, sizeof(folder));
	return text_print(path, PATH_MAX, "%s/%s", strcmp(folder, "/") == 0 ? "" : folder, base);
}

/* The keeper has said that the configuration is in force, so the page says which files it protects. */
static bool require_file(const char *file)
{
	enum page_answer answer;
	char path[PATH_MAX];

	if (!require_resolve(file, path)) {
		note_refused(NOTE_JOB, "the directory of the file that " VARIABLE " names cannot be found: %s", file);
		return false;
	}
	answer = require_path(path);
	if (answer == PAGE_SAYS_NO)
		note_refused(NOTE_JOB, "no rule protects the file that " VARIABLE " names: %s", path);
	else if (answer != PAGE_SAYS_YES)
		note_refused(NOTE_JOB,
			     "whether the file that " VARIABLE " names is protected cannot be told here (another root "
			     "directory, or a page that may not be read): %s",
			     path);
	return answer == PAGE_SAYS_YES;
}

/* --- */

static bool require_is_met(const char *value)
{
	const struct settings *s = settings_get();
	const struct page *page;
	struct protect_by by;

	if (strcmp(value, "1") != 0 && !strchr(value, '/')) {
		note_refused(NOTE_JOB, VARIABLE " must be 1, or a path with a slash: %s", value);
		return false;
	}
	if (!s || !s->place.config[0]) {
		note_refused(NOTE_JOB, "there is no configuration: write ~/.config/dflock.conf or /etc/dflock.conf, or "
				       "set DFLOCK_CONFIG");
		return false;
	}
	if (protect_gather_all(NOTE_JOB, &by, &page) < 0 || !require_keeper(&by))
		return false;
	return !strchr(value, '/') || require_file(value);
}

void require_check(void)
{
	const char *value = secure_getenv(VARIABLE);

	if (!value)
		return;
	/* The text itself stays where it is. */
	unsetenv(VARIABLE);
	if (*value && strcmp(value, "0") != 0 && !require_is_met(value))
		_exit(123) /* as `dflock run --require` */;
}
