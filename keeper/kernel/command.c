/* See command.h. */
#include "keeper/kernel/command.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "keeper/kernel/errand.h"
#include "procfs/procfs.h"
#include "wire/text.h"

struct command_job {
	int procfd;
	char text[COMMAND_BYTES];
	size_t len;
};

static void command_run(void *memory)
{
	struct command_job *r = memory;

	ssize_t n = procfs_head(r->procfd, "cmdline", r->text, sizeof(r->text));

	r->len = n > 0 ? (size_t)n : 0;
}

static void command_done(void *memory)
{
	struct command_job *r = memory;

	close(r->procfd);
	free(r);
}

static size_t command_read_line(int procfd, char out[COMMAND_BYTES])
{
	struct command_job *r = calloc(1, sizeof(*r));
	struct errand *errand;
	size_t len = 0;

	if (!r)
		return 0;
	r->procfd = fcntl(procfd, F_DUPFD_CLOEXEC, 3);
	if (r->procfd < 0) {
		free(r);
		return 0;
	}
	errand = errand_start(command_run, command_done, r);
	if (!errand)
		return 0;
	if (errand_wait(errand, COMMAND_WAIT_MS)) {
		len = r->len;
		memcpy(out, r->text, len);
	}
	errand_leave(errand);
	return len;
}

void command_read(int procfd, char out[COMMAND_BYTES])
{
	size_t n = command_read_line(procfd, out);

	/* The process is about to end, or wiped its arguments, or its memory cannot be read now: the short name is
	 * always there. */
	if (!n) {
		ssize_t len = procfs_head(procfd, "comm", out, COMMAND_BYTES);

		n = len > 0 ? (size_t)len : 0;
	}
	text_make_printable(out, n);
	while (n > 0 && out[n - 1] == ' ')
		n--;
	out[n] = '\0';
}

void comm_read(pid_t pid, char out[COMM_BYTES])
{
	char path[32], text[COMM_BYTES + 1]; /* with the line feed */
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	n = procfs_head(AT_FDCWD, path, text, sizeof(text));
	n = n < 0 ? 0 : n > 0 && text[n - 1] == '\n' ? n - 1 : n;
	memcpy(out, text, (size_t)n < COMM_BYTES ? (size_t)n : COMM_BYTES - 1);
	out[(size_t)n < COMM_BYTES ? (size_t)n : COMM_BYTES - 1] = '\0';
	text_make_printable(out, strlen(out));
}
