/*
 * The lines of the net. The supervisors have none of the job's descriptors, so a line goes to descriptor 2 of the thread that
 * makes the call, through one copy of it: what the program opens there meanwhile gets no line.
 *
 * shim/note_out.c writes only if descriptor 2 is what it was when the program started. Nobody knows that of a program under the
 * net. So it must be what it was when the job started, or be of a kind that a program opens for messages: a terminal, a pipe, or
 * a file open for writing alone. A program's data or connection under that number is none of these.
 */
#include "net/decide.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "net/shared.h"
#include "shim/ask.h"
#include "shim/note.h"

static __thread const struct thread *note_out_thread;

void note_out_for(const struct thread *t)
{
	note_out_thread = t;
}

static bool note_out_is_fit(int out, const struct stat *st)
{
	if (shared && shared->has_stderr && st->st_dev == shared->stderr_dev && st->st_ino == shared->stderr_ino)
		return true;
	if (S_ISREG(st->st_mode))
		return (fcntl(out, F_GETFL) & O_ACCMODE) == O_WRONLY;
	return S_ISFIFO(st->st_mode) || (S_ISCHR(st->st_mode) && isatty(out));
}

int note_out_open(int fd)
{
	const int out = note_out_thread ? thread_copy_for_messages(note_out_thread) : -1;
	struct stat st, locked;

	if (out < 0)
		return -1;
	if (fstat(out, &st) == 0 && note_out_is_fit(out, &st) &&
	    (fstat(fd, &locked) < 0 || locked.st_dev != st.st_dev || locked.st_ino != st.st_ino))
		return out;
	close(out);
	return -1;
}

/* Signals that a write may raise are ignored in this process, and no terminal is its own. */
void note_out_write(int out, const char *line, size_t len)
{
	struct pollfd room = {.fd = out, .events = POLLOUT};

	if (poll(&room, 1, 0) == 1 && write(out, line, len) < 0) {
		/* The line is lost, as one to a full pipe is. */
	}
}

void note_out_close(int out)
{
	close(out);
}

/* Of a process with several threads, the one whose call it is. */
pid_t note_out_pid(void)
{
	return note_out_thread ? note_out_thread->tid : 0;
}

/* --- shim/ask.h: no handler of a supervisor leaves a conversation, so none is noted --- */

void abandoned_note(struct ask *ask)
{
	ask->cookie = 0;
}

void abandoned_forget(struct ask *ask)
{
	(void)ask;
}
