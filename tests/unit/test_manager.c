/* keeper/guard/manager.c: what a service manager hears, on a socket that the test reads. */
#include "keeper/guard/manager.h"

#include "keeper/clock.h"
#include "tests/unit/base_folder.h"

#define SECOND_NS (1000 * NS_PER_MS)

static int inbox;
static struct manager m;

static void begin(void)
{
	base_make();
	inbox = listen_at(in_base("notify"));
	setenv("NOTIFY_SOCKET", in_base("notify"), 1);
	unsetenv("WATCHDOG_USEC");
	unsetenv("WATCHDOG_PID");
}

static void end(void)
{
	close(inbox);
	base_remove();
}
FIXTURE(begin, end)

/* The next message that has come, or "". */
static const char *heard(void)
{
	static char line[256];
	ssize_t n = recv(inbox, line, sizeof(line) - 1, 0);
	ck_assert(n > 0 || (n < 0 && errno == EAGAIN));
	line[n > 0 ? n : 0] = '\0';
	return line;
}

static void set_number(const char *name, long long number)
{
	char text[32];
	snprintf(text, sizeof(text), "%lld", number);
	setenv(name, text, 1);
}

/* To a path, or an abstract name. */
TEST_EACH(ready_and_stopping_are_said_once, 2)
{
	char name[64];

	if (_i) {
		snprintf(name, sizeof(name), "@dflock-manager-%d", (int)getpid());
		close(inbox);
		inbox = listen_at(name);
		setenv("NOTIFY_SOCKET", name, 1);
	}
	manager_begin(&m, true);
	ck_assert_str_eq(heard(), "");
	manager_ready(&m);
	manager_ready(&m);
	ck_assert_str_eq(heard(), "READY=1");
	manager_stopping(&m);
	manager_stopping(&m);
	ck_assert_str_eq(heard(), "STOPPING=1");
	ck_assert_str_eq(heard(), "");
	manager_end(&m);
	ck_assert_int_eq(m.fd, -1);
}

TEST(nothing_of_it_stays_in_the_environment)
{
	for (int ours = 0; ours < 2; ours++) {
		setenv("NOTIFY_SOCKET", in_base("notify"), 1);
		setenv("WATCHDOG_USEC", "1", 1);
		setenv("WATCHDOG_PID", "1", 1);
		manager_begin(&m, ours);
		ck_assert_ptr_null(getenv("NOTIFY_SOCKET"));
		ck_assert_ptr_null(getenv("WATCHDOG_USEC"));
		ck_assert_ptr_null(getenv("WATCHDOG_PID"));
		manager_end(&m);
	}
}

/* A program of that service has started this keeper. */
TEST(the_manager_of_another_service_hears_nothing)
{
	setenv("WATCHDOG_USEC", "1000000", 1);
	manager_begin(&m, false);
	manager_ready(&m);
	manager_stopping(&m);
	manager_alive(&m, clock_now_ns());
	ck_assert_str_eq(heard(), "");
	ck_assert_int_eq(manager_wait_ms(&m, 1000), 1000);
}

TEST(no_address)
{
	char longest[sizeof(((struct sockaddr_un *)0)->sun_path) + 1];
	const char *const names[] = {"", "/", "@", "notify", "vsock:2:1", longest};

	memset(longest, 'x', sizeof(longest) - 1);
	longest[0] = '/';
	longest[sizeof(longest) - 1] = '\0';
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		setenv("NOTIFY_SOCKET", names[i], 1);
		manager_begin(&m, true);
		ck_assert_int_eq(m.fd, -1);
		manager_ready(&m);
		ck_assert(!m.ready);
		manager_end(&m);
	}
}

/* A manager that does not read is not waited for, and hears later that programs are served. */
TEST(said_again_when_there_is_room)
{
	manager_begin(&m, true);
	do {
		m.ready = false;
		manager_ready(&m); /* if it waited, Check would end the test */
	} while (m.ready);
	while (*heard())
		;
	manager_ready(&m);
	ck_assert(m.ready);
	ck_assert_str_eq(heard(), "READY=1");
	manager_end(&m);
}

TEST(the_watchdog_hears_four_times_in_its_time)
{
	int64_t at = clock_now_ns() - 10 * SECOND_NS;

	set_number("WATCHDOG_USEC", 4000000);
	set_number("WATCHDOG_PID", getpid());
	manager_begin(&m, true);
	ck_assert_int_eq(manager_wait_ms(&m, 5000), 1001);
	ck_assert_int_eq(manager_wait_ms(&m, 100), 100);
	manager_alive(&m, at);
	ck_assert_str_eq(heard(), "WATCHDOG=1");
	manager_alive(&m, at + SECOND_NS - 1);
	ck_assert_str_eq(heard(), "");
	manager_alive(&m, at + SECOND_NS);
	ck_assert_str_eq(heard(), "WATCHDOG=1");
	ck_assert_str_eq(heard(), "");
	manager_tick(); /* from inside of long work */
	ck_assert_str_eq(heard(), "WATCHDOG=1");
	manager_end(&m);
	manager_tick();
	ck_assert_str_eq(heard(), "");
}

TEST(no_watchdog)
{
	static const char *const times[] = {
		"", "0", "-5", "x", "5x", " 5", "99999999999999999999", "9223372036854775807"};

	for (size_t i = 0; i < sizeof(times) / sizeof(*times) + 1; i++) {
		bool other = i == sizeof(times) / sizeof(*times); /* it watches another process */

		setenv("NOTIFY_SOCKET", in_base("notify"), 1);
		setenv("WATCHDOG_USEC", other ? "4000000" : times[i], 1);
		set_number("WATCHDOG_PID", other ? getpid() + 1 : getpid());
		manager_begin(&m, true);
		ck_assert_int_eq(m.watchdog_ns, 0);
		manager_alive(&m, clock_now_ns());
		ck_assert_str_eq(heard(), "");
		ck_assert_int_eq(manager_wait_ms(&m, 1000), 1000);
		manager_end(&m);
	}
}
