/*
 * keeper/log.c, logsink.c: where lines go (standard error, syslog, the fields of the journal), also when that is full or away; levels, lines
 * that could not be written, and what a killed keeper had counted. Standard error is a pipe that the test reads, and a socket of the test's
 * is the journal's or syslog's.
 */
#include <sys/resource.h>
#include <syslog.h>

#include "keeper/log.h"
#include "keeper/logline.h"
#include "tests/unit/base_folder.h"

static struct logsink sink;
static int inbox, err_read, saved_err;
static char socket_path[SUITE_PATH_BYTES + 16];

/* Standard error is a pipe that the test reads. */
static void setup(void)
{
	int ends[2];

	signal(SIGPIPE, SIG_IGN);
	base_make();
	snprintf(socket_path, sizeof(socket_path), "%s/socket", base);
	unsetenv("JOURNAL_STREAM");
	saved_err = fcntl(2, F_DUPFD_CLOEXEC, 10);
	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	err_read = ends[0];
	fcntl(err_read, F_SETFL, O_NONBLOCK);
	dup2(ends[1], 2);
	close(ends[1]);
}

static void teardown(void)
{
	logsink_close(&sink);
	dup2(saved_err, 2);
	close(saved_err);
	close(err_read);
	base_remove();
}
FIXTURE(setup, teardown)

static int write_line(const char *text)
{
	return logsink_write(&sink, &(struct log_line){.kind = LINE_DEBUG, .text = text}, "");
}

/* What has come to standard error, or "". */
static const char *err_said(void)
{
	static char text[65536 * 2];
	ssize_t n = read(err_read, text, sizeof(text) - 1);
	text[n > 0 ? n : 0] = '\0';
	return text;
}

static char message[16384];
static size_t message_len;

static bool receive(void)
{
	ssize_t n = recv(inbox, message, sizeof(message) - 1, 0);
	ck_assert(n >= 0 || errno == EAGAIN);
	message_len = n > 0 ? (size_t)n : 0;
	message[message_len] = '\0';
	return n > 0;
}

/* --- standard error and syslog --- */

/* No process reads it: the writer does not wait. */
TEST_EACH(a_pipe_or_socket_that_is_full, 2)
{
	int pair[2], lines = 0, flags;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	if (_i)
		dup2(pair[1], 2);
	flags = fcntl(2, F_GETFL);
	logsink_open(&sink, true, "/nowhere", "/nowhere");
	ck_assert_int_eq(fcntl(2, F_GETFL), flags); /* others that share it wait as before */
	while (write_line("some text") == 0)
		ck_assert_int_lt(++lines, 100000);
	ck_assert_int_eq(write_line("more"), -EAGAIN);
	if (!_i)
		ck_assert_uint_eq(strlen(err_said()), (size_t)lines * strlen("dflockd: some text\n"));
	close(pair[0]);
	ck_assert_int_eq(write_line("room"), _i ? -EPIPE : 0);
	close(pair[1]);
}

TEST(syslog_as_datagrams)
{
	inbox = listen_at(socket_path);
	logsink_open(&sink, false, "/nowhere", socket_path);
	ck_assert_int_eq(write_line("text"), 0);
	ck_assert(receive());
	ck_assert_str_eq(strstr(message, "]:"), "]: text");
	ck_assert_int_eq(strncmp(message, "<31>", 4), 0);
	ck_assert_ptr_nonnull(strstr(message, " dflockd["));
	while (write_line("full") == 0)
		;
	ck_assert_int_eq(write_line("full"), -EAGAIN);
	ck_assert_str_eq(err_said(), "");
	close(inbox);
	ck_assert_int_eq(write_line("away"), -ECONNREFUSED);
}

/* --- the journal --- */

/* As systemd does it for a unit; `more` is added to the inode. */
static void err_is_journal(unsigned more)
{
	char stream[64];
	struct stat st;
	ck_assert_int_eq(fstat(2, &st), 0);
	snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)st.st_dev,
		 (unsigned long long)st.st_ino + more);
	setenv("JOURNAL_STREAM", stream, 1);
}

/* Reads the message as the journal does; the value of a field, of which there is one. NULL: there is none. */
static const char *field(const char *name)
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
			found = value;
		}
		p = from + size + 1;
	}
	return found;
}

#define check_field(name, expected)                                                                                    \
	do {                                                                                                           \
		const char *value_ = field(name);                                                                      \
		ck_assert_ptr_nonnull(value_);                                                                         \
		ck_assert_str_eq(value_, expected);                                                                    \
	} while (0)

static void open_journal(void)
{
	err_is_journal(0);
	inbox = listen_at(socket_path);
	logsink_open(&sink, true, socket_path, "/nowhere");
}

TEST(fields_of_the_journal)
{
	const struct log_line line = {.kind = EVENT_TAKEN_PAST,
				      .text = "event=taken-past: it was",
				      .subject = "a=b",
				      .is_lock = true,
				      .pid = 77};

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
	ck_assert_ptr_null(field("CODE_FILE"));
	ck_assert_str_eq(err_said(), "");
	ck_assert_int_eq(write_line("x"), 0);
	ck_assert(receive());
	ck_assert_ptr_null(field("DFLOCK_LOCK"));
	ck_assert_ptr_null(field("DFLOCK_PID"));
	ck_assert_ptr_null(field("DFLOCK_EVENT"));
}

TEST(no_name_makes_up_a_field)
{
	struct log_line line = {.kind = LINE_LOCK_REFUSED, .text = "x", .is_lock = true};
	static const char *const names[] = {"a\nPRIORITY=0\nDFLOCK_PID=1\n", "\n", "a\n\x01\x02\xff=\n\n", "=", ""};

	open_journal();
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		line.subject = names[i];
		ck_assert_int_eq(logsink_write(&sink, &line, ""), 0);
		ck_assert(receive());
		check_field("DFLOCK_LOCK", names[i]);
		check_field("PRIORITY", "4");
		ck_assert_ptr_null(field("DFLOCK_PID"));
	}
}

/* journalctl shows no text that is not UTF-8, or has control characters. */
TEST(no_name_hides_a_line)
{
	static const struct {
		const char *name, *shown;
	} rows[] = {{"a\nb", "a?b"},
		    {"\xff\xfe", "??"},
		    {"\xc2\x9b"
		     "2J",
		     "??2J"},
		    {"\xe2\x80\xae", "???"},
		    {"\xc3\xa4 b", "\xc3\xa4 b"},
		    {"\x1b[2J\x7f", "?[2J?"},
		    {"\xe2\x82", "??"}};
	char name[64];

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		snprintf(name, sizeof(name), "%s", rows[i].name);
		log_make_one_line(name);
		ck_assert_str_eq(name, rows[i].shown);
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
	inbox = listen_at(socket_path);
	ck_assert_int_eq(write_line("again"), 0);
	ck_assert(receive());
	check_field("MESSAGE", "again");
	ck_assert_str_eq(err_said(), "");
}

TEST(standard_error_that_is_not_the_journals)
{
	inbox = listen_at(socket_path);
	for (int i = 0; i < 3; i++) {
		err_is_journal(1);
		if (i)
			setenv("JOURNAL_STREAM", i == 1 ? "1" : "nonsense", 1);
		logsink_open(&sink, true, socket_path, socket_path);
		ck_assert_int_eq(write_line("plain"), 0);
		ck_assert_str_eq(err_said(), "dflockd: plain\n");
		ck_assert(!receive());
		logsink_close(&sink);
	}
}

/* Of a line for which a file has too little room, a part is written: it counts as not written, and the next one is a line of its own. */
TEST(a_file_that_is_full)
{
	struct rlimit before, small;
	int file = suite_nameless_file(), said[2];
	char text[64] = "";

	ck_assert_int_eq(dup2(file, 2), 2);
	logsink_open(&sink, true, socket_path, socket_path);
	signal(SIGXFSZ, SIG_IGN);
	ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
	small = (struct rlimit){.rlim_cur = 12, .rlim_max = before.rlim_max};
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
	for (int i = 0; i < 2; i++)
		said[i] = write_line("first");
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0); /* Check writes files, too */
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(said[i], -EFBIG);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(write_line("more"), 0);
	ck_assert_int_gt(pread(file, text, sizeof(text) - 1, 0), 0);
	ck_assert_str_eq(text, "dflockd: fir\ndflockd: more\ndflockd: more\n");
}

TEST(a_syslog_that_is_the_journals)
{
	char link[SUITE_PATH_BYTES + 16];
	snprintf(link, sizeof(link), "%s/log", base);
	ck_assert_int_eq(symlink(LOGSINK_JOURNAL_DEV, link), 0);
	inbox = listen_at(socket_path);
	logsink_open(&sink, false, socket_path, link);
	ck_assert_int_eq(write_line("text"), 0);
	ck_assert(receive());
	check_field("MESSAGE", "text");
}

/* --- the log --- */

TEST(levels_and_who_says_them)
{
	enum log_by by;

	log_init(true, "warning");
	ck_assert_int_eq(log_level(&by), LOG_WARNING);
	ck_assert_int_eq(by, LOG_BY_ENVIRONMENT);
	log_set_level(LOG_BY_CONFIGURATION, LOG_DEBUG);
	ck_assert_int_eq(log_level(&by), LOG_WARNING); /* the environment is before it */
	log_event(LINE_KEEPER_SERVES, "info");
	log_debug("debug");
	log_event(LINE_HOST_DEAD, "warning");
	ck_assert_str_eq(err_said(), "dflockd: warning\n");
	log_set_level(LOG_BY_COMMAND, LOG_ERR);
	log_event(LINE_HOST_GIVEN_UP, "warning");
	log_event(EVENT_LEASE_LOST, "an error");
	ck_assert_str_eq(err_said(), "dflockd: event=lease-lost: an error\n");
	log_set_level(LOG_BY_COMMAND, LOG_DEBUG);
	ck_assert_int_eq(log_level(&by), LOG_DEBUG);
	ck_assert_int_eq(by, LOG_BY_COMMAND);
	log_debug("debug");
	log_event(EVENT_LEASE_LOST, "each\nline");
	ck_assert_str_eq(err_said(), "dflockd: debug\ndflockd: event=lease-lost: each?line\n");
	log_set_level(LOG_BY_COMMAND, -1);
	ck_assert_int_eq(log_level(NULL), LOG_WARNING);
	/* A level that is none. */
	log_init(true, "verbose");
	ck_assert_str_eq(
		err_said(),
		"dflockd: DFLOCK_LOG is \"verbose\"; expected \"error\", \"warning\", \"info\" or \"debug\"\n");
	ck_assert_int_eq(log_level(NULL), LOG_INFO);
}

TEST(lines_that_could_not_be_written_are_counted)
{
	log_init(true, NULL);
	log_set_level(LOG_BY_COMMAND, LOG_DEBUG); /* all are written */
	while (!log_unwritten())
		log_event(LINE_STORE_REFUSED, "text");
	log_event(LINE_STORE_REFUSED, "one more");
	ck_assert_uint_eq(log_unwritten(), 2);
	log_tick(); /* still no room */
	ck_assert_uint_eq(log_unwritten(), 2);
	err_said();
	log_tick();
	ck_assert_str_eq(err_said(),
			 "dflockd: 2 lines of this log could not be written: Resource temporarily unavailable\n");
	ck_assert_uint_eq(log_unwritten(), 0);
	log_event(LINE_STORE_REFUSED, "text");
	ck_assert_str_eq(err_said(), "dflockd: text\n");
}

/* A keeper is killed: its parent says what it had counted, and the next keeper goes on with the minute. */
TEST(what_a_killed_keeper_had_counted)
{
	int status;

	log_init(true, NULL);
	log_event(LINE_KEEPER_SERVES, "the parent's");
	for (int turn = 0; turn < 2; turn++) {
		pid_t pid = fork();

		if (pid == 0) {
			log_begin_keeper();
			for (int i = 0; i < 3; i++)
				log_event(LINE_KEEPER_SERVES, "the keeper's");
			log_set_level(LOG_BY_COMMAND, LOG_INFO + turn);
			kill(getpid(), SIGKILL);
		}
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert_str_eq(err_said(), turn ? "" : "dflockd: the parent's\ndflockd: the keeper's\n");
		log_keeper_ended();
		ck_assert_str_eq(err_said(), turn ? "dflockd: the keeper's (3 times in the last 0 s)\n"
						  : "dflockd: the keeper's (2 times in the last 0 s)\n");
	}
	ck_assert_int_eq(log_level(NULL), LOG_DEBUG); /* what the keeper was told holds for its parent */
	log_flush();
	ck_assert_str_eq(err_said(), "");
}
