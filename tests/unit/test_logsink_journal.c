/* keeper/logsink.c: the fields of the journal; what happens when its socket is full or away, and when it is not the journal's. */
#include "tests/unit/logsink_fixture.h"

/* As systemd does it for a unit. */
static void err_is_journal(void)
{
	char stream[64];
	struct stat st;

	ck_assert_int_eq(fstat(2, &st), 0);
	snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)st.st_dev, (unsigned long long)st.st_ino);
	setenv("JOURNAL_STREAM", stream, 1);
}

/* Reads the message as the journal does; the value of a field, of which there is one. NULL: there is none. */
static const char *field(const char *name, size_t *len)
{
	static char value[8192];
	const char *p = message, *end = message + message_len, *found = NULL;

	while (p < end) {
		const char *name_end = p + strcspn(p, "=\n"), *from;
		uint64_t size;

		ck_assert(name_end < end);
		if (*name_end == '=') {
			from = name_end + 1;
			size = (uint64_t)((const char *)memchr(from, '\n', (size_t)(end - from)) - from);
		} else {
			memcpy(&size, name_end + 1, sizeof(size));
			from = name_end + 1 + sizeof(size);
		}
		ck_assert(from + size < end);
		ck_assert_int_eq(from[size], '\n');
		if ((size_t)(name_end - p) == strlen(name) && !strncmp(p, name, strlen(name))) {
			ck_assert_ptr_null(found);
			memcpy(value, from, size);
			value[size] = '\0';
			*len = size;
			found = value;
		}
		p = from + size + 1;
	}
	return found;
}

#define check_field(name, expected)                                                                                    \
	do {                                                                                                           \
		size_t len_;                                                                                           \
		const char *value_ = field(name, &len_);                                                               \
		ck_assert_ptr_nonnull(value_);                                                                         \
		ck_assert_str_eq(value_, expected);                                                                    \
	} while (0)

static void open_journal(void)
{
	err_is_journal();
	inbox = listen_at(socket_path, SOCK_DGRAM);
	logsink_open(&sink, true, socket_path, "/nowhere");
}

TEST(fields_of_the_journal)
{
	const struct log_line line = {.kind = EVENT_TAKEN_PAST,
				      .text = "event=taken-past: it was",
				      .subject = "a=b",
				      .is_lock = true,
				      .pid = 77};
	size_t len;

	open_journal();
	ck_assert_int_eq(logsink_write(&sink, &line, "h-1"), 0);
	ck_assert(receive());
	check_field("PRIORITY", "4");
	check_field("SYSLOG_FACILITY", "3");
	check_field("SYSLOG_IDENTIFIER", "dflockd");
	check_field("MESSAGE", "event=taken-past: it was");
	check_field("DFLOCK_EVENT", "taken-past");
	check_field("DFLOCK_LOCK", "a=b");
	check_field("DFLOCK_HOST", "h-1");
	check_field("DFLOCK_PID", "77");
	ck_assert_ptr_null(field("CODE_FILE", &len));
	ck_assert_str_eq(err_said(), "");
	ck_assert_int_eq(write_line("x"), 0);
	ck_assert(receive());
	ck_assert_ptr_null(field("DFLOCK_LOCK", &len));
	ck_assert_ptr_null(field("DFLOCK_PID", &len));
	ck_assert_ptr_null(field("DFLOCK_EVENT", &len));
}

TEST(no_name_makes_up_a_field)
{
	struct log_line line = {.kind = LINE_LOCK_REFUSED, .text = "x", .is_lock = true};
	static const char *const names[] = {"a\nPRIORITY=0\nDFLOCK_PID=1\n", "\n", "a\n\x01\x02\xff=\n\n", "=", ""};
	size_t len;

	open_journal();
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		line.subject = names[i];
		ck_assert_int_eq(logsink_write(&sink, &line, ""), 0);
		ck_assert(receive());
		check_field("DFLOCK_LOCK", names[i]);
		check_field("PRIORITY", "4");
		ck_assert_ptr_null(field("DFLOCK_PID", &len));
	}
}

TEST(the_longest_line_fits)
{
	char lock[4096], text[LOGSINK_TEXT_BYTES];

	memset(lock, '\n', sizeof(lock) - 1);
	memset(text, 'x', sizeof(text) - 1);
	lock[sizeof(lock) - 1] = text[sizeof(text) - 1] = '\0';
	open_journal();
	ck_assert_int_eq(
		logsink_write(
			&sink,
			&(struct log_line){.kind = LINE_LOCK_REFUSED, .text = text, .subject = lock, .is_lock = true},
			"h"),
		0);
	ck_assert(receive());
	check_field("MESSAGE", text);
	check_field("DFLOCK_LOCK", lock);
}

/* Its socket is full, gone, and there again; no line is lost, since standard error has room. */
TEST(the_journal_is_full_and_goes_away)
{
	int lines = 0;

	open_journal();
	while (!*err_said()) {
		ck_assert_int_lt(lines, 100000);
		ck_assert_int_eq(write_line("full"), 0);
		lines++;
	}
	ck_assert_int_gt(lines, 1); /* the last went to standard error */
	while (receive())
		lines--;
	ck_assert_int_eq(lines, 1);
	close(inbox);
	ck_assert_int_eq(write_line("refused"), 0);
	ck_assert_str_eq(err_said(), "dflockd: refused\n");
	ck_assert_int_eq(unlink(socket_path), 0);
	ck_assert_int_eq(write_line("gone"), 0);
	ck_assert_str_eq(err_said(), "dflockd: gone\n");
	inbox = listen_at(socket_path, SOCK_DGRAM);
	ck_assert_int_eq(write_line("again"), 0);
	ck_assert(receive());
	check_field("MESSAGE", "again");
	ck_assert_str_eq(err_said(), "");
}

TEST(standard_error_that_is_not_the_journals)
{
	char others[64];
	struct stat st;

	ck_assert_int_eq(fstat(2, &st), 0);
	snprintf(others, sizeof(others), "%llu:%llu", (unsigned long long)st.st_dev, (unsigned long long)st.st_ino + 1);
	inbox = listen_at(socket_path, SOCK_DGRAM);
	for (int i = 0; i < 3; i++) {
		setenv("JOURNAL_STREAM", i == 0 ? others : i == 1 ? "1" : "nonsense", 1);
		logsink_open(&sink, true, socket_path, socket_path);
		ck_assert_int_eq(write_line("plain"), 0);
		ck_assert_str_eq(err_said(), "dflockd: plain\n");
		ck_assert(!receive());
		logsink_close(&sink);
	}
}

TEST(a_syslog_that_is_the_journals)
{
	char link[SUITE_PATH_BYTES + 16];

	snprintf(link, sizeof(link), "%s/log", base);
	ck_assert_int_eq(symlink(LOGSINK_JOURNAL_DEV, link), 0);
	inbox = listen_at(socket_path, SOCK_DGRAM);
	logsink_open(&sink, false, socket_path, link);
	ck_assert_int_eq(write_line("text"), 0);
	ck_assert(receive());
	check_field("MESSAGE", "text");
}
