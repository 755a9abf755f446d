#include "shim/report.h"

#include <errno.h>
#include <string.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "shim/call.h"
#include "shim/intent.h"
#include "shim/name.h"
#include "shim/note.h"
#include "shim/protect.h"
#include "shim/root.h"
#include "shim/settings.h"
#include "wire/sys.h"
#include "wire/text.h"

/* report_wanted. At first it is not known, since the environment was not read. */
#define WANTED_UNKNOWN 1u
#define WANTED_COUNTS  2u
#define WANTED_LINES   4u

uint32_t report_wanted = WANTED_UNKNOWN;
static struct tally *report_tally;
static char report_program[TALLY_PROGRAM_BYTES];

/* --- what is wanted --- */

static const char *skip_digits(const char *s)
{
	while (*s >= '0' && *s <= '9')
		s++;
	return s;
}

/* Is it /proc/PID/fd/N, as dflock writes it? Nothing else is opened: to open a device may do something. */
static bool report_is_path(const char *path)
{
	if (strncmp(path, "/proc/", 6) != 0 || *(path = skip_digits(path + 6)) != '/')
		return false;
	return strncmp(path, "/fd/", 4) == 0 && path[4] && !*skip_digits(path + 4);
}

/* A file that cannot shrink, so that no access to it is a SIGBUS. */
static bool report_is_tally(int fd)
{
	long seals = sys_fcntl(fd, F_GET_SEALS, 0L);
	struct stat st;

	return seals >= 0 && (seals & F_SEAL_SHRINK) && sys_fstat(fd, &st) == 0 && st.st_size == sizeof(struct tally);
}

struct tally *report_map(const char *path)
{
	struct tally *tally;
	long fd;

	if (!path || !report_is_path(path))
		return NULL;
	fd = sys(openat, AT_FDCWD, path, O_RDWR | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	tally = report_is_tally((int)fd) ? mmap(NULL, sizeof(*tally), PROT_READ | PROT_WRITE, MAP_SHARED, (int)fd, 0)
					 : MAP_FAILED;
	sys(close, fd);
	if (tally == MAP_FAILED)
		return NULL;
	if (tally->magic == TALLY_MAGIC && tally->version == TALLY_VERSION)
		return tally;
	munmap(tally, sizeof(*tally));
	return NULL;
}

void report_init(void)
{
	const struct settings *s = settings_get();
	struct tally *tally, *none = NULL;
	const int saved = errno;

	if (!s || __atomic_load_n(&report_wanted, __ATOMIC_ACQUIRE) != WANTED_UNKNOWN)
		return;
	tally = report_map(secure_getenv(TALLY_ENV));
	/* The name that the kernel shows for this program. Of two threads that are here, both write the same. */
	if (tally)
		prctl(PR_GET_NAME, report_program);
	if (tally &&
	    !__atomic_compare_exchange_n(&report_tally, &none, tally, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		munmap(tally, sizeof(*tally));
	__atomic_store_n(&report_wanted, (tally ? WANTED_COUNTS : 0) | (s->debug ? WANTED_LINES : 0), __ATOMIC_RELEASE);
	errno = saved;
}

/* --- before the call --- */

struct report_what report_flock(int op)
{
	struct report_what what = {.name = "flock"};

	if (intent_flock(op, &what.want))
		what.kind = REPORT_TAKE;
	else if ((op & ~LOCK_NB) == LOCK_UN)
		what = (struct report_what){.kind = REPORT_UNLOCK, .name = "flock", .want.last = INTENT_LAST};
	return what;
}

/* Finds the entry of the file. None for a descriptor that is not open. Not inlined: a signal stack may be small. */
static __attribute__((noinline)) void report_find(struct report_call *call, const struct stat *st)
{
	const struct intent *want = &call->what.want;
	const struct settings *s = settings_get();
	char path[PATH_MAX];
	struct tally_key key = {.program = report_program, .path = path, .space = want->space};
	int ret = name_read(call->fd, path);

	if (ret == NAME_NONE)
		key.path = "(a file without a name)";
	else if (ret < 0)
		key.path = "(unknown: /proc cannot be read)";
	else
		key.moved = s && root_was_left(s);
	call->entry = tally_find(report_tally, &key);
	call->lock = (struct tally_lock){
		.dev = st->st_dev,
		.ino = st->st_ino,
		.space = want->space,
		.exclusive = want->mode == WIRE_EXCLUSIVE,
		.owner = want->mode == WIRE_SHARED || want->owner == WIRE_OWNER_PROCESS ? (uint32_t)getpid()
											: TALLY_ANYBODY,
		.first = want->first,
		.last = want->last,
	};
}

bool report_begin(struct report_call *call, int fd, struct report_what what)
{
	const int saved = errno;
	struct stat st;

	report_init();
	*call = (struct report_call){.what = what, .fd = fd};
	if (what.kind != REPORT_NOTHING && (report_wanted & WANTED_COUNTS) && sys_fstat(fd, &st) == 0)
		report_find(call, &st);
	if (call->entry && what.kind == REPORT_TAKE)
		tally_add(call->entry, TALLY_CALLS, 1);
	call->began_ns = sys_clock_ns(CLOCK_MONOTONIC);
	errno = saved;
	return true;
}

/* --- after the call --- */

static void report_count_take(const struct report_call *call, bool leased, bool refused, int err, int64_t now_ns)
{
	tally_add_time(call->entry, TALLY_WAITED_NS, now_ns - call->began_ns);
	if (!err) {
		tally_add(call->entry, leased ? TALLY_LEASED : TALLY_ALONE, 1);
		tally_take(report_tally, call->entry, &call->lock, now_ns);
	} else if (!refused && call->what.want.nonblock && (err == EWOULDBLOCK || err == EACCES)) {
		tally_add(call->entry, TALLY_BUSY, 1);
	} else {
		tally_add(call->entry, err == ENOLCK || refused ? TALLY_REFUSED : TALLY_FAILED, 1);
	}
}

static void report_count(const struct report_call *call, bool leased, bool refused, int err, int64_t now_ns)
{
	switch (call->what.kind) {
	case REPORT_TAKE:
		report_count_take(call, leased, refused, err, now_ns);
		break;
	case REPORT_TEST:
		tally_add(call->entry, TALLY_TESTS, 1);
		tally_add(call->entry, TALLY_FOUND, call->found);
		break;
	case REPORT_UNLOCK:
		if (err)
			break;
		tally_add(call->entry, TALLY_UNLOCKS, 1);
		tally_unlock(report_tally, &call->lock, (uint32_t)getpid(), now_ns);
		break;
	default:
		break;
	}
}

static void report_add_what(struct text *line, const struct report_what *what)
{
	static const char *const kinds[] = {" (no known lock call)", " lock", " test", " unlock"};

	text_add(line, "%s%s", what->name, kinds[what->kind]);
	if (what->kind == REPORT_TAKE || what->kind == REPORT_TEST)
		text_add(line, what->want.mode == WIRE_SHARED ? " shared" : " exclusive");
	if (what->want.space == WIRE_RECORD && what->kind != REPORT_NOTHING && what->want.last == INTENT_LAST)
		text_add(line, " %lld-end", (long long)what->want.first);
	else if (what->want.space == WIRE_RECORD && what->kind != REPORT_NOTHING)
		text_add(line, " %lld-%lld", (long long)what->want.first, (long long)what->want.last);
	if (what->kind == REPORT_TAKE)
		text_add(line, what->want.nonblock ? ", not waiting" : ", waiting");
}

/* Not inlined: a signal stack may be small. */
static __attribute__((noinline)) void report_show(const struct report_call *call, bool leased, int err, int64_t now_ns)
{
	char buf[512], rule[256];
	struct text line;

	text_init(&line, buf, sizeof(buf));
	report_add_what(&line, &call->what);
	errno = err;
	text_add(&line, err ? ": %m; " : call->found ? ": a lock is in the way; " : ": done; ");
	if (protect_rule(call->fd, rule, sizeof(rule)))
		text_add(&line, "protected by %s", rule);
	else
		text_add(&line, leased ? "protected" : "not protected");
	text_add(&line, "; after %lld us", (long long)(now_ns - call->began_ns) / 1000);
	note_debug(call->fd, buf);
}

void report_end(struct report_call *call, const struct protect_look *look, int decided, int ret)
{
	const bool leased = decided != CALL_KERNEL && !look->disclaimed;
	const int saved = errno;
	int64_t now_ns = sys_clock_ns(CLOCK_MONOTONIC);

	if (call->entry)
		report_count(call, leased, look->refused, ret < 0 ? saved : 0, now_ns);
	if (report_wanted & WANTED_LINES)
		report_show(call, leased, ret < 0 ? saved : 0, now_ns);
	errno = saved;
}
