/* The lines of a program that has libdflock.so: they go to its own descriptor 2. */
#include "shim/note.h"

#include <poll.h>
#include <signal.h>
#include <sys/stat.h>

#include "shim/settings.h"
#include "wire/sys.h"

/* Removes a signal that our write raised. One that was pending before is the program's, and stays. */
static void consume(int sig, const struct sys_signals *before)
{
	struct sys_signals one = {{0}};
	struct timespec now = {0, 0};

	if (sys_has_signal(before, sig))
		return;
	sys_add_signal(&one, sig);
	sys(rt_sigtimedwait, &one, NULL, &now, (long)SYS_SIGNALS_BYTES);
}

/* A write may raise SIGPIPE (a pipe without a reader), SIGXFSZ (a log past RLIMIT_FSIZE) and SIGTTOU (a terminal that
 * belongs to another job). The program must get none of them, since it did not write. */
void note_out_write(int out, const char *line, size_t len)
{
	struct pollfd room = {.fd = out, .events = POLLOUT};
	struct sys_signals block = {{0}}, mask, before = {{0}};
	struct timespec now = {0, 0};
	long ret;

	if (sys(ppoll, &room, 1L, &now, NULL, 0L) != 1)
		return;
	sys_add_signal(&block, SIGPIPE);
	sys_add_signal(&block, SIGXFSZ);
	sys_add_signal(&block, SIGTTOU);
	if (sys(rt_sigprocmask, SIG_BLOCK, &block, &mask, (long)SYS_SIGNALS_BYTES) < 0)
		return;
	sys(rt_sigpending, &before, (long)SYS_SIGNALS_BYTES);
	ret = sys(write, out, line, len);
	if (ret == -EPIPE)
		consume(SIGPIPE, &before);
	if (ret == -EFBIG)
		consume(SIGXFSZ, &before);
	sys(rt_sigprocmask, SIG_SETMASK, &mask, NULL, (long)SYS_SIGNALS_BYTES);
}

int note_out_open(int fd)
{
	const struct settings *s = settings_get();
	struct stat out, locked;

	if (!s || !s->has_stderr || sys_fstat(2, &out) < 0)
		return -1;
	if (out.st_dev != s->stderr_dev || out.st_ino != s->stderr_ino)
		return -1;
	return sys_fstat(fd, &locked) < 0 || locked.st_dev != out.st_dev || locked.st_ino != out.st_ino ? 2 : -1;
}

/* It is the program's own. */
void note_out_close(int out)
{
	(void)out;
}

pid_t note_out_pid(void)
{
	return getpid();
}
