#include "shim/note.h"

#include <stdbool.h>
#include <string.h>

#include "shim/name.h"
#include "shim/settings.h"
#include "wire/sys.h"
#include "wire/msg.h"
#include "wire/text.h"

#define PATH_SHOWN 256
#define LINE_BYTES (WIRE_REASON_BYTES + PATH_SHOWN + 64)

/*
 * May this line be written now? `recent` has the last NOTE_BURST lines, each as its hash (high 40 bits) and the second
 * in which it was written (low 24 bits, 194 days); 0: none. The slot to be written next is the oldest one: if it is
 * younger than NOTE_BURST_S, there were enough lines. It does no harm if two threads both write a line that one should
 * write.
 */
static bool is_due(const char *line)
{
	static uint64_t recent[NOTE_BURST];
	static unsigned int next;
	uint64_t hash = 0xcbf29ce484222325ull, second, entry;
	unsigned int slot;

	for (; *line; line++)
		hash = (hash ^ (unsigned char)*line) * 0x100000001b3ull;
	second = (uint64_t)(sys_clock_ns(CLOCK_MONOTONIC_COARSE) / 1000000000) & 0xffffff;
	for (int i = 0; i < NOTE_BURST; i++) {
		entry = __atomic_load_n(&recent[i], __ATOMIC_RELAXED);
		if (entry && entry >> 24 == hash >> 24 && ((second - entry) & 0xffffff) < NOTE_REPEAT_S)
			return false;
	}
	slot = __atomic_load_n(&next, __ATOMIC_RELAXED) % NOTE_BURST;
	entry = __atomic_load_n(&recent[slot], __ATOMIC_RELAXED);
	if (entry && ((second - entry) & 0xffffff) < NOTE_BURST_S)
		return false;
	__atomic_store_n(&recent[slot], (hash >> 24) << 24 | second, __ATOMIC_RELAXED);
	__atomic_store_n(&next, slot + 1, __ATOMIC_RELAXED);
	return true;
}

/* A file's name, and what comes from another process, may have any bytes. */
static void send_line(int fd, struct text *line, bool always)
{
	const int out = note_out_open(fd);

	if (out < 0)
		return;
	if (always || is_due(line->buf)) {
		text_make_printable(line->buf, line->len);
		text_add(line, "\n");
		line->buf[line->len - 1] = '\n';
		note_out_write(out, line->buf, line->len);
	}
	note_out_close(out);
}

static void add_path(struct text *line, int fd)
{
	char path[PATH_SHOWN];
	const long n = name_link(fd, path, sizeof(path));

	if (n < 0) {
		text_add(line, "descriptor %d", fd);
		return;
	}
	text_add_bytes(line, path, (size_t)n);
	if (n == sizeof(path))
		text_add(line, "...");
}

static void note_about(int fd, const char *word, const char *what)
{
	char buf[LINE_BYTES];
	struct text line;

	text_init(&line, buf, sizeof(buf));
	text_add(&line, "dflock: ");
	if (word && fd == NOTE_JOB) {
		word = "not started: ";
	} else if (word) {
		add_path(&line, fd);
		text_add(&line, ": ");
	}
	text_add(&line, "%s%s", word ? word : "", what);
	send_line(fd, &line, false);
}

void note_refused(int fd, const char *format, ...)
{
	char what[LINE_BYTES];
	va_list ap;

	va_start(ap, format);
	text_vprint(what, sizeof(what), format, ap);
	va_end(ap);
	note_about(fd, "lock refused: ", what);
}

void note_waiting(int fd, const char *what)
{
	note_about(fd, "waiting: ", what);
}

void note_line(int fd, const char *line)
{
	note_about(fd, NULL, line);
}

void note_debug(int fd, const char *what)
{
	const struct settings *s = settings_get();
	char buf[LINE_BYTES];
	struct text line;

	if (!s || !s->debug)
		return;
	text_init(&line, buf, sizeof(buf));
	text_add(&line, "dflock: debug: pid %d: ", note_out_pid());
	add_path(&line, fd);
	text_add(&line, ": %s", what);
	send_line(fd, &line, true);
}
