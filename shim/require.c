#include "shim/require.h"

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
#include "shim/sys.h"
#include "wire/text.h"

#define VARIABLE "DFLOCK_REQUIRE"
#define AGAIN_NS 20000000
/* How long a keeper that has just started may take to reach the store. */
#define STORE_PATIENCE_NS INT64_C(1000000000)

static bool require_refuse(const char *what, const char *detail)
{
	note_refused(NOTE_JOB, what, detail);
	return false;
}

/* --- the keeper --- */

/* One question after the other, while the keeper is not connected to the store. 0, -ECONNRESET, or -ENOLCK after a
 * line. */
static int require_converse(struct ask *ask, const struct protect_by *by)
{
	const int64_t until_ns = sys_clock_ns(CLOCK_MONOTONIC) + STORE_PATIENCE_NS;
	struct timespec pause = {.tv_nsec = AGAIN_NS};
	struct wire_reply reply;
	int ret;

	for (;;) {
		ret = ask_fit(ask, by);
		if (ret == 0)
			ret = ask_receive(ask, &reply);
		if (ret < 0 || reply.verdict == WIRE_OK)
			return ret;
		if (reply.verdict != WIRE_WOULD_BLOCK || sys_clock_ns(CLOCK_MONOTONIC) > until_ns)
			break;
		sys(nanosleep, &pause, NULL);
	}
	require_refuse(reply.reason[0] ? reply.reason : "the keeper's answer makes no sense here", NULL);
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
		return require_refuse("keepers end before they answer; run dflockd --foreground to see why", NULL);
	return ret == 0;
}

/* --- the file --- */

/* Where the path leads, as the kernel shows it; the file itself may be missing. */
static bool require_resolve(const char *file, char path[PATH_MAX])
{
	const char *base = strrchr(file, '/') + 1;
	char folder[PATH_MAX];
	long fd = sys(openat, AT_FDCWD, file, O_PATH | O_CLOEXEC);
	struct text text;
	bool whole = fd >= 0;
	int ret;

	if (!whole) {
		text_init(&text, folder, sizeof(folder));
		text_add_bytes(&text, file, (size_t)(base - file));
		fd = text.cut ? -ENAMETOOLONG : sys(openat, AT_FDCWD, folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	}
	if (fd < 0)
		return false;
	ret = name_read((int)fd, path);
	sys(close, fd);
	if (ret != 0 || whole)
		return ret == 0;
	text_init(&text, folder, sizeof(folder));
	text_add(&text, strcmp(path, "/") == 0 ? "" : path);
	text_add(&text, "/");
	text_add(&text, base);
	memcpy(path, folder, sizeof(folder));
	return !text.cut;
}

/* The keeper has said that the configuration is in force, so the page says which files it protects. */
static bool require_file(const char *file)
{
	char path[PATH_MAX];

	if (!require_resolve(file, path))
		return require_refuse("the directory of the file that " VARIABLE " names cannot be found", file);
	switch (protect_path(path)) {
	case PAGE_SAYS_YES:
		return true;
	case PAGE_SAYS_NO:
		return require_refuse("no rule protects the file that " VARIABLE " names", path);
	default:
		return require_refuse("whether the file that " VARIABLE
				      " names is protected cannot be told here (another "
				      "root directory, or a page that may not be read)",
				      path);
	}
}

/* --- */

static bool require_is_met(const char *value)
{
	const struct settings *s = settings_get();
	struct protect_by by;

	if (strcmp(value, "1") != 0 && !strchr(value, '/'))
		return require_refuse(VARIABLE " must be 1, or a path with a slash", value);
	if (!s || !s->place.config[0])
		return require_refuse("there is no configuration: write ~/.config/dflock.conf or /etc/dflock.conf, or "
				      "set DFLOCK_CONFIG",
				      NULL);
	if (protect_start(&by) < 0 || !require_keeper(&by))
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
		_exit(REQUIRE_EXIT);
}
