/* keeper/kernel/command.h: command lines as a hostile process has them. */
#include "keeper/kernel/command.h"

#include <sys/prctl.h>

#include "tests/unit/suite.h"

static char out[COMMAND_BYTES];

static void read_of(pid_t pid)
{
	char path[32];
	int dir;

	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(dir, 0);
	command_read(dir, out);
	close(dir);
}

/* A shell that waits, with one more argument. When exec() is over, the pipe that it closes ends. */
static void read_with(const char *argument)
{
	int gate[2], ready[2];
	char byte;
	pid_t pid;

	ck_assert_int_eq(pipe2(gate, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(ready, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		dup2(gate[0], 0);
		execl("/bin/sh", "sh", "-c", "read x", argument, NULL);
		_exit(127);
	}
	close(ready[1]);
	ck_assert_int_eq(read(ready[0], &byte, 1), 0);
	read_of(pid);
	close(gate[1]);
	waitpid(pid, NULL, 0);
	close(gate[0]);
	close(ready[0]);
}

static const struct {
	const char *argument, *shown;
} rows[] = {
	{"plain", "plain"},
	{"a\tb\nc  ", "a b c"},
	{"\x1b[31m\x7f", "?[31m?"},
	{"\xc3\xa4\xe2\x82\xac\xf0\x9f\x92\xa9", "\xc3\xa4\xe2\x82\xac\xf0\x9f\x92\xa9"},
	{"\xc2\x85x", "??x"},              /* C1 */
	{"\xc0\xaf\xe0\x80\xaf", "?????"}, /* overlong */
	{"\xed\xa0\x80", "???"},           /* a surrogate */
	{"\xf4\x90\x80\x80\xff", "?????"}, /* beyond U+10FFFF */
	{"\xe2\x82", "??"},                /* cut off */
};

TEST_EACH(harmless, ROWS(rows))
{
	char whole[128];

	read_with(rows[_i].argument);
	snprintf(whole, sizeof(whole), "sh -c read x %s", rows[_i].shown);
	ck_assert_str_eq(out, whole);
}

TEST(long_ones_are_cut)
{
	char argument[2 * COMMAND_BYTES];

	for (size_t i = 0; i + 1 < sizeof(argument); i++)
		argument[i] = i % 2 ? '\xa4' : '\xc3';
	argument[sizeof(argument) - 1] = '\0';
	read_with(argument);
	ck_assert_uint_le(strlen(out), COMMAND_BYTES - 1);
	ck_assert_uint_ge(strlen(out), COMMAND_BYTES - 3);
	ck_assert(!strncmp(out, "sh -c read x \xc3\xa4", 15));
	for (const char *c = out + 13; *c; c++)
		ck_assert(*c == '\xc3' || *c == '\xa4' || (*c == '?' && !c[1]));
}

TEST(a_zombie_has_its_short_name)
{
	pid_t pid = fork();
	siginfo_t info;

	if (pid == 0) {
		prctl(PR_SET_NAME, "short name");
		_exit(0);
	}
	ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	read_of(pid);
	ck_assert(!strncmp(out, "short name", 10));
	waitpid(pid, NULL, 0);
}
