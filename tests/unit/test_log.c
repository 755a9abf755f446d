/* keeper/log.c: levels, lines that could not be written, and what a killed keeper had counted. */
#include "tests/unit/logsink_fixture.h"

#include "keeper/log.h"

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
}

TEST(a_level_that_is_none)
{
	log_init(true, "verbose");
	ck_assert_str_eq(
		err_said(),
		"dflockd: DFLOCK_LOG is \"verbose\"; expected \"error\", \"warning\", \"info\" or \"debug\"\n");
	ck_assert_int_eq(log_level(NULL), LOG_INFO);
}

TEST(lines_that_could_not_be_written_are_counted)
{
	const char *said;
	int i;

	log_init(true, NULL);
	for (i = 0; !log_unwritten(); i++) {
		char lock[16];

		snprintf(lock, sizeof(lock), "%d", i);
		log_set_level(LOG_BY_COMMAND, LOG_DEBUG);
		log_event(LINE_STORE_REFUSED, "text");
	}
	log_event(LINE_STORE_REFUSED, "one more");
	ck_assert_uint_eq(log_unwritten(), 2);
	log_tick(); /* still no room */
	ck_assert_uint_eq(log_unwritten(), 2);
	err_said();
	log_tick();
	said = err_said();
	ck_assert_str_eq(said, "dflockd: 2 lines of this log could not be written: Resource temporarily unavailable\n");
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
