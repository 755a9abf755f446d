/* keeper/guard/supervise.c: what a service manager hears of parent and keeper. */
#include <sys/socket.h>
#include <sys/un.h>

#include "keeper/guard/manager.h"
#include "tests/unit/supervise_fixture.h"

static struct manager manager;

/* Runs `life` under a service manager whose socket this returns. */
static int start_managed(keeper_life *life)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int inbox = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s/notify", base);
	ck_assert_int_eq(bind(inbox, (struct sockaddr *)&address, sizeof(address)), 0);
	setenv("NOTIFY_SOCKET", address.sun_path, 1);
	parent = fork();
	ck_assert_int_ge(parent, 0);
	if (parent == 0) {
		const struct supervise options = {.runtime_dir = base,
						  .dir_fd = dir_fd,
						  .ready_fd = -1,
						  .manager = &manager,
						  .run = run,
						  .arg = &life};

		setenv("WATCHDOG_USEC", "40000", 1);
		manager_begin(&manager, true);
		_exit(supervise(&options));
	}
	return inbox;
}

/* The next message that is not the watchdog's. */
static const char *hear(int inbox)
{
	static char line[64];
	ssize_t n = -1;

	do {
		wait_until((n = recv(inbox, line, sizeof(line) - 1, 0)) > 0);
		line[n] = '\0';
	} while (strcmp(line, "WATCHDOG=1") == 0);
	return line;
}

static int serve_when_told(const struct supervised *keeper, int number)
{
	wait_until(shared->go);
	supervise_serves(keeper->table, keeper->serves);
	await_term();
	return keeper->table->head->ending == TABLE_TOLD_TO_END ? KEEPER_EXIT_IDLE : WRONG;
}

FIXTURE(begin, end)

TEST(the_manager_hears_when_programs_are_served)
{
	int inbox = start_managed(serve_when_told), alive = 0;
	char line[64] = "";

	/* Not before; but the parent lives. */
	while (alive < 3) {
		wait_until(recv(inbox, line, sizeof(line), 0) > 0);
		ck_assert_int_eq(strncmp(line, "WATCHDOG=1", 10), 0);
		alive++;
	}
	shared->go = true;
	ck_assert_str_eq(hear(inbox), "READY=1");
	kill(parent, SIGTERM);
	ck_assert_str_eq(hear(inbox), "STOPPING=1");
	ck_assert_int_eq(wait_for_end(), KEEPER_EXIT_IDLE);
	close(inbox);
}

static int die_and_serve(const struct supervised *keeper, int number)
{
	if (number == 0)
		raise(SIGKILL);
	supervise_serves(keeper->table, keeper->serves);
	await_term();
	return KEEPER_EXIT_IDLE;
}

TEST(the_manager_hears_of_a_keeper_after_the_first)
{
	int inbox = start_managed(die_and_serve);

	ck_assert_str_eq(hear(inbox), "READY=1");
	ck_assert_int_eq(shared->runs, 2);
	kill(parent, SIGTERM);
	ck_assert_int_eq(wait_for_end(), KEEPER_EXIT_IDLE);
	close(inbox);
}
